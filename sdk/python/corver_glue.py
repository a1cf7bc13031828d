"""Connects the contract's exports with a rule."""

import json
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from componentize_py_types import Err
from corver_sdk import (
    AdvantageSign,
    Batch,
    ChatPrompt,
    Completion,
    CorpusInfo,
    CountMode,
    Credit,
    Entailment,
    Grade,
    NliPair,
    Passage,
    Pending,
    Query,
    Request,
    Rule,
    Search,
    Section,
    Sentence,
    Triplet,
    Verdict,
)
from wit_world.imports import diagnostics, types

Outcome = Verdict | Grade | Pending


class State:
    """The state of an instance, which scores one batch."""

    configured: Any = None
    batch: Any = None


def manifest(rule: Rule) -> types.Manifest:
    with report_errors():
        return types.Manifest(
            name=rule.name,
            version=rule.version,
            summary=rule.summary,
            settings_schema=json.dumps(rule.schema()),
            requires=[types.Capability[capability.name] for capability in rule.requires],
            reads_triplets=rule.reads_triplets,
            credit=types.CreditKind[rule.credit.name],
        )


def configure(rule: Rule, settings: str) -> None:
    refusal = None
    with report_errors():
        try:
            State.configured = rule.configure(json.loads(settings))
        except ValueError as error:
            refusal = str(error)
    if refusal is not None:
        raise Err(refusal)


def start(
    method: Callable[[Any], Any],
    subjects: list[list[Any]],
    info: types.CorpusInfo,
    to_contract: Callable[[Outcome], Any],
) -> list[list[Any]]:
    """Scores a batch with a method of the configured rule. Returns the outcomes in the contract's types."""
    with report_errors():
        State.batch = Batch(method(State.configured), subjects, corpus_info(info))
        return run_batch(to_contract)


def resume(replies: list[types.Reply], to_contract: Callable[[Outcome], Any]) -> list[list[Any]]:
    with report_errors():
        State.batch.reply([reply(one) for one in replies])
        return run_batch(to_contract)


def run_batch(to_contract: Callable[[Outcome], Any]) -> list[list[Any]]:
    return [[to_contract(outcome) for outcome in completion] for completion in State.batch.run()]


@contextmanager
def report_errors() -> Iterator[None]:
    """Reports an exception, since a trap loses its traceback."""
    try:
        yield
    except Exception as error:
        # `format_exc` would look for the source files; there is no file system.
        lines = traceback.format_exception_only(error)
        positions = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__)]
        lines += [f"  {code.co_filename}:{line} in {code.co_name}\n" for code, line in positions]
        diagnostics.report("".join(lines).rstrip())
        raise


def corpus_info(given: types.CorpusInfo) -> CorpusInfo:
    mode = None if given.mode is None else CountMode[given.mode.name]
    return CorpusInfo(given.tokens, given.documents, given.window, mode)


def sentence(given: types.Sentence) -> Sentence:
    triplets = [Triplet(triplet.head, triplet.relation, triplet.tail) for triplet in given.triplets]
    return Sentence(given.text, Section[given.section.name], triplets)


def completion(given: types.Completion) -> Completion:
    sentences = [sentence(one) for one in given.sentences]
    return Completion(given.question, given.golds, given.title, given.evidence, given.text, given.answer, sentences)


def requests(pending: Pending) -> list[types.Request]:
    return [request(one) for one in pending.requests]


def request(given: Request) -> types.Request:
    if isinstance(given, Query):
        return types.Request_Count(types.Query(given.all_of, given.limit))
    if isinstance(given, NliPair):
        return types.Request_Nli(types.NliPair(given.premise, given.hypothesis))
    if isinstance(given, Search):
        return types.Request_Passages(types.Search(given.title, given.query, given.k))
    messages = [types.Message(types.ChatRole[message.role.name], message.content) for message in given.messages]
    prompt = types.ChatPrompt(messages, given.temperature, given.top_p, given.max_tokens, given.seed)
    return types.Request_Chat(prompt)


def reply(given: types.Reply) -> Any:
    value = given.value
    if isinstance(given, types.Reply_Nli):
        return Entailment(value.entail, value.neutral, value.contradict)
    if isinstance(given, types.Reply_Passages):
        return [Passage(passage.title, passage.text) for passage in value]
    return value  # a count or a text


def credit(given: Credit) -> types.Credit | None:
    if isinstance(given, AdvantageSign):
        return types.Credit_AdvantageSign()
    if given is None:
        return None
    return types.Credit_TokenRewards([types.TokenReward(part.character, part.reward) for part in given])
