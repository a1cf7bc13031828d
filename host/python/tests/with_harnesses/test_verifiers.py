"""CorVer in the real verifiers (0.4.0), without a model or a server: tasks score traces that are made by hand."""

import asyncio
import os
import re
import sys
import tempfile
import tomllib
import unittest
from pathlib import Path
from unittest import mock

import verifiers.v1 as vf
from verifiers.v1.errors import TaskError
from verifiers.v1.graph import MessageNode
from verifiers.v1.types import AssistantMessage, UserMessage
from verifiers.v1.utils.loaders import resolve_env_config

import corver
from corver.verifiers import _reply

sys.path.insert(0, str(Path(__file__).parents[2] / "environments" / "corver_qa"))
sys.path.insert(0, str(Path(__file__).parents[1]))
from examples import checked

PAGE = Path(__file__).parents[4] / "docs" / "integrations.md"
QUESTION, GOLD = "Where was Driaterk Thiahava born?", "Old Riavuck"
RIGHT = f"<think>Driaterk Thiahava was born in {GOLD}.</think><answer>{GOLD}</answer>"
PARTS = ["corver/judge", "corver/format", "corver/sentences"]


class QuestionData(vf.TaskData):
    answers: list[str] = []


class Question(vf.Task[QuestionData]):
    """A task of somebody else's, with a reward of its own."""

    @vf.reward(weight=0.5)
    async def brevity(self, trace: vf.Trace) -> float:
        return 1.0


def node(message, parent, token_ids=(), sampled=0):
    """A node whose last `sampled` tokens are the policy's."""
    mask = [False] * (len(token_ids) - sampled) + [True] * sampled
    is_reply = isinstance(message, AssistantMessage)
    return MessageNode(parent=parent, message=message, sampled=is_reply, token_ids=list(token_ids), mask=mask)


def trace(task, *replies):
    """A trace of the question and its replies, each a message with its token ids."""
    nodes = [node(UserMessage(content=task.data.prompt_text), None, [1, 2])]
    for message, token_ids in replies:
        nodes.append(node(message, len(nodes) - 1, [3, *token_ids] if token_ids else [], len(token_ids)))
    return vf.Trace(
        task=vf.TraceTask(type=type(task).__name__, data=task.data), agent=vf.AgentInfo(config=vf.AgentConfig()), nodes=nodes, ok=True
    )


def scored(task, *replies):
    made = trace(task, *replies)
    asyncio.run(task.score(made))
    return made


def page_examples():
    """Returns the tasksets of the page's TOML: another package's, and corver-qa's."""
    section = PAGE.read_text().split("## verifiers")[1].split("\n## ")[0]
    examples = re.findall(r"```toml\n(.*?)```", section, re.DOTALL)
    return [tomllib.loads(example)["env"]["taskset"] for example in examples]


def plugged(**fields):
    """A task of another package, with the reward that the page's TOML plugs in."""
    config = vf.TaskConfig.model_validate(page_examples()[0]["task"])
    return Question(QuestionData(prompt=QUESTION, **fields), config)


class Verifiers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scorer = corver.Scorer(config="demo")
        cls.tokenizer = corver.demo().policy

    def setUp(self):
        others = {name: value for name, value in os.environ.items() if not name.startswith("CORVER_")}
        environment = mock.patch.dict(os.environ, {**others, "CORVER_CONFIG": "demo"}, clear=True)
        environment.start()
        self.addCleanup(environment.stop)

    def score(self, text, answers):
        return self.scorer.score([text], [QUESTION], [answers])[0]

    def test_reward_plugged_by_toml_adds_named_parts(self):
        made = scored(plugged(answers=[GOLD]), (AssistantMessage(content=RIGHT), []))
        expected = self.score(RIGHT, [GOLD])
        self.assertEqual(sorted(made.rewards), sorted(["brevity", *PARTS]))
        for part in PARTS:
            self.assertAlmostEqual(made.rewards[part].value, expected.return_parts[part.removeprefix("corver/")], places=6)
        self.assertAlmostEqual(made.reward, expected.reward + 0.5, places=6)
        self.assertIsNone(made.info["corver"]["returns"])
        sentences = made.info["corver"]["sentences"]
        self.assertEqual([(s["text"], s["count"]) for s in sentences], [(s.text, s.count) for s in expected.sentences])
        self.assertEqual(vf.WireTrace.model_validate(made.to_record()).info["corver"], made.info["corver"])

    def test_sampled_tokens_get_their_returns(self):
        rows = checked()[:8]
        for row in rows:
            task = Question(QuestionData(prompt=row["question"], answers=row["answers"]), plugged().config)
            with mock.patch.dict(os.environ, CORVER_TOKENIZER=self.tokenizer):
                made = scored(task, (AssistantMessage(content="not read"), row["tokens"]))
            self.assertEqual(made.info["corver"]["returns"], row["returns"])
            mean = sum(row["returns"]) / len(row["returns"])
            self.assertAlmostEqual(sum(made.rewards[part].value for part in PARTS), mean, places=5)

    def test_last_of_several_replies_is_scored_as_text(self):
        with mock.patch.dict(os.environ, CORVER_TOKENIZER=self.tokenizer):
            made = scored(plugged(answers=[GOLD]), (AssistantMessage(content="Hm."), [5]), (AssistantMessage(content=RIGHT), [6]))
        self.assertIsNone(made.info["corver"]["returns"])
        self.assertAlmostEqual(made.reward, self.score(RIGHT, [GOLD]).reward + 0.5, places=6)

    def test_reasoning_is_part_of_the_completion(self):
        message = AssistantMessage(reasoning_content=f"Driaterk Thiahava was born in {GOLD}.", content=f"<answer>{GOLD}</answer>")
        made = scored(plugged(answers=[GOLD]), (message, []))
        self.assertAlmostEqual(made.reward, self.score(RIGHT, [GOLD]).reward + 0.5, places=6)

    def test_reasoning_that_was_cut_off_stays_open(self):
        text = f"Driaterk Thiahava was born in {GOLD}. <answer>{GOLD}</answer>"
        made = trace(plugged(answers=[GOLD]), (AssistantMessage(reasoning_content=text, content=""), []))
        self.assertEqual(_reply(made), f"<think>{text}")

    def test_missing_field_of_golds_is_named_in_error(self):
        class Other(vf.Task[vf.TaskData]):
            pass

        task = Other(vf.TaskData(prompt=QUESTION), plugged().config)
        with self.assertRaisesRegex(TaskError, "no field 'answers'; CORVER_ANSWERS names the right one"):
            scored(task, (AssistantMessage(content=RIGHT), []))
        with mock.patch.dict(os.environ, CORVER_ANSWERS=""):
            made = scored(task, (AssistantMessage(content=RIGHT), []))
        self.assertEqual(made.rewards["corver/judge"].value, 0.0)


class Environment(unittest.TestCase):
    """The package `corver_qa`, as verifiers loads it by its id."""

    def taskset(self, **options):
        config = resolve_env_config({"taskset": {"id": "corver-qa", **options}}).taskset
        from corver_qa import CorverTaskset

        return CorverTaskset(config)

    def test_demo_questions_are_rewarded_per_token(self):
        tasks = list(self.taskset(task={"settings": "demo", "tokenizer": corver.demo().policy}))
        self.assertEqual([task.data.prompt for task in tasks], [row.question for row in corver.demo().train])
        row = checked()[0]
        task = next(task for task in tasks if task.data.prompt == row["question"])
        self.assertEqual(task.data.answers, row["answers"])
        made = scored(task, (AssistantMessage(content=""), row["tokens"]))
        self.assertEqual(made.info["corver"]["returns"], row["returns"])
        self.assertEqual(sorted(made.rewards), sorted(PARTS))

    def test_example_of_page_is_valid(self):
        example = page_examples()[1]
        config = resolve_env_config({"taskset": dict(example)}).taskset
        self.assertEqual(config.questions, example["questions"])
        self.assertEqual((config.task.settings, config.task.tokenizer), tuple(example["task"].values()))

    def test_question_file_is_read(self):
        for text in ('[{"question": "Who?", "answer": "Ada"}]', '{"question": "Who?", "answers": ["Ada"]}\n'):
            with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
                file.write(text)
                file.flush()
                (task,) = self.taskset(questions=file.name)
            self.assertEqual((task.data.prompt, task.data.answers), ("Who?", ["Ada"]))
            self.assertIn("<think>brief reasoning</think>", task.data.system_prompt)

    def test_system_prompt_is_the_papers(self):
        source = (PAGE.parents[1] / "host" / "settings" / "src" / "policy.rs").read_text()
        (prompt,) = re.findall(r'PAPER_TRAINING_PROMPT: &str = "(.*?)";', source, re.DOTALL)
        from corver_qa.taskset import SYSTEM_PROMPT

        self.assertEqual(SYSTEM_PROMPT, prompt.replace("\\\n", ""))


if __name__ == "__main__":
    unittest.main()
