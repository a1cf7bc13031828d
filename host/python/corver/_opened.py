"""Scorers that are opened at the first use, once in a process."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, TypeVar

import corver
from corver._batching import BatchQueue
from corver._server import Server

T = TypeVar("T")

#: Seconds for which an error on opening is saved: a server may start, a file appear, a disk be emptied.
_SAVE_ERROR_S = 60.0


@dataclass(frozen=True)
class _Failure:
    """An error on opening with its traceback, and the time until which it is raised again."""

    error: Exception
    traceback: TracebackType | None
    until: float


class Opened(Generic[T]):
    """Values of ``open``, one for each set of arguments. An error on opening is saved for a minute and raised again."""

    def __init__(self, open: Callable[..., T]) -> None:
        self._open = open
        self._values: dict[str, T | _Failure] = {}
        self._lock = threading.Lock()

    def get(self, arguments: dict[str, Any]) -> T:
        """Returns the value of these arguments, and opens it first if there is none."""
        key = json.dumps(arguments, sort_keys=True, default=str)
        with self._lock:
            value = self._values.get(key)
            if value is None or (isinstance(value, _Failure) and value.until < time.monotonic()):
                value = self._values[key] = self._open_or_fail(arguments)
        if isinstance(value, _Failure):
            # Each raise would add its frames to the saved traceback.
            raise value.error.with_traceback(value.traceback)
        return value

    def _open_or_fail(self, arguments: dict[str, Any]) -> T | _Failure:
        try:
            return self._open(**arguments)
        except Exception as error:
            return _Failure(error, error.__traceback__, time.monotonic() + _SAVE_ERROR_S)


def _open_queue(**arguments: Any) -> BatchQueue:
    return BatchQueue(Server(**arguments) if "url" in arguments else corver.Scorer(**arguments))


_queues = Opened(_open_queue)
_scorers = Opened(lambda **arguments: corver.Scorer(**arguments))


def batch_queue(arguments: dict[str, Any]) -> BatchQueue:
    """Returns the queue of these arguments: those of `corver.Scorer`, or the ``url`` of a `corver-host serve`.

    Raises CorverError in a fork of the process that opened it.
    """
    queue = _queues.get(arguments)
    queue.check_process()
    return queue


def scorer(arguments: dict[str, Any]) -> corver.Scorer:
    """Returns the scorer of these arguments."""
    return _scorers.get(arguments)
