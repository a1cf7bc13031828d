"""The functions that trainers import by name, called as the trainers' sources call them."""

import asyncio
import functools
import importlib
import importlib.util
import inspect
import multiprocessing
import os
import pickle
import unittest
from concurrent.futures import ProcessPoolExecutor
from types import SimpleNamespace
from unittest import mock

import corver
import corver.verifiers
from corver import reward
from corver._reward import _text
from corver.openrlhf import reward_function
from corver.verl import compute_score

QUESTION, GOLD = "Where was Driaterk Thiahava born?", "Old Riavuck"
RIGHT = f"<think>Driaterk Thiahava was born in {GOLD}.</think><answer>{GOLD}</answer>"
WRONG = "<think>Driaterk Thiahava was born in Lower Xyzzy.</think><answer>Lower Xyzzy</answer>"
COMPLETIONS = [RIGHT, WRONG]
TEMPLATE = f"<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n"
TURN = {"role": "user", "content": QUESTION}


def environment(**variables):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CORVER_")}
    return mock.patch.dict(os.environ, kept | variables, clear=True)


def replies(texts):
    return [[{"role": "assistant", "content": text}] for text in texts]


class ByName(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scores = corver.Scorer(config="demo").score(COMPLETIONS, [QUESTION] * 2, [[GOLD]] * 2)
        cls.rewards = [score.reward for score in scores]
        assert cls.rewards[0] > cls.rewards[1]

    def setUp(self):
        settings = environment(CORVER_CONFIG="demo")
        settings.start()
        self.addCleanup(settings.stop)

    def test_trl_calls_with_columns_and_loggers(self):
        """trl 1.16, trainer/grpo_trainer.py, `_calculate_rewards`."""
        metrics, extra = {}, {}
        rewards = reward.trl(
            prompts=[[TURN]] * 2, completions=replies(COMPLETIONS), completion_ids=[[1], [2]], answers=[[GOLD]] * 2,
            trainer_state=None, log_extra=extra.__setitem__, log_metric=metrics.__setitem__,
        )
        self.assertEqual(rewards, self.rewards)
        self.assertEqual(extra["corver_judge"], ["GOOD", "BAD"])
        self.assertIn("corver/judge", metrics)
        self.assertEqual(reward.trl.__name__, "corver")

    def test_reasoning_that_trl_separates_is_scored(self):
        """trl 1.16, chat_template_utils.py, `parse_response`: `reasoning_content`, and `thinking` of LFM2.5."""
        for name in ("reasoning_content", "thinking"):
            completions = []
            for text in COMPLETIONS:
                reasoning, content = text.removeprefix("<think>").split("</think>")
                completions.append([{"role": "assistant", name: reasoning, "content": content}])
            self.assertEqual(reward.trl([[TURN]] * 2, completions, answers=[[GOLD]] * 2), self.rewards)

    def test_reasoning_that_was_cut_off_stays_open(self):
        """trl 1.16 with transformers 5.23: a block without `</think>` is reasoning, and the content is empty."""
        text = f"Driaterk Thiahava was born in {GOLD}. <answer>{GOLD}</answer>"
        message = {"role": "assistant", "reasoning_content": text, "content": ""}
        self.assertEqual(_text([message]), f"<think>{text}")

    def test_messages_that_the_policy_did_not_write_are_refused(self):
        for other in ({"role": "tool", "name": "search", "content": RIGHT}, {"role": "user", "content": RIGHT}):
            completions = [[*replies([WRONG])[0], other, *replies([WRONG])[0]]]
            pattern = f"a message of the role '{other['role']}', which the policy did not write; .* one reply per question, without tools"
            with self.assertRaisesRegex(corver.CorverError, pattern):
                reward.trl([[TURN]], completions, answers=[[GOLD]])

    def test_axolotl_calls_without_token_ids(self):
        """axolotl 0.21, core/trainers/grpo: `get_reward_func`; the trainer's `reward_func(prompts=, completions=, **columns)`; and the
        worker processes of fast_async_trainer.py, which get a pickled function."""
        self.assertGreaterEqual(len(inspect.signature(reward.trl).parameters), 2)
        function = pickle.loads(pickle.dumps(reward.trl))
        self.assertEqual(function(prompts=[[TURN]] * 2, completions=replies(COMPLETIONS), answers=[[GOLD]] * 2), self.rewards)

    def test_swift_calls_with_messages(self):
        """ms-swift 4.6, rl_core/grpo_algorithm.py, `compute_rewards_per_func`; `orms[name](args=args)` before."""
        function = reward.CorverORM(args=SimpleNamespace())
        messages = [[TURN, *reply] for reply in replies(COMPLETIONS)]
        rewards = function(COMPLETIONS, trainer_state=None, messages=messages, is_truncated=[False] * 2, answers=[[GOLD]] * 2)
        self.assertEqual(rewards, self.rewards)

    def test_slime_awaits_one_sample_or_group(self):
        """slime (2026-08), rollout/rm_hub/__init__.py, `async_rm` and `batched_async_rm`."""
        for prompt in (TEMPLATE, [TURN]):
            samples = [SimpleNamespace(prompt=prompt, response=f"{text}<|im_end|>", label=GOLD) for text in COMPLETIONS]
            args = SimpleNamespace(custom_rm_path="corver.reward.slime")
            self.assertEqual(asyncio.run(reward.slime(args, samples)), self.rewards)
            self.assertEqual(asyncio.run(reward.slime(args, samples[1])), self.rewards[1])

    def test_slime_reads_settings_file_of_its_arguments(self):
        args = SimpleNamespace(corver_config="/nowhere.toml")
        with self.assertRaisesRegex(corver.SettingsError, "cannot read the configuration /nowhere.toml"):
            asyncio.run(reward.slime(args, SimpleNamespace(prompt=[TURN], response=RIGHT, label=GOLD)))

    def test_areal_calls_in_worker_process(self):
        """AReaL 1.0.4, workflow/rlvr.py, `_compute_rewards`, and api/reward_api.py, `AsyncRewardWrapper`."""
        calls = [
            functools.partial(reward.areal, TEMPLATE, f"{text}<|im_end|>", [1], [2], messages=[TURN], answers=[GOLD])
            for text in COMPLETIONS
        ]
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as workers:
            self.assertEqual([workers.submit(call).result() for call in calls], self.rewards)

    def test_verl_and_openrlhf_equal_their_modules(self):
        by_name = asyncio.run(reward.verl("demo", RIGHT, GOLD, {"question": QUESTION}))
        self.assertEqual(by_name, asyncio.run(compute_score("demo", RIGHT, GOLD, {"question": QUESTION}, config=["demo"])))
        self.assertEqual(by_name["score"], self.rewards[0])
        query = ([TEMPLATE + WRONG], [TEMPLATE], [GOLD])
        self.assertEqual(reward.openrlhf(*query), reward_function(config="demo")(*query))
        self.assertEqual(reward.openrlhf(*query)["rewards"], self.rewards[1])

    def test_column_of_golds_is_named_or_absent(self):
        call = functools.partial(reward.trl, [[TURN]] * 2, replies(COMPLETIONS), solution=[GOLD] * 2)
        with self.assertRaisesRegex(ValueError, "no column 'answers'; .*CORVER_ANSWERS"):
            call()
        with environment(CORVER_CONFIG="demo", CORVER_ANSWERS="solution"):
            self.assertEqual(call(), self.rewards)
        with environment(CORVER_CONFIG="demo", CORVER_ANSWERS=""):
            without = corver.Scorer(config="demo").score(COMPLETIONS, [QUESTION] * 2)
            self.assertEqual(call(), [score.reward for score in without])
            self.assertEqual(reward.areal(TEMPLATE, RIGHT, [1], [2]), without[0].reward)

    def test_later_settings_file_wins(self):
        with environment(CORVER_CONFIG="demo:/nowhere.toml"), self.assertRaisesRegex(corver.SettingsError, "/nowhere.toml"):
            reward.trl([[TURN]], replies([RIGHT]), answers=[[GOLD]])

    def test_missing_settings_file_is_an_error(self):
        with environment(), self.assertRaisesRegex(corver.SettingsError, "CORVER_CONFIG is not set"):
            reward.trl([[TURN]], replies([RIGHT]), answers=[[GOLD]])


class Absent(unittest.TestCase):
    @unittest.skipIf(importlib.util.find_spec("inspect_ai"), "Inspect AI is installed")
    def test_missing_inspect_names_the_extra(self):
        with self.assertRaisesRegex(ImportError, r"pip install 'corver\[inspect\]'"):
            importlib.import_module("corver.inspect")

    @unittest.skipIf(importlib.util.find_spec("verifiers"), "verifiers is installed")
    def test_missing_verifiers_names_the_release(self):
        with self.assertRaisesRegex(ImportError, "pip install 'verifiers==0.1.9.post2'"):
            corver.verifiers.rubric(config="demo")


if __name__ == "__main__":
    unittest.main()
