"""What a reward rule is written with, in Python.

A rule is a dataclass of settings with a method ``score``; a module ``rule.py`` holds it as ``rule``, made by
``sentence_rule``, and ``corver-host plugin build`` compiles that. A response rule has a method ``grade``, and ``response.py``
holds it as ``rule``, made by ``response_rule``. A rule is a pure function: it keeps no state, reads no clock, and asks the host
through its ``Corpus`` alone. ``example/rule.py`` is a whole one, ``corver_testing`` runs it without the host. This module follows
``corver-sdk`` for Rust, name by name.
"""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
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
class Completion:
    """One completion, whole. ``answer`` is what stands in the answer block; all of ``text`` where there is none. ``title`` says
    where the answer was found and ``evidence`` holds it, if the question's file says so."""

    question: str
    golds: list[str]
    title: Optional[str]
    evidence: list[str]
    text: str
    answer: str
    sentences: list[Sentence]


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


class Verifier(Enum):
    """What a rule may ask beside counts."""

    NLI = 0
    CHAT = 1
    PASSAGES = 2


@dataclass
class Pair:
    """Does the hypothesis follow from the premise?"""

    premise: str
    hypothesis: str


@dataclass
class Entailment:
    """Probabilities. A model that knows only whether the hypothesis follows gives the first alone."""

    entail: float
    neutral: Optional[float] = None
    contradict: Optional[float] = None


class Role(Enum):
    """Who says a message."""

    SYSTEM = 0
    USER = 1
    ASSISTANT = 2


@dataclass
class Message:
    """One message of a conversation."""

    role: Role
    content: str


@dataclass
class Prompt:
    """A conversation to be continued; ``Prompt.user`` makes one. A prompt that was asked before is answered as before, unless its
    seed is another."""

    messages: list[Message]
    temperature: float = 0.0
    top_p: float = 1.0
    max_tokens: int = 512
    seed: Optional[int] = None

    @staticmethod
    def user(content: str, **how: Any) -> "Prompt":
        """One message of the user, for the most probable reply of at most 512 tokens; ``how`` are other fields."""
        return Prompt([Message(Role.USER, content)], **how)

    @staticmethod
    def tagged(instructions: str, fields: Sequence[tuple[str, str]], **how: Any) -> "Prompt":
        """``Prompt.user`` with the instructions and, below them, each text in the tag of its name: ``<text>Rome is old.</text>``.
        No text can end its field or begin another: the tags of all fields are taken out of it, however they are written
        (``</TEXT >``, ``<text a="b">``)."""
        names = [name for name, _ in fields]
        blocks = [f"<{name}>{_without(names, text)}</{name}>" for name, text in fields]
        return Prompt.user("\n".join([instructions, "", *blocks]), **how)

    def system(self, content: str) -> "Prompt":
        """With a system message before the others."""
        return replace(self, messages=[Message(Role.SYSTEM, content), *self.messages])


@dataclass
class Search:
    """At most ``k`` passages of the corpus, in documents of this title or in all."""

    query: str
    k: int
    title: Optional[str] = None


@dataclass
class Passage:
    """A piece of a document; the title is empty where it has none."""

    title: str
    text: str


# What a rule asks, and what it is answered: a count, an entailment, a chat model's words, passages.
Request = Union[Query, Pair, Prompt, Search]
Reply = Union[Count, Entailment, str, list[Passage]]


@dataclass
class Point:
    """A share of a sentence's reward, for the token that holds this character of its text, counted from 0."""

    character: int
    reward: float


class Sign:
    """The reward is a label: see ``label``."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sign)


@dataclass
class Verdict:
    """A reward, and the count and the triplet that decided. ``credit`` says which tokens get it: every token of the sentence
    (``None``), those of ``points``, or those that ``label`` is about."""

    reward: float
    count: Optional[int] = None
    triplet: Optional[int] = None
    note: Optional[str] = None
    credit: Union[None, list[Point], Sign] = None


@dataclass
class Abstention:
    """Nothing to say about the sentence, and why."""

    why: str


@dataclass
class Grade:
    """A reward for a whole completion, and one word for it."""

    reward: float
    label: str
    note: Optional[str] = None


# Written by sdk/tests/words.rs from the files named.
STOP_WORDS = frozenset(
    [
        # words/stop_words.txt
        "a", "an", "and", "are", "as", "at", "be", "been", "being", "but",
        "by", "did", "do", "does", "for", "from", "had", "has", "have",
        "if", "in", "is", "it", "its", "no", "not", "of", "on", "or",
        "so", "the", "to", "was", "were", "with",
        # end of words/stop_words.txt
    ]
)
PRONOUNS = frozenset(
    [
        # words/pronouns.txt
        "anyone", "anything", "everyone", "everything", "he", "her", "here",
        "hers", "herself", "him", "himself", "his", "i", "it", "its",
        "itself", "me", "mine", "my", "myself", "nobody", "nothing", "our",
        "ours", "she", "someone", "something", "that", "their", "theirs",
        "them", "themselves", "there", "these", "they", "this", "those", "us",
        "we", "which", "who", "whom", "you", "your", "yours", "yourself",
        # end of words/pronouns.txt
    ]
)


class Ask(Exception):
    """The replies that a rule still needs. The host gets them and calls the rule again."""

    def __init__(self, requests: list[Request]):
        super().__init__(f"{len(requests)} questions")
        self.requests = requests


class Corpus:
    """Answers a rule's questions with the replies so far, in order: the first reply is the answer to the first question. A
    question beyond them becomes an ``Ask``. A rule starts over whenever more replies are there, so it must ask the same in the
    same order. Counts are always answered; what else a rule asks, its ``asks`` must name."""

    def __init__(self, size: CorpusSize, replies: list[Reply], requests: list[Request]):
        """``requests`` are those that ``replies`` answer."""
        self._size = size
        self._answered = zip(requests, replies)

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

    def count_all(self, queries: Iterable[Query]) -> list[Optional[int]]:
        """One count per query; all that is missing is asked for at once, which spares rounds."""
        return [count.occurrences for count in self._answers(queries)]

    def entailments(self, pairs: Iterable[Pair]) -> list[Entailment]:
        """What each hypothesis is to its premise, all asked for at once. Needs ``Verifier.NLI``."""
        return self._answers(pairs)

    def chats(self, prompts: Iterable[Prompt]) -> list[str]:
        """What a chat model replies to each prompt, all asked for at once. Needs ``Verifier.CHAT``."""
        return self._answers(prompts)

    def passages(self, searches: Iterable[Search]) -> list[list[Passage]]:
        """The passages of each search, best first, all asked for at once. Needs ``Verifier.PASSAGES``."""
        return self._answers(searches)

    def _answers(self, requests: Iterable[Any]) -> list[Any]:
        requests = list(requests)
        answered = list(islice(self._answered, len(requests)))
        if any(asked != request for (asked, _), request in zip(answered, requests)):
            raise RuntimeError("called again, the rule asks something else than before")
        if len(answered) < len(requests):
            raise Ask(requests[len(answered) :])
        return [reply for _, reply in answered]


class Batch:
    """The completions that a component judges, each a list of what the rule judges of it (its sentences, or itself alone), from
    the contract's first call over every ``resume``. ``decide`` is the rule's ``score`` or ``grade``."""

    def __init__(self, decide: Callable[[Any, Corpus], Any], completions: list[list[Any]], size: CorpusSize):
        self._decide = decide
        self._size = size
        self._open = [[_Open(subject) for subject in subjects] for subjects in completions]

    def reply(self, replies: list[Reply]) -> None:
        """Takes the replies to the requests of the last judgements."""
        all_replies = iter(replies)
        for one in chain.from_iterable(self._open):
            one.replies += islice(all_replies, len(one.requests) - len(one.replies))

    def judge(self) -> list[list[Union[Verdict, Abstention, Grade, Ask]]]:
        """What the rule says of each subject of each open completion; those in which a subject asks stay open."""
        said = [[self._judge(one) for one in completion] for completion in self._open]
        self._open = [completion for completion in self._open if any(one.waits() for one in completion)]
        return said

    def _judge(self, one: "_Open") -> Union[Verdict, Abstention, Grade, Ask]:
        try:
            return self._decide(one.subject, Corpus(self._size, one.replies, one.requests))
        except Ask as ask:
            one.requests += ask.requests
            return ask


@dataclass
class _Open:
    """What is judged, what was asked about it, and the replies so far."""

    subject: Any
    requests: list[Request] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)

    def waits(self) -> bool:
        return len(self.replies) < len(self.requests)


def _without(names: list[str], text: str) -> str:
    """Takes the tags of these names out as they come to their end, so that what is left of the text cannot make up a new one."""
    tag = re.compile(f"</?(?:{'|'.join(map(re.escape, names))})[\\s/>]", re.IGNORECASE)
    enough = max(map(len, names)) + 3
    kept: list[str] = []
    starts: list[int] = []
    for letter in text:
        if letter == "<":
            starts.append(len(kept))
        kept.append(letter)
        while letter == ">" and starts:
            start = starts.pop()
            if tag.match("".join(kept[start : start + enough])):
                del kept[start:]
                break
    return "".join(kept)


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


def points(shares: Iterable[tuple[int, float]], note: Optional[str] = None) -> Verdict:
    """Rewards single tokens of the sentence: those that hold these characters of its text, counted from 0. Shares of one token add
    up."""
    credit = [Point(character, reward) for character, reward in shares]
    return Verdict(math.fsum(point.reward for point in credit), note=note, credit=credit)


def label(is_right: bool, note: Optional[str] = None) -> Verdict:
    """Says whether the sentence is right. Nobody earns anything: after the advantages were normalised, those of the sentence's
    tokens become positive where it is right, and negative where it is wrong."""
    return Verdict(1.0 if is_right else -1.0, note=note, credit=Sign())


def grade(reward: float, label: str, note: Optional[str] = None) -> Grade:
    """A reward for the whole completion, and one word for it, such as GOOD or BROKEN. The reward must be finite."""
    return Grade(reward, label, note)


def abstain(why: str) -> Abstention:
    """Says nothing about the sentence, which then earns 0."""
    return Abstention(why)


@dataclass
class Rule:
    """See ``sentence_rule`` and ``response_rule``."""

    settings: type
    name: str
    version: str
    asks: Sequence[Verifier]
    reads_triplets: bool

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


def sentence_rule(
    settings: type, name: str, version: str, asks: Sequence[Verifier] = (), reads_triplets: bool = True
) -> Rule:
    """A rule: a dataclass of settings whose method ``score(sentence, corpus)`` judges one sentence. The first line of its
    docstring is the rule's summary. ``asks`` is what it asks beside counts; a run that does not grant all of it does not begin.
    A rule that does not look at triplets says ``reads_triplets=False``: where no rule of a run does, nothing is extracted.
    ``setting`` makes a field, which needs a default; the dataclass may have a method ``validate`` that raises ``ValueError``."""
    return Rule(settings, name, version, asks, reads_triplets)


def response_rule(settings: type, name: str, version: str, asks: Sequence[Verifier] = ()) -> Rule:
    """A rule for whole completions, a judge of answers or a check of their format: as ``sentence_rule``, with a method
    ``grade(completion, corpus)``."""
    return Rule(settings, name, version, asks, False)


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
