"""Completions that arrive one at a time: batches, and what happens to the rest when one cannot be scored."""

import threading
import unittest

from corver._batching import Batches, Completion, Unreachable


class Lengths:
    """Scores a text by its length; waits for `go` before each batch."""

    def __init__(self):
        self.go = threading.Semaphore(0)
        self.batches = []

    def score(self, *, questions, answers, completions=None, completion_ids=None, tokenizer=None):
        self.go.acquire()
        given = completions if completions is not None else completion_ids
        self.batches.append(given)
        if "gone" in given:
            raise Unreachable("nobody answers")
        if "bad" in given:
            raise ValueError("a bad text")
        return [len(one) for one in given]


def submit(batches, text):
    return batches.submit(Completion("", [], text))


class Batching(unittest.TestCase):
    def setUp(self):
        self.scorer = Lengths()
        self.batches = Batches(self.scorer, most=3)
        self.first = submit(self.batches, "first")
        while self.batches._waiting.qsize():
            pass  # until it is being scored

    def test_what_arrives_meanwhile_is_scored_together(self):
        futures = [submit(self.batches, "a" * length) for length in range(5)]
        self.scorer.go.release(3)
        self.assertEqual([future.result(5) for future in futures], [0, 1, 2, 3, 4])
        self.assertEqual(self.scorer.batches, [["first"], ["", "a", "aa"], ["aaa", "aaaa"]])

    def test_texts_and_token_ids_are_not_mixed(self):
        of_ids = self.batches.submit(Completion("", [], token_ids=[7, 8], tokenizer="folder"))
        of_text = submit(self.batches, "abc")
        self.scorer.go.release(3)
        self.assertEqual((of_ids.result(5), of_text.result(5)), (2, 3))

    def test_one_that_cannot_be_scored_does_not_take_the_others_along(self):
        good, bad = submit(self.batches, "good"), submit(self.batches, "bad")
        self.scorer.go.release(4)
        self.assertEqual(good.result(5), 4)
        with self.assertRaisesRegex(ValueError, "a bad text"):
            bad.result(5)

    def test_where_nobody_answers_nothing_is_asked_twice(self):
        futures = [submit(self.batches, text) for text in ("gone", "also")]
        self.scorer.go.release(2)
        for future in futures:
            with self.assertRaisesRegex(Unreachable, "nobody answers"):
                future.result(5)
        self.assertEqual(len(self.scorer.batches), 2)

    def test_one_that_nobody_waits_for_is_left_out(self):
        unwanted, wanted = submit(self.batches, "unwanted"), submit(self.batches, "wanted")
        self.assertTrue(unwanted.cancel())
        self.scorer.go.release(2)
        self.assertEqual(wanted.result(5), 6)
        self.assertEqual(self.scorer.batches, [["first"], ["wanted"]])


if __name__ == "__main__":
    unittest.main()
