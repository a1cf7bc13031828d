"""The module that ``corver-host plugin build`` compiles: the contract's exports for the response rule in the module ``response``."""

import corver_glue as glue
from response import rule
from wit_world.exports import ResponseGrading as Contract
from wit_world.imports import types


class ResponseGrading(Contract):
    def describe(self) -> types.Manifest:
        return glue.manifest(rule)

    def configure(self, settings: str) -> None:
        glue.configure(rule, settings)

    def grade(self, completions: list[types.Completion], corpus: types.CorpusInfo) -> list[types.ResponseOutcome]:
        subjects = [[glue.completion(one)] for one in completions]
        return [one for [one] in glue.start(lambda rule: rule.grade, subjects, corpus, outcome)]

    def resume(self, replies: list[types.Reply]) -> list[types.ResponseOutcome]:
        return [one for [one] in glue.resume(replies, outcome)]


def outcome(given: glue.Outcome) -> types.ResponseOutcome:
    if isinstance(given, glue.Pending):
        return types.ResponseOutcome_Pending(glue.requests(given))
    return types.ResponseOutcome_Done(types.Grade(given.reward, given.label, given.note))
