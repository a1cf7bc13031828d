"""Client of `corver-host serve` (`/v1/score`), with the interface of `corver.Scorer`."""

from __future__ import annotations

import ipaddress
import itertools
import json
import os
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit
from urllib.request import HTTPErrorProcessor, OpenerDirector, ProxyHandler, Request, build_opener

from corver import CorverError, SettingsError, _native
from corver._batching import Unreachable

#: Transient statuses, as is every 5xx: a retry may succeed.
_TRANSIENT = (408, 429)
#: The completions could not be scored, or the server is broken. The request is sent once more.
_FAILED = 500
#: Status of a request without completions, if token and path are right.
_NO_COMPLETION = 400
_PAUSE_S = 1.0
#: Longest body of a request that a server accepts, bytes (host/serve/src/reward/queue.rs).
_BODY_BYTES = 8 << 20
#: Format that the server requires (host/http/src/token.rs).
_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/=]{1,1024}")


@dataclass(frozen=True)
class ServedScore:
    """Subset of `corver.Score` that trainers need."""

    reward: float
    returns: list[float] | None
    trace: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        return self.trace


class Server:
    """One server, or several that share the work: ``url`` has their addresses, separated by commas.

    A request that fails because a server is busy or down goes to the next one, for ``timeout_s`` seconds in all. Redirects are not
    followed.

    CORVER_TOKEN holds the bearer token; a wrong one is an immediate error. It is refused with the http:// address of another machine.
    """

    def __init__(self, url: str, timeout_s: float = 170.0) -> None:
        token = _token()
        self._addresses = itertools.cycle([_Address.parse(address, token) for address in url.split(",")])
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
        """Scores completions as `corver.Scorer.score` does, except that token ids are decoded here. The request has the exact
        characters of each token, so the server's `reward.compatibility` does not change them. Completions that are too long for one
        request are sent in several.
        """
        decoded: Iterable[tuple[str, list[tuple[int, int] | None] | None]]
        if completion_ids is not None:
            decoded = _native.decode_with_spans(completion_ids, tokenizer)
        else:
            decoded = [(text, None) for text in completions or []]
        records = [
            {"question": question, "answers": golds, "completion": text, "tokens": tokens}
            for question, golds, (text, tokens) in zip(questions, answers, decoded, strict=True)
        ]
        traces: list[dict[str, Any]] = []
        for body in _bodies(records):
            traces += json.loads(self._request(body))["completions"]
        return [ServedScore(trace["mean_return"], trace.get("returns"), trace) for trace in traces]

    def _check(self) -> None:
        """Raises if no request can succeed: the token is wrong, or the server is of another kind."""
        try:
            self._request(_body([]))
        except _Refused as refused:
            if refused.status != _NO_COMPLETION:
                raise

    def _request(self, body: bytes) -> bytes:
        until = time.monotonic() + self._timeout_s
        failed: set[str] = set()
        while True:
            address = next(self._addresses)
            remaining = max(until - time.monotonic(), _PAUSE_S)
            try:
                return address.post("/v1/score", body, remaining)
            except _Refused as refused:
                if not refused.is_transient or address.url in failed:
                    raise
                if refused.status == _FAILED:
                    failed.add(address.url)
                problem = str(refused)
            except (OSError, HTTPException) as error:
                problem = str(error)
            if time.monotonic() + _PAUSE_S > until:
                raise Unreachable(f"no answer from {address.url} within {self._timeout_s:g} s: {problem}")
            time.sleep(_PAUSE_S)


def _bodies(records: list[dict[str, Any]]) -> list[bytes]:
    """Returns the bodies of requests for these records, in order, within the server's limit. A record beyond it has a body of its own."""
    batches: list[list[str]] = [[]]
    num_bytes = len(_body([]))
    for record in records:
        written = json.dumps(record)  # ASCII
        if batches[-1] and num_bytes + len(written) > _BODY_BYTES:
            batches.append([])
            num_bytes = len(_body([]))
        batches[-1].append(written)
        num_bytes += len(written) + len(", ")
    return [_body(batch) for batch in batches]


def _body(records: list[str]) -> bytes:
    """Returns the body of a request for records that are JSON."""
    return ('{"completions": [' + ", ".join(records) + "]}").encode()


class _Refused(CorverError):
    """A server answered with another status than 200."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)  # the message only, so that the error can be pickled
        self.status = status

    @property
    def is_transient(self) -> bool:
        return self.status in _TRANSIENT or self.status >= 500


@dataclass(frozen=True)
class _Address:
    """Address of one server, with the headers and the opener of its requests."""

    url: str
    headers: dict[str, str]
    opener: OpenerDirector

    @classmethod
    def parse(cls, address: str, token: str | None) -> _Address:
        url = address.strip().rstrip("/")
        scheme, is_local = _check_url(url)
        if token is not None and scheme != "https" and not is_local:
            raise SettingsError(f"CORVER_TOKEN would be sent in clear to {url}; use https://, or unset it")
        headers = {"Content-Type": "application/json"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        # A proxy of the environment cannot reach this machine's own servers.
        proxies = [ProxyHandler({})] if is_local else []
        return cls(url, headers, build_opener(_AnyStatus, *proxies))

    def post(self, path: str, body: bytes, timeout_s: float) -> bytes:
        """Returns the answer. Raises _Refused for another status than 200, OSError or HTTPException without an answer."""
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
    """Returns an answer with any status, so that urllib follows no redirect."""

    def http_response(self, request: Any, response: Any) -> Any:
        return response

    https_response = http_response


def _check_url(url: str) -> tuple[str, bool]:
    """Returns the scheme of a server's address, and True if it is this machine. Addresses are logged, so a password is refused."""
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
    """Returns the token in CORVER_TOKEN, or None. An error message does not contain it."""
    token = os.environ.get("CORVER_TOKEN", "").strip()
    if token and not _TOKEN.fullmatch(token):
        raise SettingsError(
            f"CORVER_TOKEN does not hold a token: it has {len(token)} characters; 1 to 1024 letters, digits and -._~+/= are needed"
        )
    return token or None
