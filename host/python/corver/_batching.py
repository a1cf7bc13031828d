"""Scores completions that arrive one at a time in batches.

verl and OpenRLHF request one reward per call, in many calls at a time. Extracting triplets costs far less per completion in a
batch. So the completions that arrive while a batch is scored form the next batch; nothing waits for a batch to fill.
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
    """A completion of one call: a text, or token ids with their tokenizer."""

    question: str
    golds: list[str]
    text: str | None = None
    token_ids: list[int] | None = None
    tokenizer: Any = None


#: A completion, and the future of its score.
Entry = tuple[Completion, Future]


class Unreachable(CorverError):
    """No server can be reached at present."""


class BatchScorer(Protocol):
    """Scores completions: `corver.Scorer`, or a server (`corver._server.Server`)."""

    def score(self, **batch: Any) -> list[Any]: ...


class BatchQueue:
    """A thread that scores the completions given to `submit`, in batches of at most `max_batch`.

    It belongs to the process that created it: in a fork `check_process` and `submit` raise CorverError.
    """

    def __init__(self, scorer: BatchScorer, max_batch: int = 64) -> None:
        self._scorer = scorer
        self._max_batch = max_batch
        self._process = os.getpid()
        self._entries: queue.SimpleQueue[Entry] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="corver-scores", daemon=True).start()

    def check_process(self) -> None:
        """Raises CorverError in a fork, in which the thread does not exist."""
        current = os.getpid()
        if current != self._process:
            raise CorverError(
                f"the thread that scores is in process {self._process} and not in its fork {current}; open the scorer there"
            )

    def submit(self, completion: Completion) -> Future:
        """Returns the future of the completion's score. If scoring fails, it raises the error, always an `Exception`."""
        self.check_process()
        score: Future = Future()
        self._entries.put((completion, score))
        return score

    def _run(self) -> None:
        while True:
            batch = self._next_batch()
            try:
                wanted = [entry for entry in batch if entry[1].set_running_or_notify_cancel()]
                for group in _by_tokenizer(wanted):
                    self._score(group)
            except BaseException as error:  # so that no future stays pending, and the next batch is scored
                _fail(batch, error)

    def _next_batch(self) -> list[Entry]:
        """Waits for a completion, and returns it with the others that are queued."""
        batch = [self._entries.get()]
        while len(batch) < self._max_batch and not self._entries.empty():
            batch.append(self._entries.get())
        return batch

    def _score(self, batch: list[Entry]) -> None:
        try:
            scores = self._scorer.score(**_arguments([completion for completion, _ in batch]))
            scored = list(zip(batch, scores, strict=True))
        except Unreachable as error:
            _fail(batch, error)
        except Exception as error:
            if len(batch) == 1:
                _fail(batch, error)
                return
            # One completion may have broken the rule; the others still get their scores.
            for entry in batch:
                self._score([entry])
        else:
            for (_, future), score in scored:
                future.set_result(score)


def _fail(batch: list[Entry], error: BaseException) -> None:
    """Sets the error on every future without a result. A panic of the host, which is no `Exception`, is wrapped in one."""
    if not isinstance(error, Exception):
        panic, error = error, CorverError(f"scoring was broken off: {type(error).__name__}: {error}")
        error.__cause__ = panic
    for _, future in batch:
        if not future.done():
            future.set_exception(error)


def _by_tokenizer(entries: list[Entry]) -> list[list[Entry]]:
    """Groups entries by tokenizer. Objects are compared by identity, since they need not be hashable."""
    groups: dict[Any, list[Entry]] = {}
    for entry in entries:
        tokenizer = entry[0].tokenizer
        groups.setdefault(tokenizer if isinstance(tokenizer, str) else id(tokenizer), []).append(entry)
    return list(groups.values())


def _arguments(completions: list[Completion]) -> dict[str, Any]:
    """Returns the arguments of `score` for completions that all have the same tokenizer, or none."""
    arguments: dict[str, Any] = {
        "questions": [completion.question for completion in completions],
        "answers": [completion.golds for completion in completions],
    }
    tokenizer = completions[0].tokenizer
    if tokenizer is None:
        arguments["completions"] = [completion.text for completion in completions]
    else:
        arguments["completion_ids"] = [completion.token_ids for completion in completions]
        arguments["tokenizer"] = tokenizer
    return arguments
