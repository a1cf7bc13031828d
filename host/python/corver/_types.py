"""Parts of a score. All of them are named tuples: fields have a name and an index."""

from typing import Any, Literal, NamedTuple


class Grade(NamedTuple):
    """Result of the answer judge or the format check."""

    reward: float
    """Reward of the completion, before its weight."""
    label: str
    """One word; the built-in judge's are "GOOD", "BAD" and "NOT_ATTEMPTED"."""
    note: str | None = None
    """Explanation by the rule."""


class Lookup(NamedTuple):
    """Query of the corpus, with its count."""

    query: str
    """Words that must occur together: "Paris AND France"."""
    occurrences: int | None
    """Number of matches; None if the corpus cannot count them."""
    precision: Literal["exact", "at_least", "estimate"]
    """Relation to the true number. at_least: counting stopped at the limit of the query. estimate: scaled up from a sample."""


class Sentence(NamedTuple):
    """Sentence of a completion, with the rule's verdict."""

    text: str
    section: str
    """Block that contains it: "think", "answer", or "body" in a completion without blocks."""
    triplets: list[tuple[str, str, str]]
    """Extracted facts: (head, relation, tail)."""
    reward: float | None
    """Reward of its tokens, before the weight; None if the rule abstained, which counts as 0. See credit."""
    credit: list[tuple[int, float]] | str | None
    """Tokens that receive the reward. None: every token. A list of (character, reward): the token that holds the character, each
    its own reward. "advantage_sign": no token; the advantages take the sign of the reward (`Score.advantage_signs`)."""
    count: int | None
    """Count that decided the verdict."""
    note: str | None
    """Explanation by the rule."""
    lookups: list[Lookup]
    """Queries of the corpus that the rule requested."""
    exchanges: list[dict[str, Any]]
    """Other requests of the rule, with the replies; `kind` is "nli", "chat" or "passages"."""
    tokens: tuple[int, int] | None
    """Token span, half-open: `ids[slice(*sentence.tokens)]`. Counts characters if a text was scored."""


class Baseline(NamedTuple):
    """Baseline of the returns of one group of completions."""

    centre: float
    """Mean reward of the group."""
    spread: float
    """Standard deviation of the rewards: the group's, or the batch's if that is the scale."""
    scale: float | None
    """Divisor of the centred returns; None if the group is skipped."""

    def advantage(self, token_return: float, sign: int = 0) -> float:
        """Returns the advantage of a token with this return; a sign of 1 or -1 replaces that of the advantage."""
        advantage = 0.0 if self.scale is None else (token_return - self.centre) / self.scale
        return -advantage if sign * advantage < 0 else advantage


class Question(NamedTuple):
    """Question of the demo."""

    question: str
    answers: list[str]
    """Golds; empty if the question has no answer."""


class Demo(NamedTuple):
    """The built-in demo: a fictional encyclopaedia, and two tiny models that know it imperfectly."""

    policy: str
    """Hugging Face folder of the model to train."""
    extractor: str
    """Folder of the model that reads triplets."""
    train: list[Question]
    eval: list[Question]
    """Questions in wordings that the training questions do not have."""
