"""What a score is made of. All of them are named tuples: fields by name or by place."""

from typing import Any, NamedTuple


class Grade(NamedTuple):
    """What judge or format check say of a completion."""

    reward: float
    """What every token earns for it, before the weight."""
    label: str
    """One word; of the built-in judge "GOOD", "BAD" or "NOT_ATTEMPTED"."""
    note: str | None = None
    """The rule's own words."""


class Lookup(NamedTuple):
    """What was asked of the corpus, and the answer."""

    query: str
    """Words that must occur together: "Paris AND France"."""
    occurrences: int | None
    """How often they do; None where the corpus cannot answer."""
    exact: bool
    """False where the number is an estimate, or counting stopped when it was enough."""


class Sentence(NamedTuple):
    """A sentence of a completion, and why it earned what it earned."""

    text: str
    section: str
    """The block that it stood in: "think", "answer", or "body" where the completion has neither."""
    triplets: list[tuple[str, str, str]]
    """The facts found in it: (head, relation, tail)."""
    reward: float | None
    """What its tokens earn, before the weight; None where the rule abstained, which pays nothing. See credit."""
    credit: list[tuple[int, float]] | str | None
    """Which tokens get the reward. None: each earns it. A list: those that hold these characters of the text earn these shares of it.
    "sign": nobody earns it, and the advantages take its sign (`Score.labels`)."""
    count: int | None
    """The count that decided."""
    note: str | None
    """The rule's own words."""
    lookups: list[Lookup]
    """Everything that was asked of the corpus."""
    exchanges: list[dict[str, Any]]
    """Everything else that was asked, with the answer; `kind` is "nli", "chat" or "passages"."""
    tokens: tuple[int, int] | None
    """From its first to past its last token: `ids[slice(*sentence.tokens)]`. Of characters where a text was scored."""


class Baseline(NamedTuple):
    """What the returns of one group of completions are measured against."""

    centre: float
    """Mean reward of the group."""
    spread: float
    """Standard deviation of the rewards: the group's, or the batch's where that is the scale."""
    scale: float | None
    """What centred returns are divided by; None where the group is skipped."""

    def advantage(self, token_return: float, label: int = 0) -> float:
        """The advantage of a token that earned this; a label of 1 or -1, from `Score.labels`, decides its sign."""
        advantage = 0.0 if self.scale is None else (token_return - self.centre) / self.scale
        return -advantage if label * advantage < 0 else advantage


class Question(NamedTuple):
    """A question of the demo."""

    question: str
    answers: list[str]
    """Golds; empty where nobody knows the answer."""


class Demo(NamedTuple):
    """The built-in demo: a fictional encyclopaedia, and two tiny models that know it imperfectly."""

    policy: str
    """A Hugging Face folder: the model to train."""
    extractor: str
    """The folder of the model that reads triplets."""
    train: list[Question]
    eval: list[Question]
    """Phrased in ways that training never shows."""
