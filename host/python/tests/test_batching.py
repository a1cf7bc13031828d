"""Completions that arrive one at a time: batches, and what happens to the rest when one cannot be scored."""

import os
import threading
import traceback
import unittest
from unittest import mock

import corver
from corver._batching import BatchQueue, Completion, Unreachable
from corver._opened import Opened


class Panic(BaseException):
    """In place of pyo3's PanicException."""


class Unhashable:
    """A tokenizer that cannot be hashed."""

    __hash__ = None


class Lengths:
    """Scores a text by its length; waits for `go` before each batch."""

    def __init__(self):
        self.go = threading.Semaphore(0)
        self.batches = []

    def score(self, *, questions, answers, completions=None, completion_ids=None, tokenizer=None):
        self.go.acquire()
        batch = completions if completions is not None else completion_ids
        self.batches.append(batch)
        if "gone" in batch:
            raise Unreachable("nobody answers")
        if "bad" in batch:
            raise ValueError("a bad text")
        if "panic" in batch:
            raise Panic("index out of bounds")
        return [len(completion) for completion in batch]


def submit(batches, text):
    return batches.submit(Completion("", [], text))


class Batching(unittest.TestCase):
    def setUp(self):
        self.scorer = Lengths()
        self.batches = BatchQueue(self.scorer, max_batch=3)
        self.first = submit(self.batches, "first")
        while self.batches._entries.qsize():
            pass  # until it is being scored

    def test_waiting_completions_are_scored_in_batch(self):
        futures = [submit(self.batches, "a" * length) for length in range(5)]
        self.scorer.go.release(3)
        self.assertEqual([future.result(5) for future in futures], [0, 1, 2, 3, 4])
        self.assertEqual(self.scorer.batches, [["first"], ["", "a", "aa"], ["aaa", "aaaa"]])

    def test_texts_and_token_ids_are_not_mixed(self):
        of_ids = self.batches.submit(Completion("", [], token_ids=[7, 8], tokenizer="folder"))
        of_text = submit(self.batches, "abc")
        self.scorer.go.release(3)
        self.assertEqual((of_ids.result(5), of_text.result(5)), (2, 3))

    def test_bad_completion_fails_alone(self):
        good, bad = submit(self.batches, "good"), submit(self.batches, "bad")
        self.scorer.go.release(4)
        self.assertEqual(good.result(5), 4)
        with self.assertRaisesRegex(ValueError, "a bad text"):
            bad.result(5)

    def test_unreachable_server_is_not_retried_per_completion(self):
        futures = [submit(self.batches, text) for text in ("gone", "also")]
        self.scorer.go.release(2)
        for future in futures:
            with self.assertRaisesRegex(Unreachable, "nobody answers"):
                future.result(5)
        self.assertEqual(len(self.scorer.batches), 2)

    def test_panic_fails_batch_but_thread_continues(self):
        futures = [submit(self.batches, text) for text in ("panic", "also")]
        self.scorer.go.release(3)
        for future in futures:
            with self.assertRaisesRegex(corver.CorverError, "broken off: Panic: index out of bounds"):
                future.result(5)
        self.assertEqual(submit(self.batches, "later").result(5), 5)
        self.assertEqual(self.scorer.batches, [["first"], ["panic", "also"], ["later"]])

    def test_unexpected_error_fails_batch_but_thread_continues(self):
        futures = [self.batches.submit(None), submit(self.batches, "also")]
        self.scorer.go.release(2)
        for future in futures:
            with self.assertRaises(AttributeError):
                future.result(5)
        self.assertEqual(submit(self.batches, "later").result(5), 5)

    def test_unhashable_tokenizers_are_grouped_by_identity(self):
        one, other = Unhashable(), Unhashable()
        rows = [([1], one), ([2], other), ([], one)]
        futures = [self.batches.submit(Completion("", [], token_ids=ids, tokenizer=tokenizer)) for ids, tokenizer in rows]
        self.scorer.go.release(3)
        self.assertEqual([future.result(5) for future in futures], [1, 1, 0])
        self.assertEqual(self.scorer.batches[1:], [[[1], []], [[2]]])

    def test_submit_in_forked_process_is_rejected(self):
        self.scorer.go.release()
        process = os.getpid()
        with mock.patch("os.getpid", return_value=process + 1):
            for forbidden in (lambda: submit(self.batches, "text"), self.batches.check_process):
                with self.assertRaisesRegex(corver.CorverError, f"not in its fork {process + 1}; open the scorer there"):
                    forbidden()

    def test_cancelled_completion_is_not_scored(self):
        unwanted, wanted = submit(self.batches, "unwanted"), submit(self.batches, "wanted")
        self.assertTrue(unwanted.cancel())
        self.scorer.go.release(2)
        self.assertEqual(wanted.result(5), 6)
        self.assertEqual(self.scorer.batches, [["first"], ["wanted"]])


class Opening(unittest.TestCase):
    def opened(self, *results):
        """Returns values that open to these results, in order; an error is raised."""
        self.open = mock.Mock(side_effect=results)
        return Opened(self.open)

    def test_error_is_saved_for_a_minute(self):
        opened = self.opened(OSError("no space left"), "scorer")
        frames = []
        with mock.patch("time.monotonic") as clock:
            for clock.return_value in (0.0, 30.0, 59.0):
                try:
                    opened.get({"index": "demo"})
                except OSError as error:
                    frames.append(len(traceback.extract_tb(error.__traceback__)))
            self.assertEqual((self.open.call_count, len(frames), len(set(frames))), (1, 3, 1))
            clock.return_value = 61.0
            self.assertEqual(opened.get({"index": "demo"}), "scorer")

    def test_file_that_appears_is_found_after_a_minute(self):
        opened = self.opened(corver.SettingsError("`corpus.index`: there is no /share/index"), "scorer")
        with mock.patch("time.monotonic") as clock:
            for clock.return_value in (0.0, 59.0):
                with self.assertRaisesRegex(corver.SettingsError, "there is no /share/index"):
                    opened.get({"index": "/share/index"})
            clock.return_value = 61.0
            self.assertEqual(opened.get({"index": "/share/index"}), "scorer")
        self.assertEqual(self.open.call_count, 2)

    def test_saved_error_has_the_place_of_its_cause(self):
        opened = self.opened(OSError("no space left"))
        for _ in range(2):
            try:
                opened.get({"index": "demo"})
            except OSError as error:
                functions = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
            self.assertIn("_open_or_fail", functions)


if __name__ == "__main__":
    unittest.main()
