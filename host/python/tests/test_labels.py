"""The question in OpenRLHF's labels, read as the server reads it (host/data/src/golds.rs)."""

import unittest

from corver.openrlhf import _question

PROMPT = "Who?"


class Labels(unittest.TestCase):
    def test_question_is_read_from_label_or_prompt(self):
        for label, expected in [
            ({"question": "q", "answers": []}, "q"),
            ({"problem": "p", "answer": "a"}, "p"),
            ({"question": "q", "problem": "p"}, "q"),
            ({"question": "", "answers": []}, ""),
            ({"question": 7, "answers": []}, PROMPT),
            ({"question": None, "problem": "p"}, PROMPT),
            ({"problem": ["p"], "answer": "a"}, PROMPT),
            ({"answers": []}, PROMPT),
            (["a"], PROMPT),
            ("question", PROMPT),
            (None, PROMPT),
        ]:
            with self.subTest(label):
                self.assertEqual(_question(label, PROMPT), expected)


if __name__ == "__main__":
    unittest.main()
