"""The rule's tests, without the host."""

import unittest

from corver_testing import counts, response, run_response
from response import rule


def graded(answer: str):
    text = f"<think>I read it.</think><answer>{answer}</answer>"
    return run_response(rule, response("Where?", ["Rome", "Roma"], text), counts({}))


class {{type}}Test(unittest.TestCase):
    def test_a_gold_and_nothing_more_is_right(self):
        labels = [graded(answer).label for answer in ("roma", "Rome, Italy", "")]
        self.assertEqual(labels, ["GOOD", "BAD", "NOT_ATTEMPTED"])

    def test_an_unknown_setting_is_refused(self):
        with self.assertRaisesRegex(ValueError, "unknown field `rihgt`"):
            rule.configure({"rihgt": 5})


if __name__ == "__main__":
    unittest.main()
