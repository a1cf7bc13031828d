"""The module that ``corver-host plugin build`` compiles: the contract's exports for the sentence rule in the module ``rule``."""

import corver_glue as glue
from rule import rule
from wit_world.exports import SentenceScoring as Contract
from wit_world.imports import types


class SentenceScoring(Contract):
    def describe(self) -> types.Manifest:
        return glue.manifest(rule)

    def configure(self, settings: str) -> None:
        glue.configure(rule, settings)

    def score(self, completions: list[types.Completion], corpus: types.CorpusInfo) -> list[list[types.SentenceOutcome]]:
        sentences = [[glue.sentence(one) for one in completion.sentences] for completion in completions]
        return glue.start(lambda rule: rule.score, sentences, corpus, outcome)

    def resume(self, replies: list[types.Reply]) -> list[list[types.SentenceOutcome]]:
        return glue.resume(replies, outcome)


def outcome(given: glue.Outcome) -> types.SentenceOutcome:
    if isinstance(given, glue.Pending):
        return types.SentenceOutcome_Pending(glue.requests(given))
    if given.reward is None:
        return types.SentenceOutcome_Abstain(given.note)
    credit = glue.credit(given.credit)
    return types.SentenceOutcome_Done(types.Verdict(given.reward, given.count, given.triplet, given.note, credit))
