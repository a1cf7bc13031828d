"""Runs a rule without the host, against counts given by hand."""

import math
from dataclasses import dataclass, field
from typing import Any, Optional

from corver_sdk import Abstention, Ask, Corpus, CorpusSize, Count, Query, Section, Sentence, SentenceRule, Triplet

ROUNDS = 4  # what the host allows by default


def sentence(text: str, triplets: list[tuple[str, str, str]]) -> Sentence:
    """A sentence of a think block with these triplets."""
    return Sentence(text, Section.THINK, [Triplet(*triplet) for triplet in triplets])


@dataclass
class Judged:
    """What the host would record of one sentence; ``reward`` is ``None`` where the rule abstained."""

    reward: Optional[float] = None
    count: Optional[int] = None
    triplet: Optional[int] = None
    note: Optional[str] = None
    asked: list[str] = field(default_factory=list)


def run(
    rule: SentenceRule,
    sentence: Sentence,
    counts: dict[str, Optional[int]],
    settings: Any = None,
    size: CorpusSize = CorpusSize(),
) -> Judged:
    """Calls the rule as the host would, until it judges. The corpus has this size and answers exactly these queries, each
    written as it prints: ``"Paris AND Peru"``; ``None`` where it cannot answer."""
    configured = rule.configure(settings or {})
    asked: list[Query] = []
    for _ in range(ROUNDS + 1):
        known = [Count(counts[_printed(query)]) for query in asked]
        try:
            judgement = configured.score(sentence, Corpus(size, known))
        except Ask as ask:
            for query in ask.queries:
                assert _printed(query) in counts, f"the corpus does not hold {_printed(query)!r}"
            asked += ask.queries
            continue
        printed = [_printed(query) for query in asked]
        if isinstance(judgement, Abstention):
            return Judged(note=judgement.why, asked=printed)
        assert math.isfinite(judgement.reward), f"the reward is {judgement.reward}: it must be finite"
        return Judged(judgement.reward, judgement.count, judgement.triplet, judgement.note, printed)
    raise AssertionError(f"the rule still asks after {ROUNDS} rounds of answers")


def _printed(query: Query) -> str:
    return " AND ".join(" OR ".join(words) for words in query.all_of)
