"""The toolkit for reward rules in Python.

A sentence rule is a dataclass of settings with a method ``score``. The module ``rule.py`` assigns ``sentence_rule(...)`` to
``rule``, and ``corver-host plugin build`` compiles it. A response rule has a method ``grade`` instead; ``response.py`` assigns
``response_rule(...)`` to ``rule``.

A rule is a pure function. It has no state, reads no clock, and sends requests through its ``Corpus`` only. A request without a
reply raises ``Pending``; once the reply is there, the method runs again from its first line. So it must send the same requests
in the same order each time. ``example/rule.py`` is a complete rule, and ``corver_testing`` runs one without the host. The terms
are those of ``corver-sdk`` for Rust.
"""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import KW_ONLY, MISSING, dataclass, field, fields, is_dataclass, replace
from enum import Enum
from itertools import chain, islice
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints


@dataclass
class Triplet:
    """One fact that a sentence states; the relation may be empty."""

    head: str
    relation: str
    tail: str


class Section(Enum):
    """The block of the completion that contains a sentence. ``BODY`` is text without think and answer tags."""

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
    """One completion with all its sentences. ``answer`` is the content of the answer block, or all of ``text`` without one.
    ``title`` and ``evidence`` are the document and texts that hold the answer, if the question file has them."""

    question: str
    golds: list[str]
    title: str | None
    evidence: list[str]
    text: str
    answer: str
    sentences: list[Sentence]

    def answer_block(self) -> str | None:
        """Returns the content of the answer block, trimmed; ``None`` without an ``<answer>``, where ``answer`` is all of
        ``text``."""
        return self.answer if "<answer>" in self.text else None


class CountMode(Enum):
    """The definition of a match of several clauses."""

    COMPATIBLE = 0
    """As the official engine of Infini-gram counts: pairs of neighbouring occurrences. A frequent clause is sampled."""
    EXACT = 1
    """Occurrences of the rarest clause that have all others at most the window away, in their document."""
    SPAN = 2
    """Stretches of at most the window, within one document, that hold all clauses."""


@dataclass
class CorpusInfo:
    """The text behind the counts; ``None`` if the source does not report it."""

    tokens: int | None = None
    documents: int | None = None
    window: int | None = None
    """Greatest distance between the clauses of a match, tokens."""
    mode: CountMode | None = None


@dataclass
class Query:
    """Clauses that must all occur near each other, each a list of alternative words. Counting may stop at ``limit``."""

    all_of: list[list[str]]
    limit: int | None = None


@dataclass
class Count:
    """The number of matches of a query; ``None`` if the corpus cannot answer it."""

    occurrences: int | None


class Capability(Enum):
    """A service that a rule may request in addition to counts."""

    NLI = 0
    CHAT = 1
    PASSAGES = 2


@dataclass
class NliPair:
    """A request for the probability that the hypothesis follows from the premise."""

    premise: str
    hypothesis: str


@dataclass
class Entailment:
    """Probabilities that the hypothesis follows, is open, or is false. ``None`` if the model only separates the first."""

    entail: float
    neutral: float | None = None
    contradict: float | None = None


class ChatRole(Enum):
    """The author of a message."""

    SYSTEM = 0
    USER = 1
    ASSISTANT = 2


@dataclass
class Message:
    """One message of a conversation."""

    role: ChatRole
    content: str


@dataclass
class ChatPrompt:
    """A conversation to continue; ``ChatPrompt.user`` makes one. Replies are cached by prompt; another seed requests another
    reply."""

    messages: list[Message]
    temperature: float = 0.0
    top_p: float = 1.0
    max_tokens: int = 512
    seed: int | None = None

    @staticmethod
    def user(content: str, **options: Any) -> "ChatPrompt":
        """Returns a prompt of one user message, for the most probable reply of at most 512 tokens. ``options`` set other
        fields."""
        return ChatPrompt([Message(ChatRole.USER, content)], **options)

    @staticmethod
    def tagged(instructions: str, fields: Sequence[tuple[str, str]], **options: Any) -> "ChatPrompt":
        """Returns a user message of the instructions, followed by each text in the tag of its name:
        ``<text>Rome is old.</text>``. No text can end its field or start another: the tags of all fields are removed from it,
        in any spelling (``</TEXT >``, ``<text a="b">``)."""
        names = [name for name, _ in fields]
        blocks = [f"<{name}>{_without_tags(names, text)}</{name}>" for name, text in fields]
        return ChatPrompt.user("\n".join([instructions, "", *blocks]), **options)

    def system(self, content: str) -> "ChatPrompt":
        """Puts a system message before the others."""
        return replace(self, messages=[Message(ChatRole.SYSTEM, content), *self.messages])


@dataclass
class Search:
    """A request for at most ``k`` passages of the corpus, from documents with this title or from all."""

    query: str
    k: int
    title: str | None = None


@dataclass
class Passage:
    """A piece of a document; the title is empty if it has none."""

    title: str
    text: str


Request = Query | NliPair | ChatPrompt | Search
Reply = Count | Entailment | str | list[Passage]


@dataclass
class TokenReward:
    """A part of a sentence's reward, for the token that holds this character of its text, counted from 0."""

    character: int
    reward: float


@dataclass
class AdvantageSign:
    """The credit of ``Verdict.advantage_sign``."""


# None: every token of the sentence receives the reward.
Credit = list[TokenReward] | AdvantageSign | None


class CreditKind(Enum):
    """The kind of credit that a rule's verdicts use."""

    ALL_TOKENS = 0
    TOKEN_REWARDS = 1
    ADVANTAGE_SIGN = 2


@dataclass
class Verdict:
    """A rule's decision on one sentence: a finite reward with the count and the triplet that decided, or an abstention
    (``reward`` is ``None``)."""

    reward: float | None
    _: KW_ONLY
    count: int | None = None
    triplet: int | None = None
    note: str | None = None
    credit: Credit = None

    @staticmethod
    def abstain(reason: str) -> "Verdict":
        """Gives no verdict: the sentence's reward is 0. The reason appears in the trace."""
        return Verdict(None, note=reason)

    @staticmethod
    def token_rewards(rewards: Iterable[tuple[int, float]], note: str | None = None) -> "Verdict":
        """Rewards single tokens: those that hold these characters of the sentence's text, counted from 0. Several rewards of
        one token add up. The rule's ``credit`` is ``CreditKind.TOKEN_REWARDS``."""
        credit = [TokenReward(character, reward) for character, reward in rewards]
        return Verdict(math.fsum(part.reward for part in credit), note=note, credit=credit)

    @staticmethod
    def advantage_sign(is_right: bool, note: str | None = None) -> "Verdict":
        """Sets the sign of advantages: positive for the tokens of a right sentence, negative for those of a wrong one, after
        normalisation. No token receives a reward. The rule's ``credit`` is ``CreditKind.ADVANTAGE_SIGN``."""
        return Verdict(1.0 if is_right else -1.0, note=note, credit=AdvantageSign())


@dataclass
class Grade:
    """A finite reward for a completion, and one word for it, such as GOOD or BROKEN."""

    reward: float
    label: str
    note: str | None = None


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


class Pending(BaseException):
    """Requests whose replies a rule needs before it can finish. The host gets the replies and runs the rule again. Not an
    ``Exception``, so that a rule does not catch it by accident."""

    def __init__(self, requests: list[Request]):
        super().__init__(f"{len(requests)} requests")
        self.requests = requests


class Corpus:
    """The host's replies to a rule's requests, in order. A request without a reply raises ``Pending``. Counts are always
    available; every other request needs a capability in the rule's ``requires``."""

    def __init__(self, info: CorpusInfo, replies: list[Reply], requests: list[Request]):
        """``replies`` answer ``requests``, in order."""
        self._info = info
        self._answered = zip(requests, replies)

    @property
    def tokens(self) -> int | None:
        """The size of the corpus, tokens; ``None`` if the source does not report it."""
        return self._info.tokens

    @property
    def documents(self) -> int | None:
        """The number of documents; ``None`` if the source does not report it."""
        return self._info.documents

    @property
    def window(self) -> int | None:
        """The greatest distance between the clauses of a match, tokens; ``None`` if the source does not report it."""
        return self._info.window

    @property
    def mode(self) -> CountMode | None:
        """The definition of a match of several clauses; ``None`` if the source does not report it."""
        return self._info.mode

    def count(self, query: Query) -> int | None:
        """Returns the number of matches; ``None`` if the corpus cannot answer the query."""
        return self.count_all([query])[0]

    def count_all(self, queries: Iterable[Query]) -> list[int | None]:
        """Returns one count per query. Missing replies are requested together, in one round; equal queries are one request."""
        return [count.occurrences for count in self._answers(queries)]

    def entailments(self, pairs: Iterable[NliPair]) -> list[Entailment]:
        """Returns the entailment of each pair. Needs ``Capability.NLI``."""
        return self._answers(pairs)

    def chats(self, prompts: Iterable[ChatPrompt]) -> list[str]:
        """Returns a chat model's reply to each prompt. Needs ``Capability.CHAT``."""
        return self._answers(prompts)

    def passages(self, searches: Iterable[Search]) -> list[list[Passage]]:
        """Returns the passages of each search, best first. Needs ``Capability.PASSAGES``."""
        return self._answers(searches)

    def _answers(self, requests: Iterable[Any]) -> list[Any]:
        requests = list(requests)
        # Equal requests are sent once: an extractor repeats facts, and a sentence has a limit.
        distinct: list[Any] = []
        for request in requests:
            if request not in distinct:
                distinct.append(request)
        answered = list(islice(self._answered, len(distinct)))
        if any(earlier != request for (earlier, _), request in zip(answered, distinct)):
            raise RuntimeError("run again, the rule sends another request than before")
        if len(answered) < len(distinct):
            raise Pending(distinct[len(answered) :])
        return [answered[distinct.index(request)][1] for request in requests]


class Batch:
    """The completions of a component's batch, from the first call through every ``resume``. Each is a list of subjects: its
    sentences for a sentence rule, itself for a response rule. ``method`` is the rule's ``score`` or ``grade``."""

    def __init__(self, method: Callable[[Any, Corpus], Any], completions: list[list[Any]], info: CorpusInfo):
        self._method = method
        self._info = info
        self._open = [[_Subject(subject) for subject in subjects] for subjects in completions]

    def reply(self, replies: list[Reply]) -> None:
        """Adds the replies to the pending requests, in their order."""
        all_replies = iter(replies)
        for one in chain.from_iterable(self._open):
            one.replies += islice(all_replies, len(one.requests) - len(one.replies))

    def run(self) -> list[list[Verdict | Grade | Pending]]:
        """Returns the rule's outcome for each subject of each open completion. A completion with a pending subject stays
        open."""
        outcomes = [[self._run(subject) for subject in subjects] for subjects in self._open]
        self._open = [subjects for subjects in self._open if any(subject.is_pending() for subject in subjects)]
        return outcomes

    def _run(self, subject: "_Subject") -> Verdict | Grade | Pending:
        try:
            return self._method(subject.given, Corpus(self._info, subject.replies, subject.requests))
        except Pending as pending:
            subject.requests += pending.requests
            return pending


@dataclass
class _Subject:
    """A sentence or completion, with the requests and replies so far."""

    given: Any
    requests: list[Request] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)

    def is_pending(self) -> bool:
        return len(self.replies) < len(self.requests)


def _without_tags(names: list[str], text: str) -> str:
    """Removes the tags of these names. A tag is removed where it ends, so that the rest of the text cannot form a new one."""
    tag = re.compile(f"</?(?:{'|'.join(map(re.escape, names))})[\\s/>]", re.IGNORECASE)
    longest = max(map(len, names)) + 3
    cleaned: list[str] = []
    starts: list[int] = []
    for letter in text:
        if letter == "<":
            starts.append(len(cleaned))
        cleaned.append(letter)
        while letter == ">" and starts:
            start = starts.pop()
            if tag.match("".join(cleaned[start : start + longest])):
                del cleaned[start:]
                break
    return "".join(cleaned)


def is_pronoun(entity: str) -> bool:
    """Returns true for a pronoun, which names nothing by itself."""
    return entity.strip().lower() in PRONOUNS


def content_words(entity: str) -> list[str]:
    """Returns the words of an entity for queries: its capitalised words; without any, its words of three characters or more;
    without any, all of it. Stop words are left out."""
    words = [word for word in entity.replace(",", " ").split() if word.lower() not in STOP_WORDS]
    proper = [word for word in words if len(word) > 1 and word[0].isupper()]
    return proper or [word for word in words if len(word) > 2] or [entity.strip()]


def query_all(words: list[str], limit: int | None = None) -> Query:
    """Returns the query for all of these words near each other. Words that differ in capitals only are taken once."""
    once: dict[str, str] = {}
    for word in words:
        once.setdefault(word.lower(), word)
    return Query(all_of=[[word] for word in once.values()], limit=limit)


def word_query(triplet: Triplet, limit: int | None = None) -> Query | None:
    """Returns the query for the content words of head and tail; ``None`` if they are fewer than two."""
    query = query_all(content_words(triplet.head) + content_words(triplet.tail), limit)
    return query if len(query.all_of) >= 2 else None


def is_valid(triplet: Triplet) -> bool:
    """Returns true if both head and tail name something: neither is blank or a pronoun."""
    return all(end.strip() and not is_pronoun(end) for end in (triplet.head, triplet.tail))


def valid_triplets(sentence: Sentence) -> list[tuple[int, Triplet]]:
    """Returns the valid triplets with their indices, in the extractor's order."""
    return [(index, triplet) for index, triplet in enumerate(sentence.triplets) if is_valid(triplet)]


def first_valid_triplet(sentence: Sentence) -> tuple[int, Triplet] | None:
    """Returns the first valid triplet with its index."""
    return next(iter(valid_triplets(sentence)), None)


# The smallest number that is infinite as a 32-bit float, which is what a verdict carries.
_FLOAT32_END = 2.0**128 - 2.0**103


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
        for reward in self.rewards:
            if not abs(reward) < _FLOAT32_END:  # so that NaN is refused, too
                raise ValueError(f"`rewards` must be finite 32-bit numbers; got {reward}")

    def reward(self, count: int | None) -> float:
        """Returns the reward of a count; 0 for an unknown count."""
        if count is None:
            return 0.0
        return self.rewards[0] if count == 0 else self.rewards[1 + sum(count >= at for at in self.thresholds)]

    def top(self) -> int:
        """Returns the lowest count of the highest tier."""
        return self.thresholds[-1] if self.thresholds else 1


@dataclass
class Rule:
    """A rule with its manifest; ``sentence_rule`` and ``response_rule`` make one."""

    settings: type
    name: str
    version: str
    requires: Sequence[Capability]
    reads_triplets: bool
    credit: CreditKind

    @property
    def summary(self) -> str:
        """The first line of the class's docstring."""
        return self.settings.__doc__.strip().split("\n")[0]

    def schema(self) -> dict:
        """Returns the JSON schema of the settings."""
        return _schema(self.settings)

    def configure(self, settings: Any) -> Any:
        """Returns the rule with these settings, a JSON object; ``ValueError`` names the key that is wrong or unknown."""
        return _read(self.settings, settings, "")


def sentence_rule(
    settings: type,
    name: str,
    version: str,
    requires: Sequence[Capability] = (),
    reads_triplets: bool = True,
    credit: CreditKind = CreditKind.ALL_TOKENS,
) -> Rule:
    """Returns a sentence rule: a dataclass of settings whose method ``score(sentence, corpus)`` returns a ``Verdict``. The first
    line of its docstring is the rule's summary. A run that does not grant all of ``requires``, or cannot use ``credit``, does not
    start. If no rule of a run reads triplets, nothing is extracted. ``setting`` makes a field, which needs a default; the
    dataclass may have a method ``validate`` that raises ``ValueError``, but accepts the defaults."""
    return Rule(settings, name, version, requires, reads_triplets, credit)


def response_rule(settings: type, name: str, version: str, requires: Sequence[Capability] = ()) -> Rule:
    """Returns a response rule, an answer judge or a format check: as ``sentence_rule``, with a method
    ``grade(completion, corpus)`` that returns a ``Grade``."""
    return Rule(settings, name, version, requires, False, CreditKind.ALL_TOKENS)


def setting(default: Any, meaning: str) -> Any:
    """Returns a field of a settings dataclass, with its default and its description in ``corver-host plugin check``. Its type
    is ``bool``, ``int``, ``float``, ``str``, a dataclass, a list of one of these, or one of these or ``None``."""
    return field(default_factory=lambda: copy(default), metadata={"description": meaning})


_KINDS = {bool: "boolean", int: "integer", float: "number", str: "string"}


def _schema(kind: Any) -> dict:
    """Returns the JSON schema of a settings dataclass, or of the type of one of its fields."""
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        properties = {
            f.name: {**_schema(hints[f.name]), "default": _plain(_default(f)), **f.metadata} for f in fields(kind)
        }
        schema = {"type": "object", "additionalProperties": False, "properties": properties}
        return {**schema, "description": kind.__doc__} if kind.__doc__ else schema
    if get_origin(kind) is list:
        return {"type": "array", "items": _schema(get_args(kind)[0])}
    if get_origin(kind) in (UnionType, Union):
        return {"anyOf": [{"type": "null"} if part is type(None) else _schema(part) for part in get_args(kind)]}
    if kind not in _KINDS:
        kinds = "bool, int, float, str, a dataclass, a list of one of these, or one of these or None"
        raise TypeError(f"a setting is {kinds}; got {kind}")
    return {"type": _KINDS[kind]}


def _default(f: Any) -> Any:
    if f.default is MISSING and f.default_factory is MISSING:
        raise TypeError(f"the setting {f.name} needs a default")
    return f.default if f.default_factory is MISSING else f.default_factory()


def _plain(value: Any) -> Any:
    return {f.name: _plain(getattr(value, f.name)) for f in fields(value)} if is_dataclass(value) else value


def _read(kind: Any, value: Any, path: str) -> Any:
    """Returns a setting from JSON. An unknown key or a value of another kind is an error that names the key."""
    if is_dataclass(kind):
        return _read_object(kind, value, path)
    if get_origin(kind) is list:
        if not isinstance(value, list):
            raise ValueError(f"{path}: expected a list, got {value!r}")
        return [_read(get_args(kind)[0], item, f"{path}[{i}]") for i, item in enumerate(value)]
    if get_origin(kind) in (UnionType, Union):
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
