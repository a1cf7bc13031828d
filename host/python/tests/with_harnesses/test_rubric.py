"""CorVer's rubric in the real verifiers 0.1.9, without a model."""

import asyncio
import contextlib
import unittest

import verifiers

import corver
from corver.verifiers import rubric

QUESTION, GOLD = "Where was Driaterk Thiahava born?", "Old Riavuck"
RIGHT = f"<think>Driaterk Thiahava was born in {GOLD}.</think><answer>{GOLD}</answer>"
WRONG = "<think>Driaterk Thiahava was born in Lower Xyzzy.</think><answer>Lower Xyzzy</answer>"


def state(text, answer=GOLD):
    return {
        "prompt": [{"role": "user", "content": QUESTION}], "completion": [{"role": "assistant", "content": text}], "answer": answer,
        "task": "default", "trajectory": [], "timing": {"scoring_ms": 0.0, "total_ms": 0.0},
    }  # fmt: skip


class Rubric(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rubric = rubric(config="demo")
        cls.expected = corver.Scorer(config="demo").score([RIGHT, WRONG], [QUESTION] * 2, [[GOLD]] * 2)

    def assert_scored(self, scored, expected):
        self.assertAlmostEqual(scored["reward"], expected.reward, places=6)
        self.assertAlmostEqual(scored["metrics"]["corver"], expected.reward, places=6)
        for part, value in expected.return_parts.items():
            self.assertAlmostEqual(scored["metrics"][f"corver_{part}"], value, places=6)
        counts = [(sentence.text, sentence.count) for sentence in expected.sentences]
        self.assertEqual([(sentence["text"], sentence["count"]) for sentence in scored["corver"]["sentences"]], counts)

    def test_rollout_is_scored_with_named_parts(self):
        self.assertIsInstance(self.rubric, verifiers.Rubric)
        for text, expected in zip((RIGHT, WRONG), self.expected, strict=True):
            rollout = state(text)
            asyncio.run(self.rubric.score_rollout(rollout, contextlib.nullcontext()))
            self.assert_scored(rollout, expected)

    def test_group_is_scored_with_advantages(self):
        rollouts = [state(RIGHT), state(WRONG)]
        asyncio.run(self.rubric.score_group(rollouts, contextlib.nullcontext()))
        for rollout, expected in zip(rollouts, self.expected, strict=True):
            self.assert_scored(rollout, expected)
        difference = self.expected[0].reward - self.expected[1].reward
        self.assertAlmostEqual(rollouts[0]["advantage"], difference / 2, places=6)


if __name__ == "__main__":
    unittest.main()
