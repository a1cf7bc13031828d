"""The client of `corver-host serve`, against servers with answers set by a test, and against a real one."""

import http.server
import json
import os
import pickle
import re
import subprocess
import threading
import time
import unittest
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import corver
from corver import _server
from corver._batching import Unreachable
from corver._server import Server

TOKEN = "0123456789abcdef"
NO_COMPLETION = (400, {}, {"error": "there is no completion"})
SCORED = (200, {}, {"completions": [{"mean_return": 1.5}]})


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.seen.append((self.path, self.headers.get("Authorization"), len(body["completions"])))
        answers = self.server.answers
        status, headers, answer = answers.pop(0) if body["completions"] else self.server.opening
        written = json.dumps(answer).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(written)))
        self.end_headers()
        self.wfile.write(written)

    def log_message(self, *_):
        pass


@contextmanager
def serving(*answers, opening=NO_COMPLETION):
    """Yields a server that answers `opening` to a request without completions, and `answers` to others, in order."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.answers, server.opening, server.seen = list(answers), opening, []
    server.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def environment(**variables):
    inherited = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy") and name != "CORVER_TOKEN"}
    return mock.patch.dict(os.environ, inherited | variables, clear=True)


def score(server):
    return server.score(questions=["q"], answers=[["a"]], completions=["text"])


class Requests(unittest.TestCase):
    def setUp(self):
        for patch in (environment(), mock.patch.object(_server, "_PAUSE_S", 0.01)):
            patch.start()
            self.addCleanup(patch.stop)

    def test_server_answer_becomes_score(self):
        with serving(SCORED) as server:
            (scored,) = score(Server(server.url + "/"))
        self.assertEqual((scored.reward, scored.returns, scored.to_dict()), (1.5, None, {"mean_return": 1.5}))
        self.assertEqual(server.seen, [("/v1/score", None, 0), ("/v1/score", None, 1)])

    def test_transient_status_is_retried_at_next_address(self):
        for status in (408, 429, 502, 503, 504, 507):
            with self.subTest(status), serving((status, {}, "later")) as one, serving(SCORED) as other:
                server = Server(f"{other.url}, {one.url}", timeout_s=5)
                self.assertEqual(score(server)[0].reward, 1.5)
                self.assertEqual([count for _, _, count in one.seen + other.seen], [1, 0, 1])

    def test_retries_end_at_timeout(self):
        with serving(*[(502, {}, "away")] * 1_000) as server, self.assertRaisesRegex(Unreachable, "no answer from .* 502: .*away"):
            score(Server(server.url, timeout_s=0.1))
        self.assertGreater(len(server.seen), 3)

    def test_scoring_failure_is_retried_once(self):
        failed = (500, {}, {"error": "the rule failed"})
        with serving(failed, failed) as server, self.assertRaisesRegex(corver.CorverError, "the rule failed") as caught:
            score(Server(server.url))
        self.assertNotIsInstance(caught.exception, Unreachable, "so that a batch is scored one by one")
        with serving(failed, SCORED) as server:
            self.assertEqual(score(Server(server.url))[0].reward, 1.5)

    def test_permanent_status_is_not_retried(self):
        for status in (400, 401, 404, 413):
            with self.subTest(status), serving((status, {}, "no")) as server:
                with self.assertRaisesRegex(corver.CorverError, f"answers {status}: .*no"):
                    score(Server(server.url))
                self.assertEqual(len(server.seen), 2)

    def test_long_batch_is_sent_in_several_requests(self):
        texts = ["a", "b", "c" * 300, "d" * 300]
        scored = [(200, {}, {"completions": [{"mean_return": reward} for reward in rewards]}) for rewards in ([1, 2], [3], [4])]
        with serving(*scored) as server, mock.patch.object(_server, "_BODY_BYTES", 300):
            scores = Server(server.url).score(questions=["q"] * 4, answers=[["a"]] * 4, completions=texts)
        self.assertEqual([score.reward for score in scores], [1, 2, 3, 4])
        self.assertEqual([count for _, _, count in server.seen], [0, 2, 1, 1])

    def test_body_may_reach_limit_exactly(self):
        records = [{"n": 1}, {"n": 2}]
        whole = json.dumps({"completions": records}).encode()
        with mock.patch.object(_server, "_BODY_BYTES", len(whole)):
            self.assertEqual(_server._bodies(records), [whole])
        with mock.patch.object(_server, "_BODY_BYTES", len(whole) - 1):
            self.assertEqual(len(_server._bodies(records)), 2)

    def test_server_error_can_be_pickled(self):
        with serving((413, {}, "no")) as server, self.assertRaises(corver.CorverError) as caught:
            score(Server(server.url))
        sent = pickle.loads(pickle.dumps(caught.exception))
        self.assertEqual((str(sent), sent.status), (str(caught.exception), 413))

    def test_redirect_is_rejected_without_leaking_token(self):
        for status in (301, 302, 303, 307, 308):
            with self.subTest(status), serving(SCORED) as other, environment(CORVER_TOKEN=TOKEN):
                redirect = (status, {"Location": other.url + "/v1/score"}, "")
                with serving(redirect) as server:
                    opened = Server(server.url)
                    with self.assertRaisesRegex(corver.CorverError, f"answers {status}: a redirect to {other.url}"):
                        score(opened)
                self.assertEqual(other.seen, [], "no other server gets the token")


class Opening(unittest.TestCase):
    def setUp(self):
        patch = environment()
        patch.start()
        self.addCleanup(patch.stop)

    def test_token_is_sent_on_open(self):
        with environment(CORVER_TOKEN=f"{TOKEN}\n"), serving() as server:
            Server(server.url)
        self.assertEqual(server.seen, [("/v1/score", f"Bearer {TOKEN}", 0)])

    def test_wrong_token_or_server_fails_on_open(self):
        for opening in [(401, {}, {"error": "another token"}), (404, {}, {"error": "there is POST /v1/count"})]:
            began = time.monotonic()
            with serving(opening=opening) as server, self.assertRaisesRegex(corver.CorverError, opening[2]["error"]):
                Server(server.url)
            self.assertEqual(len(server.seen), 1)
            self.assertLess(time.monotonic() - began, 5)

    def test_token_requires_https_or_loopback(self):
        with environment(CORVER_TOKEN=TOKEN), mock.patch.object(Server, "_check"):
            for url in ("http://example.org:8765", "http://127.0.0.1.example.org", "http://10.0.0.1", "http://[2001:db8::1]:8765"):
                for urls in (url, f"https://example.org,{url}"):
                    with self.subTest(urls), self.assertRaisesRegex(corver.SettingsError, "in clear"):
                        Server(urls)
            for url in ("https://example.org", "http://127.0.0.2", "http://LocalHost:8765", "http://[::1]:8765"):
                Server(url)
        with mock.patch.object(Server, "_check"):
            Server("http://example.org:8765")  # without a token

    def test_malformed_token_is_rejected_without_leaking(self):
        with environment(CORVER_TOKEN="two\nlines"), self.assertRaisesRegex(corver.SettingsError, "it has 9 char") as caught:
            Server("https://example.org")
        self.assertNotIn("lines", str(caught.exception))

    def test_invalid_server_addresses_are_rejected(self):
        for url in ("", "127.0.0.1:8765", "file:///etc/passwd", "http://", "http://127.0.0.1:1,", "http://me:hidden@127.0.0.1"):
            with self.subTest(url), self.assertRaisesRegex(corver.SettingsError, "address of a server") as caught:
                Server(url)
            self.assertNotIn("hidden", str(caught.exception))

    def test_loopback_requests_bypass_proxy(self):
        with serving() as proxy, environment(http_proxy=proxy.url, HTTP_PROXY=proxy.url):
            with serving() as server:
                Server(server.url)
            self.assertEqual((len(server.seen), proxy.seen), (1, []))
            Server("http://example.invalid")
            self.assertEqual(len(proxy.seen), 1, "but for others it is")


@contextmanager
def real_server():
    """Yields the address of a `corver-host serve` of the demo that requires TOKEN."""
    program = Path(corver.__file__).parent / "bin" / "corver-host"
    command = [program, "serve", "--plugin", "first.wasm", "--listen", "127.0.0.1:0"]
    environment = {**os.environ, "CORVER_TOKEN": TOKEN}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment) as process:
        try:
            lines = iter(process.stdout)
            yield next(found.group() for line in lines if (found := re.search(r"http://127\.0\.0\.1:\d+", line)))
        finally:
            process.terminate()


class Real(unittest.TestCase):
    def test_real_server_requires_matching_token(self):
        with real_server() as url:
            for token, message in [({}, "answers 401: .*requires a bearer token"), ({"CORVER_TOKEN": TOKEN[::-1]}, "401: .*not the one of this server")]:
                with environment(**token), self.assertRaisesRegex(corver.CorverError, message):
                    Server(url, timeout_s=5)
            with environment(CORVER_TOKEN=TOKEN):
                self.assertIsInstance(score(Server(url))[0].reward, float)
                with self.assertRaisesRegex(corver.CorverError, "answers 404"):
                    Server(url + "/elsewhere")

    def test_real_server_refuses_oversized_body_with_413(self):
        texts = ["x" * 120_000] * 100  # 12 MB
        batch = {"questions": ["q"] * 100, "answers": [["a"]] * 100, "completions": texts}
        with real_server() as url, environment(CORVER_TOKEN=TOKEN), mock.patch.object(_server, "_BODY_BYTES", 1 << 30):
            server = Server(url, timeout_s=5)
            with self.assertRaisesRegex(corver.CorverError, "answers 413: .*longer than 8388608 bytes") as caught:
                server.score(**batch)
        self.assertNotIsInstance(caught.exception, Unreachable, "so that a batch is scored one by one")


if __name__ == "__main__":
    unittest.main()
