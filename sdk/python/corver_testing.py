"""Runs a rule without the host, against answers given by hand."""

import math
from dataclasses import dataclass, field
from typing import Any, Optional, Union

from corver_sdk import (
    Abstention,
    Ask,
    Completion,
    Corpus,
    CorpusSize,
    Count,
    Entailment,
    Grade,
    Pair,
    Passage,
    Point,
    Prompt,
    Query,
    Reply,
    Request,
    Rule,
    Search,
    Section,
    Sentence,
    Sign,
    Triplet,
    Verifier,
)

# What the host allows by default.
ROUNDS = 4
QUESTIONS_PER_SENTENCE = 64
QUESTIONS_PER_COMPLETION = 1024


def sentence(text: str, triplets: list[tuple[str, str, str]]) -> Sentence:
    """A sentence of a think block with these triplets."""
    return Sentence(text, Section.THINK, [Triplet(*triplet) for triplet in triplets])


def response(question: str, golds: list[str], text: str) -> Completion:
    """A completion as the host cuts it: the think block, which the prompt may have opened, and the answer block, or all of a text
    without blocks. Each is one sentence here, where the host cuts it into its own; none has triplets."""
    before, opened, rest = text.partition("<answer>")
    answered = rest.partition("</answer>")[0].strip() if opened else None
    opening, opened, thought = before.partition("<think>")
    is_thought = bool(opened) or "</think>" in opening
    think = (thought if opened else opening).partition("</think>")[0] if is_thought else None
    body = text if think is None and answered is None else None
    blocks = [(think, Section.THINK), (answered, Section.ANSWER), (body, Section.BODY)]
    sentences = [Sentence(said.strip(), section, []) for said, section in blocks if said and said.strip()]
    answer = text.strip() if answered is None else answered
    return Completion(question, golds, None, [], text, answer, sentences)


class FakeCorpus:
    """See ``counts``. What is not told is not known: a rule that asks it fails its test."""

    def __init__(self, known: dict[str, Optional[int]]):
        self.size = CorpusSize()
        self._counts = known
        self._entailments: dict[str, Entailment] = {}
        self._replies: list[tuple[str, str]] = []
        self._passages: dict[str, list[Passage]] = {}

    def of_size(self, tokens: int, documents: int) -> "FakeCorpus":
        """A corpus of so many tokens and documents; without this, both are unknown."""
        self.size = CorpusSize(tokens, documents)
        return self

    def entails(self, premise: str, hypothesis: str, probability: float) -> "FakeCorpus":
        """``hypothesis`` follows from ``premise`` with this probability."""
        self._entailments[_printed(Pair(premise, hypothesis))] = Entailment(probability)
        return self

    def replies(self, part: str, reply: str) -> "FakeCorpus":
        """A prompt whose last message holds ``part`` is replied to like this. What was told first decides."""
        self._replies.append((part, reply))
        return self

    def finds(self, title: Optional[str], query: str, texts: list[str]) -> "FakeCorpus":
        """A search finds these texts, best first, all of documents with this title, or of any where it is ``None``."""
        passages = [Passage(title or "", text) for text in texts]
        self._passages[_printed(Search(query, len(texts), title))] = passages
        return self

    def answer(self, request: Request) -> Reply:
        printed = _printed(request)
        if isinstance(request, Query) and printed in self._counts:
            return Count(self._counts[printed])
        if isinstance(request, Pair) and printed in self._entailments:
            return self._entailments[printed]
        if isinstance(request, Prompt):
            for part, reply in self._replies:
                if part in request.messages[-1].content:
                    return reply
        if isinstance(request, Search) and printed in self._passages:
            return self._passages[printed][: request.k]
        raise AssertionError(f"the corpus does not hold {printed!r}")


def counts(known: dict[str, Optional[int]]) -> FakeCorpus:
    """A corpus in which exactly these queries can be asked, each written as it prints: ``"Paris AND Peru"``; ``None`` where it
    cannot answer."""
    return FakeCorpus(known)


@dataclass
class Judged:
    """What the host would record of one sentence; ``reward`` is ``None`` where the rule abstained."""

    reward: Optional[float] = None
    count: Optional[int] = None
    triplet: Optional[int] = None
    note: Optional[str] = None
    credit: Union[None, list[Point], Sign] = None
    asked: list[str] = field(default_factory=list)


def run(rule: Rule, sentence: Sentence, corpus: FakeCorpus, settings: Any = None) -> Judged:
    """Calls the rule as the host would, until it judges."""
    configured = rule.configure(settings or {})
    said, asked = _settle(rule, configured.score, sentence, corpus, QUESTIONS_PER_SENTENCE)
    if isinstance(said, Abstention):
        return Judged(note=said.why, asked=asked)
    assert math.isfinite(said.reward), f"the reward is {said.reward}: it must be finite"
    if isinstance(said.credit, list):
        _check_points(said.credit, said.reward, sentence.text)
    return Judged(said.reward, said.count, said.triplet, said.note, said.credit, asked)


def run_response(rule: Rule, completion: Completion, corpus: FakeCorpus, settings: Any = None) -> Grade:
    """Calls the response rule as the host would, until it grades."""
    configured = rule.configure(settings or {})
    grade, _ = _settle(rule, configured.grade, completion, corpus, QUESTIONS_PER_COMPLETION)
    assert math.isfinite(grade.reward), f"the reward is {grade.reward}: it must be finite"
    assert len(grade.label.split()) == 1 and grade.label == grade.label.strip(), f"{grade.label!r} is not one word"
    return grade


def _settle(rule: Rule, decide: Any, subject: Any, corpus: FakeCorpus, questions: int) -> tuple[Any, list[str]]:
    """What the rule says in the end, and what it asked, each once."""
    requests: list[Request] = []
    replies: list[Reply] = []
    for _ in range(ROUNDS + 1):
        try:
            said = decide(subject, Corpus(corpus.size, replies, requests))
        except Ask as ask:
            for request in ask.requests:
                verifier = _VERIFIERS.get(type(request))
                may_ask = verifier is None or verifier in rule.asks
                assert may_ask, f"the rule asks {verifier}, which its `asks` does not name"
                replies.append(corpus.answer(request))
                requests.append(request)
            assert len(requests) <= questions, f"{len(requests)} questions: at most {questions} are allowed"
            continue
        return said, list(dict.fromkeys(map(_printed, requests)))
    raise AssertionError(f"the rule still asks after {ROUNDS} rounds of answers")


_VERIFIERS = {Pair: Verifier.NLI, Prompt: Verifier.CHAT, Search: Verifier.PASSAGES}


def _check_points(points: list[Point], reward: float, text: str) -> None:
    is_there = all(0 <= point.character < len(text) for point in points)
    assert is_there, f"the verdict pays a character beyond the {len(text)} of the sentence: {points}"
    total = math.fsum(point.reward for point in points)
    assert abs(total - reward) <= 1e-4, f"the shares add up to {total}, and the reward is {reward}"


def _printed(request: Request) -> str:
    """A query by itself, anything else after its kind."""
    if isinstance(request, Query):
        return " AND ".join(" OR ".join(words) for words in request.all_of)
    if isinstance(request, Pair):
        return f"nli: {request.premise} => {request.hypothesis}"
    if isinstance(request, Prompt):
        return f"chat: {request.messages[-1].content}"
    title = "" if request.title is None else f" of {request.title}"
    return f"passages{title}: {request.query}"
