"""Completions that arrive one at a time, scored in batches.

verl and OpenRLHF ask for one reward per call, many calls at once. Extracting triplets costs far less per completion in a
batch. So whatever arrived while a batch was scored is the next batch; nothing waits for a batch to fill.
"""

from __future__ import annotations

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


class Unreachable(CorverError):
    """Nothing can be scored at present."""


class Scores(Protocol):
    """What scores completions: `corver.Scorer`, or a server (`corver._server.Server`)."""

    def score(self, **batch: Any) -> list[Any]: ...


class Batches:
    """A thread that scores the completions given to `submit`, `most` at a time at most."""

    def __init__(self, scorer: Scores, most: int = 64) -> None:
        self._scorer = scorer
        self._most = most
        self._waiting: queue.SimpleQueue[tuple[Completion, Future]] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="corver-scores", daemon=True).start()

    def submit(self, completion: Completion) -> Future:
        """The score of ``completion``, in time; the future carries the error where there is one."""
        score: Future = Future()
        self._waiting.put((completion, score))
        return score

    def _run(self) -> None:
        while True:
            batch = [self._waiting.get()]
            while len(batch) < self._most and not self._waiting.empty():
                batch.append(self._waiting.get())
            wanted = [entry for entry in batch if entry[1].set_running_or_notify_cancel()]
            for tokenizer in {completion.tokenizer for completion, _ in wanted}:
                self._score([entry for entry in wanted if entry[0].tokenizer == tokenizer])

    def _score(self, batch: list[tuple[Completion, Future]]) -> None:
        try:
            scores = self._scorer.score(**_arguments([completion for completion, _ in batch]))
            earned = list(zip(batch, scores, strict=True))
        except Exception as error:
            # One completion may have broken the rule; the others are paid what they earn.
            if len(batch) > 1 and not isinstance(error, Unreachable):
                for entry in batch:
                    self._score([entry])
                return
            for _, future in batch:
                future.set_exception(error)
        else:
            for (_, future), score in earned:
                future.set_result(score)


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
