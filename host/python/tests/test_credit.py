"""Advantage signs, which change advantages and no reward."""

import asyncio
import unittest
from types import SimpleNamespace
from unittest import mock

import corver
from corver import openrlhf
from corver._types import Baseline
from corver.verl import compute_score

TRACE = {
    "sentences": [{"verdict": None}, {"verdict": {"reward": -1.0, "count": None, "credit": "advantage_sign"}}],
    "return_parts": {"judge": 0.0, "format": 0.0, "sentences": 0.0},
    "response": {"judge": {"reward": 0.0}},
}


class SigningScorer:
    """A scorer whose rule sets the sign of a sentence of every completion."""

    def __init__(self, **settings):
        pass

    def score(self, *texts, questions, **completions):
        score = SimpleNamespace(reward=0.0, returns=None, to_dict=lambda: TRACE)
        return [score for _ in questions]


class Signs(unittest.TestCase):
    def test_advantage_takes_sign(self):
        group = Baseline(centre=1.0, spread=0.5, scale=0.5)
        self.assertEqual([group.advantage(2.0, sign) for sign in (1, 0, -1)], [2.0, 2.0, -2.0])
        self.assertEqual([group.advantage(0.0, sign) for sign in (1, 0, -1)], [2.0, -2.0, -2.0])
        self.assertEqual(Baseline(1.0, 0.0, None).advantage(2.0, -1), 0.0)

    def test_openrlhf_and_verl_reject_signs(self):
        for strict in (False, True):
            with mock.patch("corver.Scorer", SigningScorer):
                reward = openrlhf.reward_function(strict=strict)
                with self.assertRaisesRegex(corver.CorverError, "sets signs of advantages, and OpenRLHF cannot"):
                    reward(["Who? Ada"], ["Who? "], ["Ada"])
                with self.assertRaisesRegex(corver.CorverError, "sets signs of advantages, and verl cannot"):
                    asyncio.run(compute_score("", "Ada", "Ada", plugin=f"signs-{strict}", strict=strict))


if __name__ == "__main__":
    unittest.main()
