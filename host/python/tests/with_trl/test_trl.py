"""Real GRPO steps with TRL, LoRA and the demo's reward, on the CPU. CORVER_MODEL names the model of the three steps; without it, and
elsewhere, it is the demo's policy."""

import collections
import contextlib
import io
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
sys.path.append(str(Path(__file__).parents[1]))

import torch
from datasets import Dataset
from trl import GRPOTrainer

import corver
from corver.trl import CorverGRPOTrainer, CorverReward, paper_config, paper_lora
from examples import checked

DEMO = corver.demo().policy
MODEL = os.environ.get("CORVER_MODEL") or DEMO
SYSTEM = "Answer in this format: <think>reasoning in full sentences</think><answer>answer</answer>"


def questions(count):
    rows = [
        {
            "prompt": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": row.question}],
            "answers": row.answers,
        }
        for row in corver.demo().train[:count]
    ]
    return Dataset.from_list(rows)


def config(folder, **overrides):
    small = dict(
        output_dir=folder, use_cpu=True, bf16=False, report_to=[], per_device_train_batch_size=4, gradient_accumulation_steps=2,
        num_generations=4, max_completion_length=24, max_steps=3, learning_rate=1e-3, save_strategy="no", disable_tqdm=True,
    )
    return paper_config(**{**small, **overrides})


class Recording(CorverGRPOTrainer):
    """Records the batches that TRL trains on."""

    def __init__(self, *args, **options):
        self.outputs = []
        self.losses = []
        super().__init__(*args, **options)

    def _generate_and_score_completions(self, inputs):
        output = super()._generate_and_score_completions(inputs)
        self.outputs.append((self.model.training, output, list(self.corver.scores)))
        return output

    def _compute_loss(self, model, inputs):
        self.losses.append({name: inputs[name].clone() for name in ("completion_ids", "advantages")})
        return super()._compute_loss(model, inputs)


class SigningScorer:
    """The scorer, as if its rule had set the sign of every sentence; the signs of the tokens alternate."""

    credit = "advantage_sign"

    def __init__(self, scorer):
        self.scorer = scorer

    def score(self, *args, **options):
        return [SignedScore(score) for score in self.scorer.score(*args, **options)]


class SignedScore:
    def __init__(self, score):
        self.score = score
        self.advantage_signs = score.returns and [(1, -1, 0)[index % 3] for index in range(len(score.returns))]
        self.sentences = [sentence._replace(credit="advantage_sign") for sentence in score.sentences]

    def __getattr__(self, name):
        return getattr(self.score, name)


def by_hand(returns, num_generations):
    """Returns the advantages of the paper's equations, [B][T]."""
    rows = []
    for first in range(0, len(returns), num_generations):
        group = returns[first : first + num_generations]
        means = [sum(row) / len(row) for row in group]
        centre = sum(means) / len(means)
        spread = (sum((mean - centre) ** 2 for mean in means) / (len(means) - 1)) ** 0.5
        rows += [[(token_return - centre) / (spread + 1e-4) for token_return in row] for row in group]
    return rows


class Trainer(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scorer = corver.Scorer(plugin="first.wasm", index="demo", extractor="demo")

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def assert_advantages(self, output, expected):
        mask, advantages = output["completion_mask"].bool(), output["advantages"]
        self.assertEqual(advantages.shape, output["completion_ids"].shape)
        self.assertTrue((advantages[~mask] == 0).all())
        for row, right in zip(advantages, expected, strict=True):
            right = torch.tensor(right, dtype=torch.float64)
            found = row[: len(right)].double()
            # f32 holds seven digits of the largest.
            self.assertLessEqual((found - right).abs().max().item(), 1e-6 * max(1.0, right.abs().max().item()))

    def test_lora_training_uses_token_advantages(self):
        trainer = Recording(
            MODEL, self.scorer, config(self.folder, eval_strategy="no", per_device_eval_batch_size=4, log_completions=True),
            train_dataset=questions(12), eval_dataset=questions(2), peft_config=paper_lora(r=8, lora_alpha=16),
        )
        before = {name: weight.detach().clone() for name, weight in trainer.model.named_parameters() if weight.requires_grad}
        with contextlib.redirect_stdout(io.StringIO()):  # TRL prints its table too
            trainer.train()
        self.assertEqual(trainer.state.global_step, 3)
        moved = [name for name, weight in trainer.model.named_parameters() if name in before and not weight.equal(before[name])]
        self.assertTrue(moved, "no adapter has moved")
        for training, output, scores in trainer.outputs:
            self.assertTrue(training)
            self.assert_advantages(output, by_hand([score.returns for score in scores], 4))
        self.assertEqual(len(trainer.losses), 6, "two micro-batches a step")
        self.assert_micro_batches(trainer)
        steps = [log for log in trainer.state.log_history if "rewards/corver/mean" in log]
        self.assertEqual(len(steps), 3)
        for log, (_, _, scores) in zip(steps, trainer.outputs):
            mean = sum(score.reward for score in scores) / len(scores)
            self.assertAlmostEqual(log["reward"], mean, places=5)
            for name in ("corver/judge", "corver/format", "corver/alignment_rate", "corver/sentences", "corver/seconds"):
                self.assertIn(name, log)
        self.assertAlmostEqual(steps[0]["corver/judge"], sum(s.return_parts["judge"] for s in trainer.outputs[0][2]) / 8, places=5)
        table = sorted(Path(self.folder, "completions").glob("*.parquet"))
        self.assertEqual(len(table), 3)
        self.assertIn("corver_sentences", Dataset.from_parquet(str(table[0])).column_names)

        trainer.outputs.clear()
        with contextlib.redirect_stdout(io.StringIO()):
            trainer.evaluate()
        self.assertEqual([training for training, _, _ in trainer.outputs], [False] * 2)
        for _, output, scores in trainer.outputs:
            self.assert_advantages(output, by_hand([score.returns for score in scores], 4))

    def assert_micro_batches(self, trainer):
        """TRL shuffles the rows of a generation before it splits them: each keeps its own advantages."""
        known = {}
        for _, output, _ in trainer.outputs:
            for ids, advantages in zip(output["completion_ids"].tolist(), output["advantages"].tolist()):
                known.setdefault(tuple(ids), []).append(advantages)
        for loss in trainer.losses:
            for ids, advantages in zip(loss["completion_ids"].tolist(), loss["advantages"].tolist()):
                self.assertIn(advantages, known[tuple(ids)])

    def test_generations_are_used_for_several_steps(self):
        trainer = Recording(
            DEMO, self.scorer, config(self.folder, gradient_accumulation_steps=1, steps_per_generation=3, max_steps=3),
            train_dataset=questions(12), peft_config=paper_lora(r=8, lora_alpha=16),
        )
        trainer.train()
        self.assertEqual((len(trainer.outputs), len(trainer.losses)), (1, 3))
        self.assertIn("old_per_token_logps", trainer.outputs[0][1])
        self.assert_micro_batches(trainer)

    def test_advantages_match_host_for_same_completions(self):
        """The advantages of host/core's `normalize`, recorded by tests/returns.rs."""
        rows = checked()
        of_question = collections.defaultdict(list)
        for row in rows:
            of_question[row["question"]].append(row)
        sampled = []

        def roll_out(prompts, trainer):
            counts = collections.Counter()
            sampled.clear()
            for prompt in prompts:
                sampled.append(of_question[prompt][counts[prompt]])
                counts[prompt] += 1
            return {"prompt_ids": [[1]] * len(prompts), "completion_ids": [row["tokens"] for row in sampled], "logprobs": None}

        data = Dataset.from_list([{"prompt": question, "answers": group[0]["answers"]} for question, group in of_question.items()])
        trainer = Recording(
            DEMO, self.scorer, config(self.folder, gradient_accumulation_steps=len(rows) // 4, max_steps=1),
            train_dataset=data,
        )
        trainer.rollout_func = roll_out  # set after the check: these tokens are the policy's own
        trainer.train()
        ((_, output, _),) = trainer.outputs
        self.assertEqual(len(sampled), len(rows))
        self.assert_advantages(output, [row["advantages"] for row in sampled])

    def test_extra_reward_functions_apply_to_every_token(self):
        def length(completion_ids, **_):
            return [len(ids) / 10 for ids in completion_ids]

        trainer = Recording(
            DEMO, self.scorer, config(self.folder, max_steps=1, reward_weights=[2.0, 0.5]), reward_funcs=length,
            train_dataset=questions(4), peft_config=paper_lora(r=8, lora_alpha=16),
        )
        trainer.train()
        ((_, output, scores),) = trainer.outputs
        weighted = [[2.0 * value + 0.05 * len(score.returns) for value in score.returns] for score in scores]
        expected = by_hand(weighted, 4)
        mask = output["completion_mask"].bool()
        found = output["advantages"][mask]
        right = torch.tensor([value for row in expected for value in row])
        self.assertLess(((found - right).abs() / right.abs().clamp(min=1)).max().item(), 1e-3, "TRL keeps rewards in f32")

    def test_advantages_take_the_signs_of_the_rule(self):
        trainer = Recording(
            DEMO, SigningScorer(self.scorer), config(self.folder, max_steps=1), train_dataset=questions(4),
            peft_config=paper_lora(r=8, lora_alpha=16),
        )
        trainer.train()
        ((_, output, scores),) = trainer.outputs
        expected = by_hand([score.returns for score in scores], 4)
        signed = [[abs(a) * sign or a for a, sign in zip(row, score.advantage_signs)] for row, score in zip(expected, scores)]
        self.assertNotEqual(signed, expected)
        self.assert_advantages(output, signed)

    def test_plain_reward_function_rejects_signs(self):
        reward = CorverReward(SigningScorer(self.scorer), answers=None)
        with self.assertRaisesRegex(corver.CorverError, "sets signs of advantages, and a reward function cannot"):
            reward(["q"], ["<think>Rome is old.</think>"], [[1]])

    def test_group_may_span_two_processes(self):
        script = Path(__file__).with_name("two_processes.py")
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", script, self.folder]
        run = subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, "OMP_NUM_THREADS": "1"})
        self.assertEqual((run.returncode, run.stdout.count("equal")), (0, 2), run.stderr[-3000:])

    def test_plain_reward_function_trains_in_trl(self):
        for tokenizer in (None, DEMO):
            reward = CorverReward(self.scorer, tokenizer)
            trainer = GRPOTrainer(
                DEMO, reward, args=config(self.folder, max_steps=1), train_dataset=questions(4),
                peft_config=paper_lora(r=8, lora_alpha=16),
            )
            trainer.train()
            log = next(log for log in trainer.state.log_history if "rewards/corver/mean" in log)
            self.assertAlmostEqual(log["rewards/corver/mean"], sum(s.reward for s in reward.scores) / 8, places=5)
            self.assertEqual([score.returns is None for score in reward.scores], [tokenizer is None] * 8)

    def test_settings_breaking_token_credit_are_rejected(self):
        make = lambda options, **trl: CorverGRPOTrainer(  # noqa: E731
            DEMO, self.scorer, config(self.folder, **options), train_dataset=questions(2), **trl
        )
        for options, trl, message in [
            ({"importance_sampling_level": "sequence"}, {}, "multiplies the advantage of a token"),
            ({"multi_objective_aggregation": "normalize_then_sum"}, {}, "normalises each reward on its own"),
            ({"loss_type": "vespo"}, {}, "vespo.* a factor of its whole completion"),
            ({}, {"tools": [print]}, "text that the policy did not write"),
            ({}, {"rollout_func": print}, "rollout_func: .* text that the policy did not write"),
        ]:
            with self.assertRaisesRegex(ValueError, message):
                make(options, **trl)
        self.assertTrue(make({"importance_sampling_level": "sequence"}, allow_sequence_ratio=True))

    def test_reordered_rows_are_detected(self):
        class Other(Recording):
            def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
                return super()._calculate_rewards(inputs, prompts, completions, completion_ids_list[::-1])

        trainer = Other(
            DEMO, self.scorer, config(self.folder, max_steps=1), train_dataset=questions(4),
            peft_config=paper_lora(r=8, lora_alpha=16),
        )
        with self.assertRaisesRegex(RuntimeError, "are not those that were scored"):
            trainer.train()

    def test_missing_column_is_named_in_error(self):
        reward = CorverReward(self.scorer, answers="golds")
        with self.assertRaisesRegex(ValueError, "no column 'golds'; answers=… names the right one, or None"):
            reward(["q"], ["a"], [[1]])
        self.assertEqual(len(CorverReward(self.scorer, answers=None)(["q"], ["a"], [[1]])), 1)

    def test_question_is_last_user_message(self):
        reward = CorverReward(self.scorer, answers=None)
        conversation = [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "u"}]}]
        reward([conversation, "text"], [[{"role": "assistant", "content": "A."}], "B."], [[1], [2]])
        self.assertEqual([(score.question, score.text) for score in reward.scores], [("u", "A."), ("text", "B.")])
        reward(["p"], ["a"], [[1]], other=["x"])
        named = CorverReward(self.scorer, answers=None, question="other")
        named(["p"], ["a"], [[1]], other=["x"])
        self.assertEqual(named.scores[0].question, "x")

    def test_paper_config_matches_paper_settings(self):
        args = paper_config(output_dir=self.folder, use_cpu=True, bf16=False)
        self.assertEqual(args.per_device_train_batch_size * args.gradient_accumulation_steps, 24 * 16)
        self.assertEqual((args.loss_type, args.beta, args.epsilon, args.scale_rewards), ("grpo", 0.001, 0.2, "group"))
        self.assertEqual(args.get_warmup_steps(100), 3)
        self.assertEqual(paper_config(output_dir=self.folder, use_cpu=True, bf16=False, beta=0.01).beta, 0.01)
        for model, expected in (
            ("Qwen/Qwen3-8B", (1e-5, 0.001)),
            ("allenai/OLMo-2-1124-13B-Instruct", (3e-6, 0.01)),
            ("Qwen/Qwen3-14B", (2.5e-5, 0.0)),
            ("/models/Qwen3-14B/", (2.5e-5, 0.0)),
        ):
            args = paper_config(model, output_dir=self.folder, use_cpu=True, bf16=False)
            self.assertEqual((args.learning_rate, args.beta), expected, model)
        args = paper_config("Qwen/Qwen3-14B", output_dir=self.folder, use_cpu=True, bf16=False, beta=0.1)
        self.assertEqual((args.learning_rate, args.beta), (2.5e-5, 0.1))
        lora = paper_lora()
        self.assertEqual((lora.r, lora.lora_alpha, len(lora.target_modules)), (128, 256, 7))


if __name__ == "__main__":
    unittest.main()
