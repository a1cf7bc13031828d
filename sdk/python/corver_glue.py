"""Between the contract's exports and a rule."""

import json
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Optional, Union

from componentize_py_types import Err
from corver_sdk import (
    Abstention,
    Ask,
    Batch,
    Completion,
    Entailment,
    Grade,
    Pair,
    Passage,
    Point,
    Prompt,
    Query,
    Rule,
    Search,
    Section,
    Sentence,
    Sign,
    Triplet,
    Verdict,
)
from wit_world.imports import diagnostics, types

Said = Union[Verdict, Abstention, Grade, Ask]


class State:
    """Of the one batch that an instance judges."""

    configured: Any = None
    batch: Any = None


def described(rule: Rule) -> types.Manifest:
    asks = [types.Verifier[verifier.name] for verifier in rule.asks]
    return types.Manifest(rule.name, rule.version, rule.summary, json.dumps(rule.schema()), asks, rule.reads_triplets)


def configure(rule: Rule, settings: str) -> None:
    try:
        State.configured = rule.configure(json.loads(settings))
    except ValueError as error:
        raise Err(str(error)) from None


def begun(decide: Callable[[Any], Any], subjects: list[list[Any]], size: types.CorpusSize) -> list[list[Said]]:
    with reported():
        State.batch = Batch(decide(State.configured), subjects, size)
        return State.batch.judge()


def resumed(replies: list[types.Reply]) -> list[list[Said]]:
    with reported():
        State.batch.reply([reply(one) for one in replies])
        return State.batch.judge()


@contextmanager
def reported() -> Iterator[None]:
    """A trap loses the traceback of an exception: it is reported first."""
    try:
        yield
    except Exception as error:
        # Not `format_exc`, which looks for the source files: there are none, and no file system either.
        lines = traceback.format_exception_only(error)
        places = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__)]
        lines += [f"  {code.co_filename}:{line} in {code.co_name}\n" for code, line in places]
        diagnostics.report("".join(lines).rstrip())
        raise


def sentence(given: types.Sentence) -> Sentence:
    triplets = [Triplet(triplet.head, triplet.relation, triplet.tail) for triplet in given.triplets]
    return Sentence(given.text, Section[given.section.name], triplets)


def completion(given: types.Completion) -> Completion:
    sentences = [sentence(one) for one in given.sentences]
    return Completion(given.question, given.golds, given.title, given.evidence, given.text, given.answer, sentences)


def requests(ask: Ask) -> list[types.Request]:
    return [request(one) for one in ask.requests]


def request(asked: Union[Query, Pair, Prompt, Search]) -> types.Request:
    if isinstance(asked, Query):
        return types.Request_Count(types.Query(asked.all_of, asked.enough))
    if isinstance(asked, Pair):
        return types.Request_Nli(types.Pair(asked.premise, asked.hypothesis))
    if isinstance(asked, Search):
        return types.Request_Passages(types.Search(asked.title, asked.query, asked.k))
    messages = [types.Message(types.Role[message.role.name], message.content) for message in asked.messages]
    return types.Request_Chat(types.Prompt(messages, asked.temperature, asked.top_p, asked.max_tokens, asked.seed))


def reply(given: types.Reply) -> Any:
    value = given.value
    if isinstance(given, types.Reply_Nli):
        return Entailment(value.entail, value.neutral, value.contradict)
    if isinstance(given, types.Reply_Passages):
        return [Passage(passage.title, passage.text) for passage in value]
    return value  # a count, or words


def credit(given: Union[None, list[Point], Sign]) -> Optional[types.Credit]:
    if isinstance(given, list):
        return types.Credit_Points([types.Point(point.character, point.reward) for point in given])
    return None if given is None else types.Credit_Sign()
