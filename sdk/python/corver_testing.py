"""Runs a rule without the host, with given counts and replies."""

import math
from dataclasses import dataclass, field, replace
from typing import Any

from corver_sdk import (
    AdvantageSign,
    Capability,
    ChatPrompt,
    Completion,
    Corpus,
    CorpusInfo,
    Count,
    CountMode,
    Credit,
    CreditKind,
    Entailment,
    Grade,
    NliPair,
    Passage,
    Pending,
    Query,
    Reply,
    Request,
    Rule,
    Search,
    Section,
    Sentence,
    TokenReward,
    Triplet,
    Verdict,
)

# The host's default limits.
ROUNDS = 4
REQUESTS_PER_SENTENCE = 64
REQUESTS_PER_COMPLETION = 1024


def sentence(text: str, triplets: list[tuple[str, str, str]]) -> Sentence:
    """Returns a sentence of a think block with these triplets."""
    return Sentence(text, Section.THINK, [Triplet(*triplet) for triplet in triplets])


def response(question: str, golds: list[str], text: str) -> Completion:
    """Returns a completion with its blocks as the host finds them if the answer block follows the think block: the think
    block, which the prompt may have opened, and the answer block, or all of a text without blocks. Each block is one sentence
    here, without triplets; the host splits it."""
    before, opened, rest = text.partition("<answer>")
    answered = rest.partition("</answer>")[0].strip() if opened else None
    opening, opened, thought = before.partition("<think>")
    is_thought = bool(opened) or "</think>" in opening
    think = (thought if opened else opening).partition("</think>")[0] if is_thought else None
    body = text if think is None and answered is None else None
    blocks = [(think, Section.THINK), (answered, Section.ANSWER), (body, Section.BODY)]
    sentences = [Sentence(block.strip(), section, []) for block, section in blocks if block and block.strip()]
    answer = text.strip() if answered is None else answered
    return Completion(question, golds, None, [], text, answer, sentences)


class FakeCorpus:
    """A corpus that has the given replies only: a rule that requests another one fails its test."""

    def __init__(self, known: dict[str, int | None]):
        self.info = CorpusInfo()
        self._counts = known
        self._entailments: dict[str, Entailment] = {}
        self._replies: list[tuple[str, str]] = []
        self._passages: dict[str, list[Passage]] = {}

    def of_size(self, tokens: int, documents: int) -> "FakeCorpus":
        """Sets the size of the corpus, which is unknown otherwise."""
        self.info = replace(self.info, tokens=tokens, documents=documents)
        return self

    def of_window(self, tokens: int) -> "FakeCorpus":
        """Sets the greatest distance between the clauses of a match, tokens. It is unknown otherwise."""
        self.info = replace(self.info, window=tokens)
        return self

    def of_mode(self, mode: CountMode) -> "FakeCorpus":
        """Sets the definition of a match. It is unknown otherwise."""
        self.info = replace(self.info, mode=mode)
        return self

    def entails(self, premise: str, hypothesis: str, probability: float) -> "FakeCorpus":
        """Adds the probability that ``hypothesis`` follows from ``premise``."""
        self._entailments[_printed(NliPair(premise, hypothesis))] = Entailment(probability)
        return self

    def replies(self, part: str, reply: str) -> "FakeCorpus":
        """Adds the reply to prompts whose last message contains ``part``. The first match decides."""
        self._replies.append((part, reply))
        return self

    def finds(self, title: str | None, query: str, texts: list[str]) -> "FakeCorpus":
        """Adds the passages that a search returns, best first, from documents with this title or, with ``None``, from all."""
        passages = [Passage(title or "", text) for text in texts]
        self._passages[_printed(Search(query, len(texts), title))] = passages
        return self

    def reply_to(self, request: Request) -> Reply:
        printed = _printed(request)
        if isinstance(request, Query) and printed in self._counts:
            return Count(self._counts[printed])
        if isinstance(request, NliPair) and printed in self._entailments:
            return self._entailments[printed]
        if isinstance(request, ChatPrompt):
            for part, reply in self._replies:
                if part in request.messages[-1].content:
                    return reply
        if isinstance(request, Search) and printed in self._passages:
            return self._passages[printed][: request.k]
        raise AssertionError(f"the corpus does not have {printed!r}")


def counts(known: dict[str, int | None]) -> FakeCorpus:
    """Returns a corpus with these counts. A query is written as it prints, ``"Paris AND Peru"``; ``None`` is an unknown count."""
    return FakeCorpus(known)


@dataclass
class ScoredSentence:
    """The result of a rule for one sentence, as the host would record it; ``reward`` is ``None`` if the rule abstained."""

    reward: float | None = None
    count: int | None = None
    triplet: int | None = None
    note: str | None = None
    credit: Credit = None
    requests: list[str] = field(default_factory=list)


def run(rule: Rule, sentence: Sentence, corpus: FakeCorpus, settings: Any = None) -> ScoredSentence:
    """Runs the rule on a sentence until it returns a verdict."""
    configured = rule.configure(settings or {})
    verdict, requests = _settle(rule, configured.score, sentence, corpus, REQUESTS_PER_SENTENCE)
    _check(verdict, sentence, rule.credit)
    return ScoredSentence(verdict.reward, verdict.count, verdict.triplet, verdict.note, verdict.credit, requests)


def run_response(rule: Rule, completion: Completion, corpus: FakeCorpus, settings: Any = None) -> Grade:
    """Runs the response rule on a completion until it returns a grade."""
    configured = rule.configure(settings or {})
    grade, _ = _settle(rule, configured.grade, completion, corpus, REQUESTS_PER_COMPLETION)
    assert math.isfinite(grade.reward), f"the reward is {grade.reward}: it must be finite"
    assert len(grade.label.split()) == 1 and grade.label == grade.label.strip(), f"{grade.label!r} is not one word"
    return grade


def _settle(rule: Rule, method: Any, subject: Any, corpus: FakeCorpus, limit: int) -> tuple[Any, list[str]]:
    """Returns the rule's final outcome, and its requests without duplicates."""
    requests: list[Request] = []
    replies: list[Reply] = []
    for _ in range(ROUNDS + 1):
        try:
            outcome = method(subject, Corpus(corpus.info, replies, requests))
        except Pending as pending:
            for request in pending.requests:
                capability = _CAPABILITIES.get(type(request))
                is_allowed = capability is None or capability in rule.requires
                assert is_allowed, f"the rule requests {capability}, which its `requires` does not name"
                if isinstance(request, Query):
                    _check_limit(request.limit)
                replies.append(corpus.reply_to(request))
                requests.append(request)
            assert len(requests) <= limit, f"{len(requests)} requests: at most {limit} are allowed"
            continue
        return outcome, list(dict.fromkeys(map(_printed, requests)))
    raise AssertionError(f"the rule is still pending after {ROUNDS} rounds of replies")


def _check_limit(limit: int | None) -> None:
    is_whole = limit is None or (type(limit) is int and 0 <= limit < 2**64)
    assert is_whole, f"the limit {limit} is not a whole number from 0 below 2**64"


_CAPABILITIES = {NliPair: Capability.NLI, ChatPrompt: Capability.CHAT, Search: Capability.PASSAGES}


def _check(verdict: Verdict, sentence: Sentence, declared: CreditKind) -> None:
    if verdict.reward is None:
        return
    assert math.isfinite(verdict.reward), f"the reward is {verdict.reward}: it must be finite"
    number = len(sentence.triplets)
    assert verdict.triplet is None or 0 <= verdict.triplet < number, f"triplet {verdict.triplet} of {number}"
    assert verdict.count is None or verdict.count >= 0, f"the count is {verdict.count}"
    if verdict.credit is None:
        return
    if isinstance(verdict.credit, AdvantageSign):
        needed = CreditKind.ADVANTAGE_SIGN
    else:
        needed = CreditKind.TOKEN_REWARDS
        _check_token_rewards(verdict.credit, verdict.reward, sentence.text)
    assert needed == declared, f"the verdict has a credit of kind {needed}, and the rule's `credit` is {declared}"


def _check_token_rewards(parts: list[TokenReward], reward: float, text: str) -> None:
    is_inside = all(0 <= part.character < len(text) for part in parts)
    assert is_inside, f"a token reward for a character beyond the {len(text)} of the sentence: {parts}"
    total = math.fsum(part.reward for part in parts)
    assert abs(total - reward) <= 1e-4, f"the token rewards add up to {total}, and the reward is {reward}"


def _printed(request: Request) -> str:
    """Returns a query by itself, any other request after its kind."""
    if isinstance(request, Query):
        return " AND ".join(" OR ".join(words) for words in request.all_of)
    if isinstance(request, NliPair):
        return f"nli: {request.premise} => {request.hypothesis}"
    if isinstance(request, ChatPrompt):
        return f"chat: {request.messages[-1].content}"
    title = "" if request.title is None else f" of {request.title}"
    return f"passages{title}: {request.query}"
