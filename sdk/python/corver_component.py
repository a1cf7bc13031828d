"""What ``corver-host plugin build`` compiles: the contract's exports around the module ``rule``."""

import json
import traceback
from dataclasses import dataclass, field
from itertools import islice

from componentize_py_types import Err
from corver_sdk import Abstention, Ask, Corpus
from rule import rule
from wit_world.exports import SentenceScoring as Contract
from wit_world.imports import diagnostics, types


@dataclass
class Open:
    """A sentence to judge next, its counts so far, and the number of answers that it waits for."""

    sentence: types.Sentence
    counts: list[types.Count] = field(default_factory=list)
    asked: int = 0


class SentenceScoring(Contract):
    configured = None
    open: list[Open] = []

    def describe(self) -> types.Manifest:
        return types.Manifest(rule.name, rule.version, rule.summary, json.dumps(rule.schema()))

    def configure(self, settings: str) -> None:
        try:
            SentenceScoring.configured = rule.configure(json.loads(settings))
        except ValueError as error:
            raise Err(str(error)) from None

    def score(self, batch: list[types.Sentence]) -> list[types.Outcome]:
        SentenceScoring.open = [Open(sentence) for sentence in batch]
        return self._judge_open()

    def resume(self, counts: list[types.Count]) -> list[types.Outcome]:
        answers = iter(counts)
        for one in SentenceScoring.open:
            one.counts += islice(answers, one.asked)
        return self._judge_open()

    def _judge_open(self) -> list[types.Outcome]:
        """One outcome per open sentence; the completions in which one asks stay open."""
        outcomes = [self._judge(one) for one in SentenceScoring.open]
        asking = set()
        for one, outcome in zip(SentenceScoring.open, outcomes):
            asks = isinstance(outcome, types.Outcome_Ask)
            one.asked = len(outcome.value) if asks else 0
            if asks:
                asking.add(one.sentence.completion)
        SentenceScoring.open = [one for one in SentenceScoring.open if one.sentence.completion in asking]
        return outcomes

    def _judge(self, one: "Open") -> types.Outcome:
        try:
            judgement = SentenceScoring.configured.score(one.sentence, Corpus(one.counts))
        except Ask as ask:
            return types.Outcome_Ask([types.Query(query.all_of, query.enough) for query in ask.queries])
        except Exception:
            # A trap has no words: they go out this way.
            diagnostics.report(traceback.format_exc())
            raise
        if isinstance(judgement, Abstention):
            return types.Outcome_Abstain(judgement.why)
        return types.Outcome_Score(
            types.Verdict(judgement.reward, judgement.count, judgement.triplet, judgement.note)
        )
