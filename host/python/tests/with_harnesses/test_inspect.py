"""CorVer in the real Inspect AI (0.3.285), offline: no model is asked."""

import importlib.util
import math
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.log import read_eval_log
from inspect_ai.model import ChatMessageAssistant, ContentReasoning, ContentText, ModelOutput
from inspect_ai.solver import solver

import corver
from corver.inspect import factuality

PAGE = Path(__file__).parents[4] / "docs" / "integrations.md"
QUESTION, GOLD = "Where was Driaterk Thiahava born?", "Old Riavuck"
RIGHT = f"<think>Driaterk Thiahava was born in {GOLD}. I think so.</think><answer>{GOLD}</answer>"
WRONG = "<think>Driaterk Thiahava was born in Lower Xyzzy.</think><answer>Lower Xyzzy</answer>"
EMPTY = "No idea."


@solver
def completion():
    """Sets the output to the completion in the sample's metadata."""

    async def solve(state, _generate):
        state.output = ModelOutput.from_content("none", state.metadata["completion"])
        return state

    return solve


@solver
def said(text):
    """Sets the output to a text."""

    async def solve(state, _generate):
        state.output = ModelOutput.from_content("none", text)
        return state

    return solve


def task(samples, **options):
    return Task(dataset=samples, solver=completion(), **options)


def sample(text, target=GOLD):
    return Sample(input=QUESTION, target=target, metadata={"completion": text})


class Inspect(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def run_task(self, task, **options):
        (log,) = eval(task, model="none/none", log_dir=self.folder, display="none", **options)
        self.assertEqual(log.status, "success", log.error)
        return log

    def test_log_has_sentences_with_counts_and_means(self):
        log = self.run_task(task([sample(RIGHT), sample(WRONG), sample(EMPTY, target="")], scorer=factuality(config="demo")))
        log = read_eval_log(log.location)
        right, wrong, empty = (each.scores["factuality"] for each in log.samples)
        texts = [RIGHT, WRONG, EMPTY]
        expected = corver.Scorer(config="demo").score(texts, [QUESTION] * 3, [[GOLD], [GOLD], []])
        for score, scored in zip((right, wrong, empty), expected, strict=True):
            self.assertAlmostEqual(score.value["reward"], scored.reward)
            sentences = score.metadata["sentences"]
            self.assertEqual(
                [(s["text"], s["section"], s["count"]) for s in sentences],
                [(s.text, s.section, s.count) for s in scored.sentences],
            )
        self.assertEqual((right.value["accuracy"], right.value["supported"]), (1.0, 1.0))
        self.assertEqual((wrong.value["accuracy"], wrong.value["supported"]), (0.0, 0.0))
        self.assertTrue(math.isnan(empty.value["accuracy"]) and math.isnan(empty.value["supported"]))
        self.assertEqual(right.explanation.splitlines()[0], f"[count ≥ 20, +0.10] Driaterk Thiahava was born in {GOLD}.")
        self.assertEqual(right.explanation.splitlines()[1], "[no count] I think so.")
        means = {score.name: (score.metrics["mean"].value, score.scored_samples) for score in log.results.scores}
        self.assertEqual((means["accuracy"], means["supported"]), ((0.5, 2), (0.5, 2)))
        self.assertAlmostEqual(means["reward"][0], sum(scored.reward for scored in expected) / 3)

    def test_reasoning_is_part_of_the_completion(self):
        @solver
        def reasoning():
            async def solve(state, _generate):
                parts = [
                    ContentReasoning(reasoning=f"Driaterk Thiahava was born in {GOLD}. I think so."),
                    ContentText(text=f"<answer>{GOLD}</answer>"),
                ]
                message = ChatMessageAssistant(content=parts)
                state.output = ModelOutput.from_message(message)
                return state

            return solve

        log = self.run_task(Task(dataset=[sample("")], solver=reasoning(), scorer=factuality(config="demo")))
        score = log.samples[0].scores["factuality"]
        self.assertEqual([sentence["section"] for sentence in score.metadata["sentences"]], ["think", "think", "answer"])
        self.assertEqual((score.value["accuracy"], score.value["supported"]), (1.0, 1.0))

    def test_example_of_page_runs(self):
        section = PAGE.read_text().split("## Inspect AI")[1].split("\n## ")[0]
        (example,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
        file = Path(self.folder, "questions.py")
        file.write_text(example.replace("corver.toml", "demo"))
        spec = importlib.util.spec_from_file_location("questions", file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        log = self.run_task(module.questions(), solver=said(RIGHT))
        self.assertEqual(log.samples[0].scores["factuality"].value["accuracy"], 1.0)

    def test_existing_log_is_scored_by_name(self):
        log = self.run_task(task([sample(RIGHT), sample(WRONG)]))
        out = Path(self.folder, "scored.eval")
        command = [
            Path(sys.executable).with_name("inspect"), "score", log.location, "--scorer", "corver/factuality", "-S", "config=demo",
            "--output-file", out, "--display", "none",
        ]  # fmt: skip
        run = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "NO_COLOR": "1"})
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        means = {score.name: score.metrics["mean"].value for score in read_eval_log(str(out)).results.scores}
        self.assertEqual(means["accuracy"], 0.5)


if __name__ == "__main__":
    unittest.main()
