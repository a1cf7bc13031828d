"""What ``corver-host plugin build`` compiles: the contract's exports around the module ``rule``."""

import json
import traceback
from contextlib import contextmanager
from typing import Iterator, Union

from componentize_py_types import Err
from corver_sdk import Abstention, Ask, Batch, Corpus, Sentence, Verdict, sentences_of
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

    def score(self, batch: types.Batch) -> list[types.Outcome]:
        with telling():
            SentenceScoring.batch = Batch(sentences_of(batch), judge)
            return outcomes()

    def resume(self, counts: list[types.Count]) -> list[types.Outcome]:
        with telling():
            SentenceScoring.batch.answer(counts)
            return outcomes()


def judge(sentence: Sentence, counts: list[types.Count]) -> Union[Verdict, Abstention, Ask]:
    try:
        return SentenceScoring.configured.score(sentence, Corpus(counts))
    except Ask as ask:
        return ask


@contextmanager
def telling() -> Iterator[None]:
    """A trap has no words: they go out this way."""
    try:
        yield
    except Exception as error:
        # Not `format_exc`, which looks for the source files: there are none, and no file system either.
        said = traceback.format_exception_only(error)
        places = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__)]
        said += [f"  {code.co_filename}:{line} in {code.co_name}\n" for code, line in places]
        diagnostics.report("".join(said).rstrip())
        raise


def outcomes() -> list[types.Outcome]:
    return [outcome(said) for said in SentenceScoring.batch.judge()]


def outcome(said: Union[Verdict, Abstention, Ask]) -> types.Outcome:
    if isinstance(said, Ask):
        return types.Outcome_Ask([types.Query(query.text(), query.enough) for query in said.queries])
    if isinstance(said, Abstention):
        return types.Outcome_Abstain(said.why)
    return types.Outcome_Score(types.Verdict(said.reward, said.count, said.triplet, said.note))
