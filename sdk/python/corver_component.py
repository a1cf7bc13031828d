"""What ``corver-host plugin build`` compiles: the contract's exports around the sentence rule in the module ``rule``."""

import corver_glue as glue
from rule import rule
from wit_world.exports import SentenceScoring as Contract
from wit_world.imports import types


class SentenceScoring(Contract):
    def describe(self) -> types.Manifest:
        return glue.described(rule)

    def configure(self, settings: str) -> None:
        glue.configure(rule, settings)

    def score(self, completions: list[types.Completion], corpus: types.CorpusSize) -> list[list[types.Outcome]]:
        sentences = [[glue.sentence(one) for one in completion.sentences] for completion in completions]
        return outcomes(glue.begun(lambda rule: rule.score, sentences, corpus))

    def resume(self, replies: list[types.Reply]) -> list[list[types.Outcome]]:
        return outcomes(glue.resumed(replies))


def outcomes(judged: list[list[glue.Said]]) -> list[list[types.Outcome]]:
    return [[outcome(said) for said in completion] for completion in judged]


def outcome(said: glue.Said) -> types.Outcome:
    if isinstance(said, glue.Ask):
        return types.Outcome_Ask(glue.requests(said))
    if isinstance(said, glue.Abstention):
        return types.Outcome_Abstain(said.why)
    return types.Outcome_Score(
        types.Verdict(said.reward, said.count, said.triplet, said.note, glue.credit(said.credit))
    )
