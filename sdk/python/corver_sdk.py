"""What a reward rule is written with, in Python.

A rule is a dataclass of settings with a method ``score``; a module ``rule.py`` holds it as ``rule``, made by
``sentence_rule``, and ``corver-host plugin build`` compiles that. It is a pure function: it imports nothing from the host,
keeps no state and reads no clock. ``example/rule.py`` is a whole one, ``corver_testing`` runs it without the host. This module
follows ``corver-sdk`` for Rust, name by name.
"""

import math
from copy import copy
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from enum import Enum
from itertools import chain, islice
from typing import Any, Optional, Union, get_args, get_origin, get_type_hints


@dataclass
class Triplet:
    """One fact that a sentence states; the relation may be empty."""

    head: str
    relation: str
    tail: str


class Section(Enum):
    """The block of the completion that a sentence stands in. ``BODY`` is text without think and answer tags."""

    THINK = 0
    ANSWER = 1
    BODY = 2


@dataclass
class Sentence:
    """One sentence of a completion."""

    text: str
    section: Section
    triplets: list[Triplet]


@dataclass
class CorpusSize:
    """How much text the counts come from; ``None`` where the source does not say."""

    tokens: Optional[int] = None
    documents: Optional[int] = None


@dataclass
class Query:
    """Clauses that must all occur near each other, each a list of words of which one is enough. The count matters up to
    ``enough`` only."""

    all_of: list[list[str]]
    enough: Optional[int] = None


@dataclass
class Count:
    """How often a query matched; ``None`` where the corpus cannot answer it."""

    occurrences: Optional[int]
    exact: bool = True


@dataclass
class Verdict:
    """A reward, and the count and the triplet that decided."""

    reward: float
    count: Optional[int] = None
    triplet: Optional[int] = None
    note: Optional[str] = None


@dataclass
class Abstention:
    """Nothing to say about the sentence, and why."""

    why: str


STOP_WORDS = frozenset(
    "a an and are as at be been being but by did do does for from had has have if in is it its no not of on or so the to"
    " was were with".split()
)
PRONOUNS = frozenset(
    "anyone anything everyone everything he her here hers herself him himself his i it its itself me mine my myself"
    " nobody nothing our ours she someone something that their theirs them themselves there these they this those us we"
    " which who whom you your yours yourself".split()
)


class Ask(Exception):
    """The counts that a rule still needs. The host looks them up and calls the rule again."""

    def __init__(self, queries: list[Query]):
        super().__init__(f"{len(queries)} queries")
        self.queries = queries


class Corpus:
    """Answers a sentence's queries with its counts, in order: the first count is the answer to the first query. A query
    beyond them becomes an ``Ask``. A rule starts over whenever more counts are there, so it must put the same queries in the
    same order."""

    def __init__(self, size: CorpusSize, counts: list[Count]):
        self._size = size
        self._counts = iter(counts)

    @property
    def tokens(self) -> Optional[int]:
        """How many tokens the counts come from; ``None`` where the source does not say."""
        return self._size.tokens

    @property
    def documents(self) -> Optional[int]:
        """How many documents the counts come from; ``None`` where the source does not say."""
        return self._size.documents

    def count(self, query: Query) -> Optional[int]:
        """How often ``query`` matches; ``None`` where the corpus cannot answer it."""
        return self.count_all([query])[0]

    def count_all(self, queries: list[Query]) -> list[Optional[int]]:
        """One count per query; all that is missing is asked for at once, which spares rounds."""
        counts = [count.occurrences for count in islice(self._counts, len(queries))]
        if len(counts) < len(queries):
            raise Ask(queries[len(counts) :])
        return counts


class Batch:
    """The completions that a component judges, each a list of sentences, from the contract's ``score`` over every
    ``resume``."""

    def __init__(self, rule: Any, completions: list[list[Sentence]], size: CorpusSize):
        self._rule = rule
        self._size = size
        self._open = [[_Open(sentence) for sentence in sentences] for sentences in completions]

    def reply(self, counts: list[Count]) -> None:
        """Takes the answers to the queries of the last outcomes."""
        replies = iter(counts)
        for one in chain.from_iterable(self._open):
            one.counts += islice(replies, one.asked)

    def judge(self) -> list[list[Union[Verdict, Abstention, Ask]]]:
        """One outcome per sentence of each open completion; those in which a sentence asks stay open."""
        outcomes = [[self._judge(one) for one in completion] for completion in self._open]
        self._open = [completion for completion in self._open if any(one.asked for one in completion)]
        return outcomes

    def _judge(self, one: "_Open") -> Union[Verdict, Abstention, Ask]:
        one.asked = 0
        try:
            return self._rule.score(one.sentence, Corpus(self._size, one.counts))
        except Ask as ask:
            one.asked = len(ask.queries)
            return ask


@dataclass
class _Open:
    """A sentence, its counts so far, and the number of queries that wait for an answer."""

    sentence: Sentence
    counts: list[Count] = field(default_factory=list)
    asked: int = 0


def is_pronoun(entity: str) -> bool:
    """Whether this is a word that names nothing by itself."""
    return entity.strip().lower() in PRONOUNS


def content_words(entity: str) -> list[str]:
    """The capitalised words of an entity; without any, its words of three and more characters; without any, the whole of it.
    Stop words never count."""
    words = [word for word in entity.replace(",", " ").split() if word.lower() not in STOP_WORDS]
    proper = [word for word in words if len(word) > 1 and word[0].isupper()]
    return proper or [word for word in words if len(word) > 2] or [entity.strip()]


def words_query(words: list[str], enough: Optional[int] = None) -> Query:
    """All of these words near each other, each once, however it is capitalised. The count matters up to ``enough``
    only."""
    once: dict[str, str] = {}
    for word in words:
        once.setdefault(word.lower(), word)
    return Query(all_of=[[word] for word in once.values()], enough=enough)


def word_query(triplet: Triplet, enough: Optional[int] = None) -> Optional[Query]:
    """Asks how often the content words of head and tail occur together; ``None`` where they are fewer than two."""
    query = words_query(content_words(triplet.head) + content_words(triplet.tail), enough)
    return query if len(query.all_of) >= 2 else None


def is_valid(triplet: Triplet) -> bool:
    """Whether it names both its ends: neither is blank or a pronoun."""
    return all(end.strip() and not is_pronoun(end) for end in (triplet.head, triplet.tail))


def valid_triplets(sentence: Sentence) -> list[tuple[int, Triplet]]:
    """The valid triplets with their places, in the extractor's order."""
    return [(place, triplet) for place, triplet in enumerate(sentence.triplets) if is_valid(triplet)]


@dataclass
class Tiers:
    """A step function from counts to rewards; the default is the paper's."""

    thresholds: list[int] = field(default_factory=lambda: [5, 20])
    rewards: list[float] = field(default_factory=lambda: [-0.3, -0.1, 0.0, 0.1])

    def validate(self) -> None:
        if any(a >= b for a, b in zip([1] + self.thresholds, self.thresholds)):
            raise ValueError(f"`thresholds` must ascend and start at 2 or above; got {self.thresholds}")
        if len(self.rewards) != len(self.thresholds) + 2:
            raise ValueError(f"`rewards` must have {len(self.thresholds) + 2} entries; got {len(self.rewards)}")

    def reward(self, count: Optional[int]) -> float:
        """What this count earns; an unknown count earns 0."""
        if count is None:
            return 0.0
        return self.rewards[0] if count == 0 else self.rewards[1 + sum(count >= at for at in self.thresholds)]

    def top(self) -> int:
        """The count from which on the reward no longer changes."""
        return self.thresholds[-1] if self.thresholds else 1


def verdict(
    reward: float, triplet: Optional[int] = None, count: Optional[int] = None, note: Optional[str] = None
) -> Verdict:
    """Rewards the sentence, and says which triplet and count decided. The reward must be finite."""
    return Verdict(reward, count, triplet, note)


def abstain(why: str) -> Abstention:
    """Says nothing about the sentence, which then earns 0."""
    return Abstention(why)


@dataclass
class SentenceRule:
    """See ``sentence_rule``."""

    settings: type
    name: str
    version: str

    @property
    def summary(self) -> str:
        """The first line of the settings' docstring."""
        return self.settings.__doc__.strip().split("\n")[0]

    def schema(self) -> dict:
        """The JSON schema of the settings."""
        return _schema(self.settings)

    def configure(self, settings: Any) -> Any:
        """The rule with these settings, a JSON object; ``ValueError`` names the key that is wrong or unknown."""
        return _read(self.settings, settings, "")


def sentence_rule(settings: type, name: str, version: str) -> SentenceRule:
    """A rule: a dataclass of settings whose method ``score(sentence, corpus)`` judges one sentence. The first line of its
    docstring is the rule's summary. ``setting`` makes a field, which needs a default; the dataclass may have a method
    ``validate`` that raises ``ValueError``."""
    return SentenceRule(settings, name, version)


def setting(default: Any, meaning: str) -> Any:
    """A field of a settings dataclass: its default, and what ``corver-host plugin check`` says of it."""
    return field(default_factory=lambda: copy(default), metadata={"description": meaning})


_KINDS = {bool: "boolean", int: "integer", float: "number", str: "string"}


def _schema(kind: Any) -> dict:
    """The JSON schema of a settings dataclass, or of the type of one of its fields."""
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        properties = {
            f.name: {**_schema(hints[f.name]), "default": _plain(_default(f)), **f.metadata} for f in fields(kind)
        }
        schema = {"type": "object", "additionalProperties": False, "properties": properties}
        return {**schema, "description": kind.__doc__} if kind.__doc__ else schema
    if get_origin(kind) is list:
        return {"type": "array", "items": _schema(get_args(kind)[0])}
    if get_origin(kind) is Union:
        return {"anyOf": [{"type": "null"} if part is type(None) else _schema(part) for part in get_args(kind)]}
    return {"type": _KINDS[kind]}


def _default(f: Any) -> Any:
    if f.default is MISSING and f.default_factory is MISSING:
        raise TypeError(f"the setting {f.name} needs a default")
    return f.default if f.default_factory is MISSING else f.default_factory()


def _plain(value: Any) -> Any:
    return {f.name: _plain(getattr(value, f.name)) for f in fields(value)} if is_dataclass(value) else value


def _read(kind: Any, value: Any, path: str) -> Any:
    """A setting from JSON, strictly: an unknown key or a value of another kind is an error that names the key."""
    if is_dataclass(kind):
        return _read_object(kind, value, path)
    if get_origin(kind) is list:
        if not isinstance(value, list):
            raise ValueError(f"{path}: expected a list, got {value!r}")
        return [_read(get_args(kind)[0], item, f"{path}[{i}]") for i, item in enumerate(value)]
    if get_origin(kind) is Union:
        inner = next(part for part in get_args(kind) if part is not type(None))
        return None if value is None else _read(inner, value, path)
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind or (kind is float and not math.isfinite(value)):
        raise ValueError(f"{path}: expected {_KINDS[kind]}, got {value!r}")
    return value


def _read_object(kind: Any, value: Any, path: str) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"{path or 'settings'}: expected a JSON object, got {value!r}")
    hints = get_type_hints(kind)
    known = [f.name for f in fields(kind)]
    within = f"{path}." if path else ""
    for key in value:
        if key not in known:
            raise ValueError(f"{within}{key}: unknown field `{key}`, expected one of {', '.join(known)}")
    settings = kind(**{key: _read(hints[key], item, f"{within}{key}") for key, item in value.items()})
    if hasattr(settings, "validate"):
        try:
            settings.validate()
        except ValueError as error:
            raise ValueError(f"{path}: {error}" if path else str(error)) from None
    return settings
