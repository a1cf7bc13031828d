"""CorVer in verl, against the real verl 0.9.1 on the CPU, without Ray: its reward loop, agent loop worker and estimators."""

import asyncio
import os
import pickle
import socket
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest
import trainers

trainers.need("verl")

import hydra
import torch
from tensordict import TensorDict
from transformers import AutoTokenizer
from verl import DataProto
from verl.experimental.agent_loop import AgentLoopOutput
from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop
from verl.experimental.reward_loop.reward_loop import RewardLoopWorker, migrate_legacy_reward_impl
from verl.trainer.ppo.core_algos import get_adv_estimator_fn
from verl.trainer.ppo.v1 import agent_loop_tq
from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories
from verl.utils.config import validate_config
from verl.utils.dataset.rl_dataset import RLHFDataset

import corver
import corver.verl.plugin
from corver._native import group_baselines
from corver.verl import compute_score
from corver.verl.agent_loop import PerTokenAgentLoop, PerTokenOutput
from corver.verl.reward import ROLLOUT, TOKEN_REWARDS

EXAMPLE = trainers.EXAMPLES / "verl"
SCORER = {"plugin": "first.wasm", "index": "demo", "extractor": "demo"}
QUESTION, GOLD = "Where was Driaterk Thiahava born?", "Old Riavuck"
RIGHT = f"<think>Driaterk Thiahava was born in {GOLD}. That is what I remember.</think><answer>{GOLD}</answer>"
WRONG = "<think>Driaterk Thiahava was born in Lower Xyzzy. That is what I remember.</think><answer>Lower Xyzzy</answer>"
EPSILON = 1e-4


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(trainers.POLICY)


@pytest.fixture(scope="module")
def scorer():
    return corver.Scorer(**SCORER)


def verl_config(*overrides):
    with hydra.initialize_config_module("verl.trainer.config", version_base=None):
        settings = subprocess.run([sys.executable, "-m", "corver.verl"], check=True, capture_output=True, text=True)
        config = hydra.compose(
            "ppo_trainer",
            [
                *settings.stdout.split(),
                *(f"+reward.custom_reward_function.reward_kwargs.{key}={value}" for key, value in SCORER.items()),
                f"actor_rollout_ref.model.path={trainers.POLICY}",
                "actor_rollout_ref.rollout.name=vllm",
                "actor_rollout_ref.rollout.n=2",
                *overrides,
            ],
        )
    return migrate_legacy_reward_impl(config)


def row(tokenizer, text, *, extra_info=None, extra_fields=None):
    """A batch of one, as the agent loop sends it to the reward loop."""
    prompt, response = (tokenizer.encode(part, return_tensors="pt") for part in (QUESTION, text))
    return DataProto(
        batch=TensorDict(
            {
                "prompts": prompt,
                "responses": response,
                "attention_mask": torch.ones(1, prompt.shape[1] + response.shape[1], dtype=torch.long),
            },
            batch_size=1,
        ),
        non_tensor_batch={
            "data_source": np.array(["demo"]),
            "reward_model": np.array([{"style": "rule", "ground_truth": GOLD}], dtype=object),
            "extra_info": np.array([extra_info or {"question": QUESTION}], dtype=object),
            "tool_extra_fields": np.array([extra_fields or {}], dtype=object),
            "__num_turns__": np.array([2]),
        },
    )


def reward(worker, data):
    return asyncio.get_event_loop().run_until_complete(worker.compute_score(data))


@pytest.fixture(scope="module", autouse=True)
def event_loop():
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield loop
    loop.close()


def test_reward_loop_gets_scorer_reward(tokenizer, scorer):
    worker = RewardLoopWorker(verl_config())
    right, wrong = (reward(worker, row(tokenizer, text)) for text in (RIGHT, WRONG))
    [expected, lower] = scorer.score(completions=[RIGHT, WRONG], questions=[QUESTION] * 2, answers=[[GOLD]] * 2)
    assert right["reward_score"] == pytest.approx(expected.reward)
    assert wrong["reward_score"] == pytest.approx(lower.reward)
    assert lower.reward < expected.reward
    assert (right["reward_extra_info"]["acc"], wrong["reward_extra_info"]["acc"]) == (1.0, 0.0)
    assert right["reward_extra_info"].keys() == wrong["reward_extra_info"].keys()
    assert TOKEN_REWARDS not in right["reward_extra_info"]


def test_token_ids_yield_reward_per_token(tokenizer, scorer):
    ids = tokenizer.encode(RIGHT)
    rollout = {ROLLOUT: {"question": QUESTION, "token_ids": ids, "tokenizer": trainers.POLICY}}
    result = reward(RewardLoopWorker(verl_config()), row(tokenizer, RIGHT, extra_fields=rollout))
    [expected] = scorer.score(completion_ids=[ids], tokenizer=trainers.POLICY, questions=[QUESTION], answers=[[GOLD]])
    rewards = result["reward_extra_info"][TOKEN_REWARDS]
    assert len(rewards) == len(ids)
    assert sum(rewards) == pytest.approx(result["reward_score"])
    assert [value * len(ids) for value in rewards] == pytest.approx(expected.returns)
    assert len(set(expected.returns)) > 1, "a sentence has its own reward"


def score(text=RIGHT, ground_truth=GOLD, extra_info=None, **kwargs):
    call = compute_score("demo", text, ground_truth, extra_info, **SCORER | kwargs)
    return asyncio.get_event_loop().run_until_complete(call)


@pytest.mark.parametrize(
    "ground_truth",
    [
        GOLD,
        [GOLD, "elsewhere"],
        np.array(["elsewhere", GOLD]),
        {"target": np.array([GOLD])},
        {"value": "elsewhere", "aliases": [GOLD]},
        f'["{GOLD}", "elsewhere"]',
        f"elsewhere; {GOLD}",
    ],
)
def test_ground_truth_shapes_are_accepted(ground_truth):
    assert score(ground_truth=ground_truth)["acc"] == 1.0


@pytest.mark.parametrize("ground_truth", [None, "", [], np.array([])])
def test_judge_reward_is_zero_without_gold(ground_truth):
    result = score(ground_truth=ground_truth)
    assert (result["corver/judge"], result["acc"], result["corver/error"]) == (0.0, 0.0, 0.0)


def test_unscorable_completion_gets_zero_and_error_flag(caplog):
    good, bad = score(), score(ground_truth={"solution": GOLD})
    assert bad.keys() == good.keys()
    assert (bad["score"], bad["corver/error"], good["corver/error"]) == (0.0, 1.0, 0.0)
    assert "`label` is an object with the fields solution" in caplog.text
    with pytest.raises(ValueError, match="with the fields solution"):
        score(ground_truth={"solution": GOLD}, strict=True)


def test_invalid_scorer_arguments_are_rejected():
    with pytest.raises(Exception, match="no-such-rule"):
        score(plugin="no-such-rule.wasm")


def test_concurrent_calls_get_own_scores():
    async def both():
        calls = [compute_score("demo", text, GOLD, {"question": QUESTION}, **SCORER) for text in [RIGHT, WRONG] * 8]
        return await asyncio.gather(*calls)

    results = asyncio.get_event_loop().run_until_complete(both())
    assert [result["acc"] for result in results] == [1.0, 0.0] * 8


def test_server_scores_equal_local_scores(tokenizer):
    ids = [*tokenizer.encode(RIGHT), tokenizer.eos_token_id]
    rollout = {ROLLOUT: {"question": QUESTION, "token_ids": ids, "tokenizer": trainers.POLICY}}
    here = score(extra_info=rollout)
    with trainers.served() as address, socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))  # and never listens
        addresses = f"http://127.0.0.1:{deaf.getsockname()[1]},{address}"
        for _ in range(2):
            call = compute_score("demo", RIGHT, GOLD, rollout, url=addresses, strict=True)
            there = asyncio.get_event_loop().run_until_complete(call)
            assert there.pop(TOKEN_REWARDS) == pytest.approx(here[TOKEN_REWARDS])
            assert there == pytest.approx({key: value for key, value in here.items() if key != TOKEN_REWARDS})


def test_lost_server_gives_zero_reward_and_error():
    with trainers.served() as address:
        assert (scored := served_score(address))["corver/error"] == 0.0
    gone = served_score(address)
    assert (gone["score"], gone["corver/error"], gone.keys()) == (0.0, 1.0, scored.keys())


def test_absent_server_fails_without_second_wait():
    with pytest.raises(corver.CorverError, match="no answer from"):
        served_score("http://127.0.0.1:9")
    began = time.monotonic()
    with pytest.raises(corver.CorverError, match="no answer from"):
        served_score("http://127.0.0.1:9")
    assert time.monotonic() - began < 1


def served_score(address):
    call = compute_score("demo", RIGHT, GOLD, url=address, timeout_s=2)
    return asyncio.get_event_loop().run_until_complete(call)


class Sampled:
    """Replaces vLLM: returns one response per call."""

    def __init__(self, responses):
        self._responses = list(responses)

    async def generate(self, **_request):
        return SimpleNamespace(
            token_ids=self._responses.pop(0), log_probs=None, routed_experts=None, num_preempted=0, extra_fields={}
        )


def roll_out(config, tokenizer, responses, monkeypatch):
    """Returns the rows that verl's own agent loop worker puts into the transfer queue for one prompt."""
    rows = {}

    async def put(*, keys, fields, tags, partition_id):
        for position, key in enumerate(keys):
            rows[key] = fields[position]

    async def status(**_status):
        pass

    monkeypatch.setattr(agent_loop_tq.tq, "init", lambda *_: None)
    monkeypatch.setattr(agent_loop_tq.tq, "async_kv_batch_put", put)
    monkeypatch.setattr(agent_loop_tq.tq, "async_kv_put", status)
    reward_worker = RewardLoopWorker(config)

    async def remote(data):  # Ray passes a copy.
        return await reward_worker.compute_score(pickle.loads(pickle.dumps(data)))

    handle = SimpleNamespace(compute_score=SimpleNamespace(remote=remote))
    worker_class = agent_loop_tq.AgentLoopWorkerTQ.__ray_metadata__.modified_class
    worker = worker_class(config, Sampled(responses), None, [handle])
    prompt = {
        "uid": "question",
        "raw_prompt": [{"role": "user", "content": QUESTION}],
        "data_source": "demo",
        "reward_model": {"style": "rule", "ground_truth": GOLD},
        "extra_info": {"index": 0},
        "global_steps": 1,
        "agent_name": config.actor_rollout_ref.rollout.agent.default_agent_loop,
    }
    trajectory = {"step": 1, "sample_index": 0, "rollout_n": 0, "validate": False}
    asyncio.get_event_loop().run_until_complete(worker._run_prompt(prompt, {}, trajectory))
    return rows


def test_agent_loop_advantages_match_host(tokenizer, scorer, monkeypatch):
    right, wrong = [[*tokenizer.encode(text), tokenizer.eos_token_id] for text in (RIGHT, WRONG)]
    config = verl_config()
    rows = roll_out(config, tokenizer, [right, wrong], monkeypatch)
    assert sorted(rows) == ["question_0_0", "question_1_0"]
    # verl requests the completions concurrently, so either may be the first.
    responses = [rows[key]["responses"].tolist() for key in sorted(rows)]
    assert sorted(responses) == sorted([right, wrong])
    scores = scorer.score(completion_ids=responses, tokenizer=trainers.POLICY, questions=[QUESTION] * 2, answers=[[GOLD]] * 2)
    for key, ids, expected in zip(sorted(rows), responses, scores, strict=True):
        assert (rows[key]["rm_scores"] * len(ids)).tolist() == pytest.approx(expected.returns, abs=1e-5)
        extra_fields = rows[key]["extra_fields"]
        assert ROLLOUT not in extra_fields and TOKEN_REWARDS not in extra_fields["reward_extra_info"]
        assert extra_fields["reward_extra_info"]["acc"] == (1.0 if ids == right else 0.0)

    padded = torch.nn.utils.rnn.pad_sequence
    data = DataProto(
        batch=TensorDict(
            {
                "token_level_rewards": padded([rows[key]["rm_scores"] for key in sorted(rows)], batch_first=True),
                "response_mask": padded([rows[key]["response_mask"] for key in sorted(rows)], batch_first=True),
            },
            batch_size=2,
        ),
        non_tensor_batch={"uid": np.array([rows[key]["uid"] for key in sorted(rows)], dtype=object)},
    )
    data = compute_advantage_for_multi_trajectories(data, sorted(rows), config.algorithm.adv_estimator, config=config.algorithm)
    means = [expected.reward for expected in scores]
    [baseline] = group_baselines(means, 2)
    for position, expected in enumerate(scores):
        by_host = [(value - baseline.centre) / baseline.scale for value in expected.returns]
        got = data.batch["advantages"][position]
        assert got[: len(by_host)].tolist() == pytest.approx(by_host, abs=1e-4)
        assert not got[len(by_host) :].any()


def test_advantage_estimator_matches_hand_computed_values():
    # Returns (1, 3), (4), (7), (7, 7): the example of host/core/src/advantage/grpo.rs, its groups not next to each other.
    returns = torch.tensor([[1.0, 3.0], [7.0, 0.0], [4.0, 0.0], [7.0, 7.0]])
    mask = torch.tensor([[1, 1], [1, 0], [1, 0], [1, 1]])
    rewards = returns / mask.sum(dim=1, keepdim=True)
    groups = np.array(["a", "b", "a", "b"], dtype=object)
    advantages, got_returns = get_adv_estimator_fn("corver")(
        token_level_rewards=rewards, response_mask=mask, index=groups, config={}
    )
    scale = 2**0.5 + EPSILON
    assert advantages[0].tolist() == pytest.approx([-2.0 / scale, 0.0])
    assert advantages[2].tolist() == pytest.approx([1.0 / scale, 0.0])
    assert not advantages[1].any() and not advantages[3].any()
    assert torch.equal(got_returns, returns)
    unscaled, _ = get_adv_estimator_fn("corver")(
        token_level_rewards=rewards, response_mask=mask, index=groups, config={"norm_adv_by_std_in_grpo": False}
    )
    assert unscaled[0].tolist() == [-2.0, 0.0]


def test_single_completion_group_has_zero_advantage():
    rewards = torch.tensor([[1.0, 3.0], [2.0, 5.0], [4.0, 0.0]]) / 2
    mask = torch.ones_like(rewards, dtype=torch.long)
    groups = np.array(["a", "alone", "a"], dtype=object)
    for config in ({}, {"norm_adv_by_std_in_grpo": False}):
        advantages, returns = get_adv_estimator_fn("corver")(
            token_level_rewards=rewards, response_mask=mask, index=groups, config=config
        )
        assert advantages[1].tolist() == [0.0, 0.0]
        assert advantages[0].any() and advantages[2].any()
        assert torch.equal(returns, rewards * 2)


def test_advantage_estimator_rejects_incompatible_settings():
    def estimate(rewards, index=("a", "a"), config=None):
        rewards = torch.tensor(rewards)
        return get_adv_estimator_fn("corver")(
            token_level_rewards=rewards, response_mask=torch.ones_like(rewards), index=index, config=config
        )

    with pytest.raises(ValueError, match="last tokens only"):
        estimate([[0.0, 1.0], [0.0, 2.0]])
    with pytest.raises(ValueError, match=r"rollout\.n"):
        estimate([[0.5, 1.0], [0.2, 2.0]], index=("a", "b"))
    with pytest.raises(ValueError, match="use_kl_loss"):
        estimate([[0.5, 1.0], [0.2, 2.0]], config={"use_kl_in_reward": True})
    with pytest.raises(ValueError, match="rollout_rs"):
        estimate([[0.5, 1.0], [0.2, 2.0]], config={"rollout_correction": {"rollout_rs": "token_k1"}})


def test_agent_loop_rejects_setup_without_token_rewards(tokenizer, monkeypatch, tmp_path, caplog):
    other = tmp_path / "other.py"
    other.write_text("def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n    return 1.0\n")
    without = "~reward.custom_reward_function.reward_kwargs"
    for setting, message in [
        ([f"reward.custom_reward_function.path={other}", without], "path=pkg://corver.verl"),
        (["trainer.use_v1=False"], "trainer.use_v1=True"),
    ]:
        responses = [tokenizer.encode(RIGHT), tokenizer.encode(WRONG)]
        assert not roll_out(verl_config(*setting), tokenizer, responses, monkeypatch)
        assert message in caplog.text


def test_tool_tokens_are_rejected():
    output = AgentLoopOutput(prompt_ids=[1], response_ids=[2, 3], response_mask=[1, 0], metrics={})
    with pytest.raises(ValueError, match="tokens of a tool"):
        PerTokenOutput.from_output(output, question=QUESTION, tokenizer=trainers.POLICY)


def test_question_may_have_parts(tokenizer, monkeypatch):
    async def run(self, sampling_params, **kwargs):
        return AgentLoopOutput(prompt_ids=[1], response_ids=[2], response_mask=[1], metrics={})

    monkeypatch.setattr(SingleTurnAgentLoop, "run", run)
    loop = object.__new__(PerTokenAgentLoop)
    loop.config, loop.tokenizer = SimpleNamespace(trainer=SimpleNamespace(use_v1=True)), tokenizer
    # A data set of parts has the fields of all of them.
    parts = [{"type": "image", "text": None}, {"type": "text", "text": QUESTION}]
    call = loop.run({}, raw_prompt=[{"role": "user", "content": parts}])
    output = asyncio.get_event_loop().run_until_complete(call)
    assert output.extra_fields[ROLLOUT]["question"] == QUESTION


@pytest.mark.parametrize(
    "environment",
    [{}, {"VERL_USE_EXTERNAL_PLUGINS": "none", "VERL_USE_EXTERNAL_MODULES": "corver.verl.plugin"}],
    ids=["entry point", "external module"],
)
def test_verl_loads_plugin_and_logs(environment):
    program = "from verl.trainer.ppo.core_algos import get_adv_estimator_fn as get; print(get('corver').__module__)"
    done = subprocess.run([sys.executable, "-c", program], env=os.environ | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == "corver.verl.advantage"
    assert done.stderr.count("corver: loaded into verl") == 1


def test_example_settings_are_valid_in_verl(tmp_path, tokenizer):
    shown = trainers.dry_run(EXAMPLE / "run.sh", tmp_path)
    settings = [line for line in shown if "=" in line]
    with hydra.initialize_config_module("verl.trainer.config", version_base=None):
        config = migrate_legacy_reward_impl(hydra.compose("ppo_trainer", settings))
    config.actor_rollout_ref.model.lora_rank = 0  # verl asks vLLM whether it takes the rank, and vLLM is not here
    validate_config(config, use_reference_policy=True, use_critic=False)
    assert config.reward.custom_reward_function.reward_kwargs == SCORER
    dataset = RLHFDataset(str(tmp_path / "train.parquet"), tokenizer, config.data)
    row = dataset[0]
    assert row["reward_model"]["ground_truth"] and row["extra_info"]["question"] == row["raw_prompt"][0]["content"]
