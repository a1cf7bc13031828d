"""Scorers that are opened at the first use, once in a process."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import corver
from corver._batching import BatchQueue
from corver._server import Server

T = TypeVar("T")


class Opened(Generic[T]):
    """Values of ``open``, one for each set of arguments. An error on opening is saved and raised again."""

    def __init__(self, open: Callable[..., T]) -> None:
        self._open = open
        self._values: dict[str, T | Exception] = {}
        self._lock = threading.Lock()

    def get(self, arguments: dict[str, Any]) -> T:
        """Returns the value of these arguments, and opens it first if there is none."""
        key = json.dumps(arguments, sort_keys=True, default=str)
        with self._lock:
            if key not in self._values:
                try:
                    self._values[key] = self._open(**arguments)
                except Exception as error:
                    self._values[key] = error
            value = self._values[key]
        if isinstance(value, Exception):
            raise value
        return value


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
