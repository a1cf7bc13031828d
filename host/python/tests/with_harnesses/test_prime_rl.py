"""CorVer's advantages in prime-rl's real orchestrator classes (0.8, from source), on the CPU and without a model."""

import asyncio
import sys
import unittest
from pathlib import Path
from unittest import mock

import pydantic
import verifiers.v1 as vf
from prime_rl.configs.algorithm import AlgoConfig
from prime_rl.configs.orchestrator import EnvConfig
from prime_rl.orchestrator import algo
from verifiers.v1.graph import MessageNode
from verifiers.v1.types import AssistantMessage, UserMessage
from verifiers.v1.utils.loaders import resolve_env_config

import corver
from corver import prime_rl

sys.path.insert(0, str(Path(__file__).parents[2] / "environments" / "corver_qa"))
sys.path.insert(0, str(Path(__file__).parents[1]))
from examples import checked


def algorithm(**options):
    config = pydantic.TypeAdapter(AlgoConfig).validate_python({"type": "grpo", **options})
    return algo.build_algorithm(config, mock.MagicMock())


def episode(task, token_ids, rewards=None, info=None):
    """An episode with one trace: a prompt of two tokens, a header of one, and the sampled tokens."""
    reply = AssistantMessage(content="A")
    nodes = [
        MessageNode(parent=None, message=UserMessage(content="U"), token_ids=[1, 2], mask=[False] * 2),
        MessageNode(
            parent=0, message=reply, sampled=True, token_ids=[3, *token_ids], mask=[False] + [True] * len(token_ids),
            logprobs=[-0.1] * len(token_ids),
        ),
    ]  # fmt: skip
    trace = vf.Trace(
        task=vf.TraceTask(type=type(task).__name__, data=task.data), agent=vf.AgentInfo(config=vf.AgentConfig()), nodes=nodes, ok=True,
        rewards={name: vf.Reward(score=score, weight=weight) for name, (score, weight) in (rewards or {}).items()},
        info=info or {},
    )  # fmt: skip
    return vf.Episode(env=vf.EnvInfo(id="e", name="e"), task=trace.task, group=vf.GroupInfo(id="g"), traces=[trace])


def advantages(episodes):
    """Returns the advantages of the branches, of which prime-rl makes its samples, without those of the prompt, which are 0."""
    rows = []
    for each in episodes:
        (branch,) = each.traces[0].branches
        assert branch.advantages[:3] == [0.0] * 3
        rows.append(branch.advantages[3:])
    return rows


class Tasks(unittest.TestCase):
    def setUp(self):
        original = dict(algo.ALGORITHM_CLASSES)
        self.addCleanup(algo.ALGORITHM_CLASSES.update, original)
        found = mock.patch("corver.prime_rl.version", return_value="0.8.1.dev67")
        found.start()
        self.addCleanup(found.stop)

    def taskset(self, **options):
        task = {"settings": "demo", "tokenizer": corver.demo().policy}
        config = resolve_env_config({"taskset": {"id": "corver-qa", "task": task, **options}}).taskset
        from corver_qa import CorverTaskset

        return CorverTaskset(config)

    def test_environment_gives_the_hosts_advantages(self):
        rows = checked()[:4]
        (task,) = [task for task in self.taskset(token_advantages=True) if task.data.prompt == rows[0]["question"]]
        episodes = [episode(task, row["tokens"]) for row in rows]
        for each in episodes:
            asyncio.run(task.score(each.traces[0]))
        asyncio.run(algorithm().finalize_group(episodes))
        for found, row in zip(advantages(episodes), rows, strict=True):
            self.assertEqual(len(found), len(row["advantages"]))
            for one, other in zip(found, row["advantages"], strict=True):
                self.assertAlmostEqual(one, other, places=6)
        self.assertTrue(any(len(set(row)) > 1 for row in advantages(episodes)))

    def test_orchestrators_configuration_registers(self):
        for is_asked, expected in ((False, algo.GRPOAlgorithm), (True, prime_rl.PerTokenGRPO)):
            EnvConfig.model_validate({"env": {"taskset": {"id": "corver-qa", "token_advantages": is_asked}}})
            self.assertIs(algo.ALGORITHM_CLASSES["grpo"], expected)

    def made(self, returns, weight=1.0, other=0.0):
        """Episodes with these returns."""
        task = next(iter(self.taskset()))
        rewards = {"corver/judge": (0.0, weight), "brevity": (other, 1.0)}
        return [episode(task, range(len(row)), rewards, {"corver": {"returns": row}}) for row in returns]

    def test_other_rewards_and_weight_apply_to_every_token(self):
        prime_rl.register()
        plain, weighted = self.made([[1.0, 3.0], [4.0]]), self.made([[1.0, 3.0], [4.0]], weight=2.0)
        weighted[1].traces[0].rewards["brevity"].score = 4.0
        for episodes in (plain, weighted):
            asyncio.run(algorithm().finalize_group(episodes))
        # By hand: means 2 and 4, spread sqrt(2); then 4 and 12, spread 8 / sqrt(2).
        scale, larger = 2**0.5 + 1e-4, 8 / 2**0.5 + 1e-4
        self.assertEqual([[round(a, 9) for a in row] for row in advantages(plain)], [[round(-2 / scale, 9), 0.0], [round(1 / scale, 9)]])
        expected = [[round(-6 / larger, 9), round(-2 / larger, 9)], [round(4 / larger, 9)]]
        self.assertEqual([[round(a, 9) for a in row] for row in advantages(weighted)], expected)

    def test_single_trace_has_zero_advantage(self):
        prime_rl.register()
        episodes = self.made([[1.0, 3.0]])
        asyncio.run(algorithm().finalize_group(episodes))
        self.assertEqual(advantages(episodes), [[0.0, 0.0]])

    def test_other_environments_keep_prime_rls_advantages(self):
        prime_rl.register()
        task = next(iter(self.taskset()))
        episodes = [episode(task, [5, 6], {"r": (score, 1.0)}) for score in (1.0, 3.0)]
        asyncio.run(algorithm().finalize_group(episodes))
        self.assertEqual(advantages(episodes), [[-1.0, -1.0], [1.0, 1.0]])

    def test_trace_without_returns_is_an_error(self):
        prime_rl.register()
        episodes = self.made([[1.0, 3.0], [4.0]])
        episodes[1].traces[0].info["corver"]["returns"] = None
        with self.assertRaisesRegex(corver.CorverError, "CORVER_TOKENIZER"):
            asyncio.run(algorithm().finalize_group(episodes))

    def test_length_penalty_is_rejected(self):
        prime_rl.register()
        with self.assertRaisesRegex(ValueError, "length_penalty"):
            algorithm(length_penalty={"type": "linear"})

    def test_other_release_is_rejected(self):
        for found in ("0.9.0", "0.80.1"):
            with mock.patch("corver.prime_rl.version", return_value=found), self.assertRaisesRegex(corver.CorverError, found):
                prime_rl.register()
        self.assertIs(algo.ALGORITHM_CLASSES["grpo"], algo.GRPOAlgorithm)


if __name__ == "__main__":
    unittest.main()
