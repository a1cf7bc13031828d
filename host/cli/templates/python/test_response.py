"""The rule's tests, without the host."""

import unittest

from corver_testing import counts, response, run_response
from response import rule


def graded(answer: str):
    text = f"<think>I read it.</think><answer>{answer}</answer>"
    return run_response(rule, response("Where?", ["Rome", "Roma"], text), counts({}))


class {{type}}Test(unittest.TestCase):
    def test_only_exact_gold_answer_is_good(self):
        labels = [graded(answer).label for answer in ("roma", "Rome, Italy", "")]
        self.assertEqual(labels, ["GOOD", "BAD", "NOT_ATTEMPTED"])

    def test_text_without_answer_block_is_not_attempted(self):
        for text in ("Rome", "<think>Rome</think>", "<think>Rome"):
            grade = run_response(rule, response("Where?", ["Rome"], text), counts({}))
            self.assertEqual(grade.label, "NOT_ATTEMPTED", text)

    def test_rejects_unknown_setting(self):
        with self.assertRaisesRegex(ValueError, "unknown field `rihgt`"):
            rule.configure({"rihgt": 5})


if __name__ == "__main__":
    unittest.main()
