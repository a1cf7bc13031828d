"""`corver-host serve`, asked as a `corver.Scorer` is: its `/v1/score`."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from corver import CorverError, _native
from corver._batching import Unreachable

#: A server that is busy or being restarted says 503, or does not answer.
_BUSY = 503
_PAUSE_S = 1.0


@dataclass(frozen=True)
class ServedScore:
    """The part of `corver.Score` that trainers need."""

    reward: float
    returns: list[float] | None
    trace: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        return self.trace


class Server:
    """One server, or several that share the work: addresses with commas between them.

    One that is busy or does not answer is passed over, for ``timeout_s`` seconds in all. CORVER_TOKEN holds the bearer token.
    """

    def __init__(self, url: str, timeout_s: float = 170.0) -> None:
        self._addresses = itertools.cycle([address.strip().rstrip("/") for address in url.split(",")])
        self._timeout_s = timeout_s
        self._ask("/health")

    def score(
        self,
        *,
        questions: list[str],
        answers: list[list[str]],
        completions: list[str] | None = None,
        completion_ids: list[list[int]] | None = None,
        tokenizer: Any = None,
    ) -> list[ServedScore]:
        """As `corver.Scorer.score`; token ids are decoded here, and the server is told which characters each stands for."""
        texts = ((text, None) for text in completions or [])
        decoded: Iterator = iter(_native.decode(completion_ids, tokenizer)) if completion_ids is not None else texts
        asked = [
            {"question": question, "answers": golds, "completion": text, "tokens": tokens}
            for question, golds, (text, tokens) in zip(questions, answers, decoded, strict=True)
        ]
        answer = json.loads(self._ask("/v1/score", json.dumps({"completions": asked}).encode()))
        return [ServedScore(trace["mean_return"], trace.get("returns"), trace) for trace in answer["completions"]]

    def _ask(self, path: str, body: bytes | None = None) -> bytes:
        headers = {"Content-Type": "application/json"}
        if token := os.environ.get("CORVER_TOKEN"):
            headers["Authorization"] = f"Bearer {token}"
        until = time.monotonic() + self._timeout_s
        while True:
            address = next(self._addresses)
            left = max(until - time.monotonic(), _PAUSE_S)
            try:
                with urlopen(Request(address + path, body, headers), timeout=left) as answer:
                    return answer.read()
            except HTTPError as error:
                problem = error.read().decode(errors="replace") or error.reason
                if error.code != _BUSY:
                    raise CorverError(f"{address}{path} answers {error.code}: {problem}") from error
            except (OSError, HTTPException) as error:
                problem = str(error)
            if time.monotonic() + _PAUSE_S > until:
                raise Unreachable(f"no answer from {address} within {self._timeout_s:g} s: {problem}")
            time.sleep(_PAUSE_S)
