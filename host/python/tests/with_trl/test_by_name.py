"""TRL's own command line, which imports the reward by name and reads settings from CORVER_CONFIG."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from test_trl import DEMO, questions

import corver


class CommandLine(unittest.TestCase):
    def test_trl_grpo_trains_with_reward_by_name(self):
        with tempfile.TemporaryDirectory() as folder:
            data = Path(folder, "data")
            data.mkdir()
            questions(4).to_json(data / "train.jsonl")
            settings = Path(folder, "corver.toml")
            settings.write_text(
                f'[rule]\nplugin = ["first.wasm"]\n[corpus]\nindex = ["demo"]\n[extract]\nmodel = "{corver.demo().extractor}"\n'
            )
            out = Path(folder, "out")
            command = [
                Path(sys.executable).with_name("trl"), "grpo", "--reward_funcs", "corver.reward.trl",
                "--model_name_or_path", DEMO, "--dataset_name", data, "--output_dir", out,
                "--use_cpu", "true", "--bf16", "false", "--report_to", "none", "--max_steps", "2", "--logging_steps", "1",
                "--num_generations", "4", "--per_device_train_batch_size", "4", "--max_completion_length", "24",
                "--gradient_checkpointing", "false", "--learning_rate", "1e-3",
                "--save_strategy", "steps", "--save_steps", "2",
            ]  # fmt: skip
            environment = {**os.environ, "CORVER_CONFIG": str(settings), "HF_HUB_OFFLINE": "1"}
            run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
            self.assertEqual(run.returncode, 0, run.stderr[-3000:])
            state = json.loads((out / "checkpoint-2" / "trainer_state.json").read_text())
        steps = [log for log in state["log_history"] if "rewards/corver/mean" in log]
        self.assertEqual(len(steps), 2)
        for log in steps:
            self.assertAlmostEqual(log["reward"], log["rewards/corver/mean"], places=5)
            parts = log["corver/judge"] + log["corver/format"] + log["corver/sentence_return"]
            self.assertAlmostEqual(log["reward"], parts, places=4)


if __name__ == "__main__":
    unittest.main()
