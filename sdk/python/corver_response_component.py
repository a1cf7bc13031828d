"""What ``corver-host plugin build`` compiles: the contract's exports around the response rule in the module ``response``."""

import corver_glue as glue
from response import rule
from wit_world.exports import ResponseGrading as Contract
from wit_world.imports import types


class ResponseGrading(Contract):
    def describe(self) -> types.Manifest:
        return glue.described(rule)

    def configure(self, settings: str) -> None:
        glue.configure(rule, settings)

    def assess(self, completions: list[types.Completion], corpus: types.CorpusSize) -> list[types.Assessment]:
        subjects = [[glue.completion(one)] for one in completions]
        return assessments(glue.begun(lambda rule: rule.grade, subjects, corpus))

    def resume(self, replies: list[types.Reply]) -> list[types.Assessment]:
        return assessments(glue.resumed(replies))


def assessments(judged: list[list[glue.Said]]) -> list[types.Assessment]:
    return [assessment(said) for [said] in judged]


def assessment(said: glue.Said) -> types.Assessment:
    if isinstance(said, glue.Ask):
        return types.Assessment_Ask(glue.requests(said))
    return types.Assessment_Graded(types.Grade(said.reward, said.label, said.note))
