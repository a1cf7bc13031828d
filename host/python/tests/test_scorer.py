"""The installed package: scores, per-token returns, threads, errors."""

import inspect
import json
import os
import pydoc
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

import corver
from corver._native import group_baselines
from examples import ANSWERS, COMPLETIONS, QUESTIONS, checked


class Scores(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scorer = corver.Scorer(plugin="first.wasm", index="demo", extractor="demo")
        cls.tokenizer = corver.demo().policy

    def test_scores_equal_corver_host_score(self):
        """To the last digit."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "completions.jsonl"
            rows = zip(QUESTIONS, ANSWERS, COMPLETIONS)
            file.write_text("".join(json.dumps(dict(question=q, answers=a, completion=c)) + "\n" for q, a, c in rows))
            command = [Path(sys.executable).parent / "corver-host", "score", file, "--json"]
            for flags, arguments in [
                ([], {}),
                (["--set", "reward.lambda_corver=0.5"], {"settings": {"reward.lambda_corver": 0.5}}),
                (["--plugin", "min.wasm:0.5", "--plugin", "first"], {"plugin": ["min.wasm:0.5", "first"]}),
                (["--set", "reward.lambda_judge=0", "--judge", "token-f1"], {"judge": "token-f1", "settings": {"reward.lambda_judge": 0}}),
            ]:
                printed = subprocess.run([*command, *flags], check=True, capture_output=True, text=True).stdout
                scores = corver.Scorer(index="demo", **arguments).score(COMPLETIONS, QUESTIONS, ANSWERS)
                self.assertEqual([score.to_dict() for score in scores], [json.loads(line) for line in printed.splitlines()])

    def test_token_returns_and_advantages_match_host(self):
        rows = checked()
        scores = self.scorer.score(
            completion_ids=[row["tokens"] for row in rows], tokenizer=self.tokenizer,
            questions=[row["question"] for row in rows], answers=[row["answers"] for row in rows],
        )
        self.assertEqual([score.returns for score in scores], [row["returns"] for row in rows])
        self.assertGreater(len({tuple(row["returns"]) for row in rows}), 10)
        advantages = corver.advantages([score.returns for score in scores], group_size=4)
        self.assertEqual(advantages, [row["advantages"] for row in rows])
        groups = group_baselines([score.reward for score in scores], 4)
        for row, score in enumerate(scores):
            by_baseline = [groups[row // 4].advantage(token_return) for token_return in score.returns]
            self.assertEqual(by_baseline, advantages[row])

    def test_tokenizer_may_be_folder_file_or_object(self):
        class Backend:
            text = Path(self.tokenizer, "tokenizer.json").read_text()

            def to_str(self):
                return self.text

        class Fast:
            """The part of a tokenizer of transformers that is used."""

            backend_tokenizer = Backend()

        ids = [row["tokens"] for row in checked()[:3]]
        returns = [
            [score.returns for score in self.scorer.score(completion_ids=ids, tokenizer=tokenizer)]
            for tokenizer in (self.tokenizer, Path(self.tokenizer) / "tokenizer.json", Fast(), Backend())
        ]
        self.assertTrue(all(one == returns[0] for one in returns))

    def test_sentence_trace_explains_reward(self):
        rows = checked()
        ids = [row["tokens"] for row in rows]
        scores = self.scorer.score(completion_ids=ids, tokenizer=self.tokenizer)
        sentences = [(row, score, sentence) for row, score in zip(rows, scores) for sentence in score.sentences]
        counted = [each for each in sentences if each[2].count is not None]
        self.assertGreater(len(counted), 10)
        for row, score, sentence in counted:
            first, end = sentence.tokens
            response = score.return_parts["judge"] + score.return_parts["format"]
            self.assertAlmostEqual(score.returns[first], response + sentence.reward)
            self.assertIn(sentence.count, [lookup.occurrences for lookup in sentence.lookups])
            self.assertIn(sentence.lookups[0].precision, ["exact", "at_least"])
            self.assertEqual(len(sentence.triplets[0]), 3)
            self.assertTrue(0 <= first < end <= len(row["tokens"]))
            self.assertIn(sentence.section, ("think", "answer", "body"))
            self.assertEqual((sentence.credit, sentence.exchanges), (None, []))
            self.assertEqual(score.advantage_signs, [0] * len(row["tokens"]))

    def test_judge_reward_is_zero_without_golds(self):
        for answers in (None, [[]], [None]):
            (score,) = self.scorer.score(COMPLETIONS[:1], answers=answers)
            self.assertEqual(score.return_parts["judge"], 0.0)
        reward, label, note = self.scorer.score(COMPLETIONS[:1], answers=["Old Riavuck"])[0].judge
        self.assertEqual((reward, label, note), (2.0, "GOOD", None))
        self.assertEqual(self.scorer.score([]), [])

    def test_plain_text_has_no_token_returns(self):
        (score,) = self.scorer.score(["A b."])
        self.assertIsNone(score.returns)
        self.assertIsNone(score.advantage_signs)
        self.assertEqual((score.text, score.question), ("A b.", ""))
        self.assertIn("a text", repr(score))

    def test_concurrent_scoring_gives_same_scores(self):
        expected = [score.to_dict() for score in self.scorer.score(COMPLETIONS, QUESTIONS, ANSWERS)]
        found = []

        def score():
            for _ in range(5):
                found.append([score.to_dict() for score in self.scorer.score(COMPLETIONS, QUESTIONS, ANSWERS)])

        threads = [threading.Thread(target=score) for _ in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        self.assertEqual(found, [expected] * 20)

    def test_other_threads_run_during_scoring(self):
        ticks = []
        done = threading.Event()

        def tick():
            while not done.is_set():
                ticks.append(time.perf_counter())
                time.sleep(0.001)

        ticking = threading.Thread(target=tick)
        ticking.start()
        begun = time.perf_counter()
        rows = checked() * 20
        self.scorer.score(completion_ids=[row["tokens"] for row in rows], tokenizer=self.tokenizer)
        ended = time.perf_counter()
        done.set()
        ticking.join()
        during = [tick for tick in ticks if begun < tick < ended]
        self.assertGreater(len(during), (ended - begun) / 0.1, "not once in 100 ms")

    def test_ctrl_c_interrupts_scoring(self):
        rows = checked() * 100
        # Python leaves SIGINT ignored where it was started in the background.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, before)
        begun = time.perf_counter()
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        with self.assertRaises(KeyboardInterrupt):
            while time.perf_counter() - begun < 10.0:
                self.scorer.score(completion_ids=[row["tokens"] for row in rows], tokenizer=self.tokenizer)
        self.assertLess(time.perf_counter() - begun, 1.0)
        self.assertEqual(len(self.scorer.score(COMPLETIONS)), 3, "it can be used again")

    def test_scoring_in_forked_process_is_rejected(self):
        read, write = os.pipe()
        if os.fork() == 0:
            try:
                self.scorer.score(COMPLETIONS)
            except corver.CorverError as error:
                os.write(write, str(error).encode())
            os._exit(0)
        os.close(write)
        self.assertIn("open one there", os.read(read, 1000).decode())
        os.wait()

    def test_forked_process_scores_with_own_scorer(self):
        """Rows of ids are decoded, and parts of some 256 sentences are scored, by several threads."""
        batch = {"completion_ids": [row["tokens"] for row in checked() * 20], "tokenizer": self.tokenizer}
        expected = self.scorer.score(**batch)
        self.assertGreater(sum(len(score.sentences) for score in expected), 600)
        read, write = os.pipe()
        if os.fork() == 0:
            signal.alarm(60)  # ends a process that hangs
            try:
                own = corver.Scorer(plugin="first.wasm", index="demo", extractor="demo")
                equal = [score.returns for score in own.score(**batch)] == [score.returns for score in expected]
                os.write(write, str(equal).encode())
            finally:
                os._exit(0)
        os.close(write)
        self.assertEqual(os.read(read, 1000).decode(), "True")
        os.wait()


class Mistakes(unittest.TestCase):
    def test_invalid_settings_are_named_in_error(self):
        for arguments, message in [
            ({"settings": {"reward.lambda": 1}}, "did you mean `reward.lambda_"),
            ({"index": "demo", "settings": {"reward.lambda_corver": "high"}}, "setting `reward.lambda_corver`"),
            ({"index": "demo", "settings": {"corpus.cache_mib": -1}}, "corpus.cache_mib"),
            ({"config": "/nowhere.toml"}, "cannot read the configuration /nowhere.toml"),
            ({"index": "demo", "plugin": "first.wasm:x"}, "the weight of first.wasm"),
            ({"index": "demo", "plugin": []}, "`rule.plugin`: not set"),
        ]:
            with self.subTest(arguments), self.assertRaisesRegex(corver.SettingsError, ".*") as caught:
                corver.Scorer(**arguments)
            self.assertIn(message, str(caught.exception))
            self.assertEqual(len(str(caught.exception).splitlines()), 1)

    def test_unopenable_parts_are_named_in_error(self):
        for arguments, message in [
            ({"index": "demo", "plugin": "frist.wasm"}, "did you mean first.wasm?"),
            ({"index": "/nowhere"}, "/nowhere"),
            ({"index": "/nowhere"}, "`extract.model`: not set"),
            ({"extractor": corver.demo().extractor}, "`corpus.index`: not set"),
            ({"config": "demo", "index": corver.demo().policy}, "the demo's extractor reads the demo's sentences alone"),
            ({"extractor": "/nowhere"}, "`extract.model`: there is no /nowhere"),
            ({"index": "demo", "settings": {"rule.settings.tiers.rewards": "many"}}, "tiers"),
        ]:
            with self.subTest(arguments), self.assertRaisesRegex(corver.CorverError, ".*") as caught:
                corver.Scorer(**arguments)
            self.assertIn(message, str(caught.exception))
            self.assertEqual(len(str(caught.exception).splitlines()), 1)

    def test_contradicting_arguments_are_rejected(self):
        scorer = corver.Scorer(index="demo")
        for arguments, message in [
            ({}, "give either completions, or completion_ids and their tokenizer"),
            ({"completions": ["a"], "completion_ids": [[1]], "tokenizer": "x"}, "give either"),
            ({"completion_ids": [[1]]}, "give either"),
            ({"completions": ["a", "b"], "questions": ["q"]}, "there are 1 questions for 2 completions"),
            ({"completions": ["a"], "answers": [["x"], ["y"]]}, "there are 2 answers for 1 completions"),
            ({"completions": ["a"], "answers": ["['x']"]}, "answers[0]: `answers` is ['x'], a list or object"),
        ]:
            with self.subTest(arguments), self.assertRaises(ValueError) as caught:
                scorer.score(**arguments)
            self.assertIn(message, str(caught.exception))
        with self.assertRaisesRegex(TypeError, "the tokenizer is a int; give a fast Hugging Face tokenizer"):
            scorer.score(completion_ids=[[1]], tokenizer=7)
        with self.assertRaisesRegex(corver.CorverError, "cannot read /nowhere"):
            scorer.score(completion_ids=[[1]], tokenizer="/nowhere")

    def test_default_demo_scorer_warns(self):
        with self.assertWarnsRegex(UserWarning, "using the built-in demo: no model, corpus or questions are named"):
            corver.Scorer()

    def test_scorer_reports_credit_of_rule(self):
        self.assertEqual(corver.Scorer(index="demo").credit, "all_tokens")
        evidence = {"backends.nli.model": "demo"}
        self.assertEqual(corver.Scorer("fspo.wasm", "demo", settings=evidence).credit, "advantage_sign")

    def test_nan_setting_is_rejected(self):
        with self.assertRaisesRegex(ValueError, "NaN, which no setting can be"):
            corver.Scorer(settings={"reward.lambda_corver": float("nan")})


class Advantages(unittest.TestCase):
    #: Mean returns 2, 4, 7 and 7.
    RETURNS = [[1.0, 3.0], [4.0], [7.0], [7.0, 7.0]]

    def test_advantages_are_computed_per_group(self):
        scale = 2**0.5 + 1e-4
        expected = [[-2.0 / scale, 0.0], [1.0 / scale], [0.0], [0.0, 0.0]]
        self.assertEqual(corver.advantages(self.RETURNS, 2), expected)
        one, other = group_baselines([2.0, 4.0, 7.0, 7.0], 2)
        self.assertEqual((one.centre, one.spread, one.scale), (3.0, 2**0.5, scale))
        self.assertEqual(other, (7.0, 0.0, 1e-4))
        self.assertAlmostEqual(one.advantage(5.0), 2 / scale)

    def test_signs_replace_those_of_advantages(self):
        signs = [[1, -1], [-1], [1], [0, 0]]
        scale = 2**0.5 + 1e-4
        expected = [[2.0 / scale, 0.0], [-1.0 / scale], [0.0], [0.0, 0.0]]
        self.assertEqual(corver.advantages(self.RETURNS, 2, signs=signs), expected)

    def test_scale_follows_scale_rewards(self):
        self.assertEqual(corver.advantages(self.RETURNS, 2, scale_rewards="none"), [[-2.0, 0.0], [1.0], [0.0], [0.0, 0.0]])
        rewards = [2.0, 4.0, 7.0, 7.0]
        self.assertEqual(len({group.scale for group in group_baselines(rewards, 2, scale_rewards="batch")}), 1)
        skipped = group_baselines(rewards, 2, min_spread=0.1)[1]
        self.assertEqual((skipped.scale, skipped.advantage(9.0)), (None, 0.0))
        self.assertEqual(corver.advantages(self.RETURNS, 2, min_spread=2.0), [[0.0, 0.0], [0.0], [0.0], [0.0, 0.0]])

    def test_invalid_advantage_arguments_are_rejected(self):
        for arguments, options, message in [
            (([[1.0]] * 3, 2), {}, "3 completions do not fill groups of 2"),
            (([[1.0]], 0), {}, "groups of 0"),
            (([[1.0]], 1), {"scale_rewards": "all"}, 'scale_rewards is "all"'),
            (([[1.0]], 1), {"signs": []}, "there are 0 rows of signs for 1 of returns"),
            (([[1.0]], 1), {"signs": [[1, 1]]}, r"signs\[0\] has 2 entries for 1 returns"),
        ]:
            with self.subTest(message), self.assertRaisesRegex(ValueError, message):
                corver.advantages(*arguments, **options)


class Package(unittest.TestCase):
    def test_import_corver_loads_no_trainer(self):
        script = "import sys, corver; print([name for name in ('torch', 'trl', 'transformers', 'numpy') if name in sys.modules])"
        self.assertEqual(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout, "[]\n")

    def test_help_documents_public_names(self):
        text = pydoc.render_doc(corver, renderer=pydoc.plaintext)
        for public in set(corver.__all__) - {"__version__"}:
            self.assertTrue(public in text, public)
        for part in (corver.Scorer, corver.Scorer.score, corver.Score, corver.advantages, corver.demo, corver.CorverError):
            self.assertGreater(len(inspect.getdoc(part)), 60, part)
        self.assertIn("completion_ids=None", str(inspect.signature(corver.Scorer.score)))
        self.assertEqual(corver.Scorer.__module__, "corver")

    def test_demo_policy_and_questions_exist(self):
        demo = corver.demo()
        self.assertTrue(Path(demo.policy, "model.safetensors").is_file())
        self.assertGreater(len(demo.train), 100)
        self.assertTrue(all(question.answers for question in demo.eval))


if __name__ == "__main__":
    unittest.main()
