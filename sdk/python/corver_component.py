"""What ``corver-host plugin build`` compiles: the contract's exports around the module ``rule``."""

import json
import traceback
from contextlib import contextmanager
from typing import Iterator, Union

from componentize_py_types import Err
from corver_sdk import Abstention, Ask, Batch, Section, Sentence, Triplet, Verdict
from rule import rule
from wit_world.exports import SentenceScoring as Contract
from wit_world.imports import diagnostics, types


class SentenceScoring(Contract):
    configured = None
    batch = None

    def describe(self) -> types.Manifest:
        return types.Manifest(rule.name, rule.version, rule.summary, json.dumps(rule.schema()))

    def configure(self, settings: str) -> None:
        try:
            SentenceScoring.configured = rule.configure(json.loads(settings))
        except ValueError as error:
            raise Err(str(error)) from None

    def score(self, completions: list[types.Completion], corpus: types.CorpusSize) -> list[list[types.Outcome]]:
        with reported():
            sentences = [[sentence(one) for one in completion.sentences] for completion in completions]
            SentenceScoring.batch = Batch(SentenceScoring.configured, sentences, corpus)
            return outcomes()

    def resume(self, replies: list[types.Reply]) -> list[list[types.Outcome]]:
        with reported():
            SentenceScoring.batch.reply([reply.value for reply in replies])
            return outcomes()


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


def outcomes() -> list[list[types.Outcome]]:
    return [[outcome(judged) for judged in completion] for completion in SentenceScoring.batch.judge()]


def outcome(judged: Union[Verdict, Abstention, Ask]) -> types.Outcome:
    if isinstance(judged, Ask):
        return types.Outcome_Ask([types.Request_Count(query) for query in judged.queries])
    if isinstance(judged, Abstention):
        return types.Outcome_Abstain(judged.why)
    return types.Outcome_Score(judged)
