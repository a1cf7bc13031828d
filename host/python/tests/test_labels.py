"""The question that OpenRLHF's completions are scored with."""

import unittest
from types import SimpleNamespace
from unittest import mock

from corver import openrlhf
from corver._golds import question_in

TRACE = {
    "sentences": [],
    "return_parts": {"judge": 0.0, "format": 0.0, "sentences": 0.0},
    "response": {"judge": {"reward": 0.0}},
}


class RecordingScorer:
    """A scorer that records the questions of its completions."""

    def __init__(self, *, seen):
        self.seen = seen

    def score(self, *, questions, answers, completions):
        self.seen += questions
        return [SimpleNamespace(reward=0.0, returns=None, to_dict=lambda: TRACE) for _ in questions]


class Labels(unittest.TestCase):
    def test_question_in_label_is_read_or_absent(self):
        for label, expected in [
            ({"question": "q", "answers": []}, "q"),
            ({"problem": "p", "answer": "a"}, "p"),
            ({"question": "q", "problem": "p"}, "q"),
            ({"question": "", "answers": []}, ""),
            ({"question": 7, "answers": []}, None),
            ({"question": None, "problem": "p"}, None),
            ({"problem": ["p"], "answer": "a"}, None),
            ({"answers": []}, None),
            (["a"], None),
            ("question", None),
            (None, None),
        ]:
            with self.subTest(label):
                self.assertEqual(question_in(label), expected)

    def test_question_is_read_from_label_or_prompt(self):
        seen = []
        with mock.patch("corver.Scorer", RecordingScorer):
            reward = openrlhf.reward_function(strict=True, seen=seen)
        for label in ({"question": "q", "answers": ["Ada"]}, {"problem": "p", "answer": "Ada"}, {"answers": ["Ada"]}, "Ada", None):
            reward(["Who? Ada"], ["Who? "], [label])
        self.assertEqual([question.strip() for question in seen], ["q", "p", "Who?", "Who?", "Who?"])


if __name__ == "__main__":
    unittest.main()
