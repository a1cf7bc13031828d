"""Completions that arrive one at a time, scored in batches.

verl and OpenRLHF ask for one reward per call, many calls at once. Extracting triplets costs far less per completion in a
batch. So whatever arrived while a batch was scored is the next batch; nothing waits for a batch to fill.
"""

from __future__ import annotations

import os
import queue
import threading
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from corver import CorverError


@dataclass(frozen=True)
class Completion:
    """What one call brings: the text, or the token ids with the tokenizer that they are of."""

    question: str
    golds: list[str]
    text: str | None = None
    token_ids: list[int] | None = None
    tokenizer: Any = None


#: A completion, and who waits for its score.
Entry = tuple[Completion, Future]


class Unreachable(CorverError):
    """Nothing can be scored at present."""


class Scores(Protocol):
    """What scores completions: `corver.Scorer`, or a server (`corver._server.Server`)."""

    def score(self, **batch: Any) -> list[Any]: ...


class Batches:
    """A thread that scores the completions given to `submit`, `most` at a time at most.

    It is of the process that made it: in a fork `check_process` and `submit` raise CorverError.
    """

    def __init__(self, scorer: Scores, most: int = 64) -> None:
        self._scorer = scorer
        self._most = most
        self._process = os.getpid()
        self._waiting: queue.SimpleQueue[Entry] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="corver-scores", daemon=True).start()

    def check_process(self) -> None:
        here = os.getpid()
        if here != self._process:
            raise CorverError(
                f"the thread that scores is in process {self._process} and not in its fork {here}; open the scorer there"
            )

    def submit(self, completion: Completion) -> Future:
        """The score of ``completion``, in time; the future carries the error where there is one, always an `Exception`."""
        self.check_process()
        score: Future = Future()
        self._waiting.put((completion, score))
        return score

    def _run(self) -> None:
        while True:
            batch = self._next()
            try:
                wanted = [entry for entry in batch if entry[1].set_running_or_notify_cancel()]
                for same in _by_tokenizer(wanted):
                    self._score(same)
            except BaseException as error:  # so that nobody waits for ever, and the next batch is scored
                _fail(batch, error)

    def _next(self) -> list[Entry]:
        """At least one completion, and what else is there."""
        batch = [self._waiting.get()]
        while len(batch) < self._most and not self._waiting.empty():
            batch.append(self._waiting.get())
        return batch

    def _score(self, batch: list[Entry]) -> None:
        try:
            scores = self._scorer.score(**_arguments([completion for completion, _ in batch]))
            earned = list(zip(batch, scores, strict=True))
        except Unreachable as error:
            _fail(batch, error)
        except Exception as error:
            if len(batch) == 1:
                _fail(batch, error)
                return
            # One completion may have broken the rule; the others are paid what they earn.
            for entry in batch:
                self._score([entry])
        else:
            for (_, future), score in earned:
                future.set_result(score)


def _fail(batch: list[Entry], error: BaseException) -> None:
    """Gives the error to all of a batch that have no result yet. A panic of the host, which is no `Exception`, becomes one."""
    if not isinstance(error, Exception):
        panic, error = error, CorverError(f"scoring was broken off: {type(error).__name__}: {error}")
        error.__cause__ = panic
    for _, future in batch:
        if not future.done():
            future.set_exception(error)


def _by_tokenizer(entries: list[Entry]) -> list[list[Entry]]:
    """The completions of each tokenizer. An object need not be hashable, and is the same only as itself."""
    groups: dict[Any, list[Entry]] = {}
    for entry in entries:
        tokenizer = entry[0].tokenizer
        groups.setdefault(tokenizer if isinstance(tokenizer, str) else id(tokenizer), []).append(entry)
    return list(groups.values())


def _arguments(completions: list[Completion]) -> dict[str, Any]:
    """Of completions that all have the same tokenizer, or none."""
    tokenizer = completions[0].tokenizer
    given = (
        {"completions": [completion.text for completion in completions]}
        if tokenizer is None
        else {"completion_ids": [completion.token_ids for completion in completions], "tokenizer": tokenizer}
    )
    return {
        "questions": [completion.question for completion in completions],
        "answers": [completion.golds for completion in completions],
        **given,
    }
