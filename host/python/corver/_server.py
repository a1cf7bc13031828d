"""`corver-host serve`, asked as a `corver.Scorer` is: its `/v1/score`."""

from __future__ import annotations

import ipaddress
import itertools
import json
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit
from urllib.request import HTTPErrorProcessor, OpenerDirector, ProxyHandler, Request, build_opener

from corver import CorverError, SettingsError, _native
from corver._batching import Unreachable

#: With these, and with every 5xx, a server may answer differently later.
_LATER = (408, 429)
#: The completions could not be scored, or the server is broken. It is asked once more.
_FAILED = 500
#: What a request without completions gets, where token and path are right.
_NO_COMPLETION = 400
_PAUSE_S = 1.0
#: As the server wants it (host/http/src/token.rs).
_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/=]{1,1024}")


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

    One that is busy or does not answer is passed over, for ``timeout_s`` seconds in all. Redirects are not followed.

    CORVER_TOKEN holds the bearer token; a wrong one is an error at once. It is refused with the http:// address of another machine.
    """

    def __init__(self, url: str, timeout_s: float = 170.0) -> None:
        token = _token()
        self._addresses = itertools.cycle([_Address.of(address, token) for address in url.split(",")])
        self._timeout_s = timeout_s
        self._check()

    def score(
        self,
        *,
        questions: list[str],
        answers: list[list[str]],
        completions: list[str] | None = None,
        completion_ids: list[list[int]] | None = None,
        tokenizer: Any = None,
    ) -> list[ServedScore]:
        """As `corver.Scorer.score`, with one difference: token ids are decoded here, and the server is told exactly which
        characters each token stands for, whatever its `reward.compatibility` is.
        """
        texts = ((text, None) for text in completions or [])
        decoded: Iterator = iter(_native.decode(completion_ids, tokenizer)) if completion_ids is not None else texts
        asked = [
            {"question": question, "answers": golds, "completion": text, "tokens": tokens}
            for question, golds, (text, tokens) in zip(questions, answers, decoded, strict=True)
        ]
        answer = json.loads(self._ask(asked))
        return [ServedScore(trace["mean_return"], trace.get("returns"), trace) for trace in answer["completions"]]

    def _check(self) -> None:
        """Raises where nothing can ever be scored: the token is wrong, or another kind of server answers."""
        try:
            self._ask([])
        except _Refused as refused:
            if refused.status != _NO_COMPLETION:
                raise

    def _ask(self, completions: list[dict[str, Any]]) -> bytes:
        body = json.dumps({"completions": completions}).encode()
        until = time.monotonic() + self._timeout_s
        failed: set[str] = set()
        while True:
            address = next(self._addresses)
            left = max(until - time.monotonic(), _PAUSE_S)
            try:
                return address.post("/v1/score", body, left)
            except _Refused as refused:
                if not refused.is_passing or address.url in failed:
                    raise
                if refused.status == _FAILED:
                    failed.add(address.url)
                problem = str(refused)
            except (OSError, HTTPException) as error:
                problem = str(error)
            if time.monotonic() + _PAUSE_S > until:
                raise Unreachable(f"no answer from {address.url} within {self._timeout_s:g} s: {problem}")
            time.sleep(_PAUSE_S)


class _Refused(CorverError):
    """A server's answer is another status than 200."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)  # alone, so that the error can be pickled
        self.status = status

    @property
    def is_passing(self) -> bool:
        return self.status in _LATER or self.status >= 500


@dataclass(frozen=True)
class _Address:
    """Of one server, with what is needed to ask it."""

    url: str
    headers: dict[str, str]
    opener: OpenerDirector

    @classmethod
    def of(cls, address: str, token: str | None) -> _Address:
        url = address.strip().rstrip("/")
        scheme, is_here = _checked(url)
        if token is not None and scheme != "https" and not is_here:
            raise SettingsError(f"CORVER_TOKEN would be sent in clear to {url}; use https://, or unset it")
        headers = {"Content-Type": "application/json"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        # A proxy of the environment cannot reach this machine's own servers.
        proxies = [ProxyHandler({})] if is_here else []
        return cls(url, headers, build_opener(_AnyStatus, *proxies))

    def post(self, path: str, body: bytes, timeout_s: float) -> bytes:
        """The answer. Raises _Refused where it is none, OSError or HTTPException where nobody answers."""
        request = Request(self.url + path, body, self.headers)
        with self.opener.open(request, timeout=timeout_s) as answer:
            read = answer.read()
            if answer.status == 200:
                return read
            problem = read.decode(errors="replace") or answer.reason
            if 300 <= answer.status < 400:
                problem = f"a redirect to {answer.headers.get('Location')}, which is not followed; give the server's own address"
            raise _Refused(f"{self.url}{path} answers {answer.status}: {problem}", answer.status)


class _AnyStatus(HTTPErrorProcessor):
    """Gives out an answer whatever its status is; nothing else of urllib then follows a redirect."""

    def http_response(self, request: Any, response: Any) -> Any:
        return response

    https_response = http_response


def _checked(url: str) -> tuple[str, bool]:
    """The scheme of a server's address, and whether it is this machine. Addresses are logged, so they hold no password."""
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise SettingsError("the address of a server must hold no user or password; a token belongs in CORVER_TOKEN")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SettingsError(f"{url!r} is not the address of a server: it must begin with http:// or https://, and name a host")
    return parts.scheme, _is_loopback(parts.hostname)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _token() -> str | None:
    """Of CORVER_TOKEN. What is wrong with it is told without showing it."""
    token = os.environ.get("CORVER_TOKEN", "").strip()
    if token and not _TOKEN.fullmatch(token):
        raise SettingsError(
            f"CORVER_TOKEN does not hold a token: it has {len(token)} characters; 1 to 1024 letters, digits and -._~+/= are needed"
        )
    return token or None
