"""The taskset: one task for each question of a file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import verifiers.v1 as vf
from pydantic import model_validator

import corver
import corver.verifiers
from corver._golds import parse_golds

#: The paper's system prompt of training (host/settings/src/policy.rs).
SYSTEM_PROMPT = """
Answer using this exact format:
<think>brief reasoning</think>
<answer>direct answer</answer>

Rules:
- Keep the entire response under 1000 tokens.
- In <think> AND <answer>, always use full entity names; never pronouns (he, she, it, they, this, that, them, his, her, its, their). \
Repeat the entity name each sentence.
- Do not loop or repeat the same point or phrase.
- If you genuinely do not know, reply exactly: <think>unknown</think><answer>I don't know</answer>"""


class CorverData(vf.TaskData):
    """A question with its golds."""

    answers: list[str] = []


class CorverTaskConfig(vf.TaskConfig):
    """Settings of the reward."""

    settings: str | None = None
    """Settings file of the reward (TOML), or ``demo``. None: the file in CORVER_CONFIG."""
    tokenizer: str | None = None
    """tokenizer.json of the policy, or its folder, for the return of each token. None: the path in CORVER_TOKENIZER."""


class CorverTask(vf.Task[CorverData, vf.State, CorverTaskConfig]):
    """A question, rewarded by `corver.verifiers.reward`."""

    @vf.reward
    async def corver(self, trace: vf.Trace) -> dict[str, float]:
        return await corver.verifiers.reward(self.data, trace, self.config.settings, self.config.tokenizer)


class CorverConfig(vf.TasksetConfig):
    """Questions, and the settings of their tasks."""

    questions: str = "demo"
    """JSON list or JSON lines with ``question`` and golds in each record, or ``demo``."""
    token_advantages: bool = False
    """In prime-rl: true gives each token an advantage of its own (`corver.prime_rl`). It needs the policy's tokenizer."""
    task: CorverTaskConfig = CorverTaskConfig()

    @model_validator(mode="after")
    def _register(self) -> CorverConfig:
        # The only code of ours that prime-rl's orchestrator runs before it builds the algorithm.
        if self.token_advantages:
            from corver import prime_rl

            prime_rl.register()
        return self


class CorverTaskset(vf.Taskset[CorverTask, CorverConfig]):
    """The questions of a file."""

    def load(self) -> Iterator[CorverTask]:
        for question, answers in _questions(self.config.questions):
            data = CorverData(prompt=question, system_prompt=SYSTEM_PROMPT, answers=answers)
            yield CorverTask(data, self.config.task)


def _questions(source: str) -> Iterator[tuple[str, list[str]]]:
    if source == "demo":
        yield from corver.demo().train
        return
    text = Path(source).read_text()
    records = json.loads(text) if text.lstrip().startswith("[") else [json.loads(line) for line in text.splitlines() if line.strip()]
    for record in records:
        yield record["question"], parse_golds(record)
