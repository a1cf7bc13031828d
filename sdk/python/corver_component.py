"""What ``corver-host plugin build`` compiles: the contract's exports around the module ``rule``."""

import json
import traceback

from componentize_py_types import Err
from corver_sdk import Abstention, Ask, Corpus
from rule import rule
from wit_world.exports import SentenceScoring as Contract
from wit_world.imports import diagnostics, types


class SentenceScoring(Contract):
    configured = None

    def describe(self) -> types.Manifest:
        return types.Manifest(rule.name, rule.version, rule.summary, json.dumps(rule.schema()))

    def configure(self, settings: str) -> None:
        try:
            SentenceScoring.configured = rule.configure(json.loads(settings))
        except ValueError as error:
            raise Err(str(error)) from None

    def score(self, batch: list[types.Sentence]) -> list[types.Outcome]:
        return [self._judge(sentence) for sentence in batch]

    def _judge(self, sentence: types.Sentence) -> types.Outcome:
        try:
            judgement = SentenceScoring.configured.score(sentence, Corpus(sentence))
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
