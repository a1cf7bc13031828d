"""CorVer in SkyRL, against the real SkyRL 0.3.0 on the CPU, without models: its generator, its
trainer up to the advantages, its registry of estimators and its entry point.

The inference engine is replaced.
"""

import asyncio
import logging
import subprocess
import sys
from types import SimpleNamespace

import pytest
import trainers

trainers.need("skyrl")

import ray
import skyrl_gym
import torch
from skyrl.backends.skyrl_train.utils.ppo_utils import (
    AdvantageEstimatorRegistry,
    compute_advantages_and_returns,
    sync_registries,
)
from skyrl.train.config import AlgorithmConfig, GeneratorConfig
from skyrl.train.dataset import PromptDataset
from skyrl.train.entrypoints import main_base
from skyrl.train.generators.skyrl_gym_generator import SkyRLGymGenerator
from skyrl.train.generators.utils import prepare_generator_input
from skyrl.train.trainer import RayPPOTrainer
from skyrl.train.utils import validate_cfg
from skyrl.train.utils.trainer_utils import validate_generator_output
from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput
from transformers import AutoTokenizer

import corver
import corver.skyrl
from corver._native import group_baselines
from corver.skyrl import PerTokenConfig, PerTokenExp, PerTokenGenerator, check_settings

EXAMPLE = trainers.EXAMPLES / "skyrl"
SCORER = {"plugin": "first.wasm", "index": "demo", "extractor": "demo"}
QUESTION, GOLD = "Where was Driaterk Thiahava born?", "Old Riavuck"
REPLY = (
    "<think>Driaterk Thiahava was born in {0}. That is what I remember.</think>"
    "<answer>{0}</answer>"
)
RIGHT, WRONG = REPLY.format(GOLD), REPLY.format("Lower Xyzzy")
EPSILON = 1e-4

corver.skyrl.register()


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(trainers.POLICY)


@pytest.fixture(scope="module")
def responses(tokenizer):
    return [[*tokenizer.encode(text), tokenizer.eos_token_id] for text in (RIGHT, WRONG)]


@pytest.fixture(scope="module")
def expected(responses):
    return corver.Scorer(**SCORER).score(
        completion_ids=responses,
        tokenizer=trainers.POLICY,
        questions=[QUESTION] * 2,
        answers=[[GOLD]] * 2,
    )


def skyrl_config(*overrides, scorer=SCORER):
    settings = {
        "trainer.algorithm.advantage_estimator": "corver",
        "environment.env_class": "corver",
        "trainer.policy.model.path": trainers.POLICY,
        "trainer.logger": "console",
        "trainer.train_batch_size": 1,
        "trainer.policy_mini_batch_size": 1,
        "generator.n_samples_per_prompt": 2,
        **{f"generator.corver.{name}": value for name, value in scorer.items()},
    }
    arguments = [f"{name}={value}" for name, value in settings.items()]
    return PerTokenConfig.from_cli_overrides([*arguments, *overrides])


class Sampled:
    """Replaces the inference engine: has a response for each completion of a question."""

    def __init__(self, tokenizer, responses):
        self._tokenizer = tokenizer
        self._responses = responses

    async def generate(self, input_batch, model=None):
        [session] = input_batch["session_ids"]
        repetition = session.rpartition("_")[2]
        ids = list(self._responses[int(repetition)])
        return {
            "responses": [self._tokenizer.decode(ids, skip_special_tokens=True)],
            "response_ids": [ids],
            "stop_reasons": ["stop"],
            "response_logprobs": [[0.0] * len(ids)],
        }

    async def finish_session(self, session_id):
        pass


def row(ground_truth=GOLD, env_class=None, **columns):
    """Returns a row of the dataset, as SkyRL's loader does."""
    extras = {"reward_spec": {"method": "rule", "ground_truth": ground_truth}, **columns}
    prompt = [{"role": "user", "content": QUESTION}]
    return {"prompt": prompt, "env_class": env_class, "env_extras": extras, "uid": "0"}


def roll_out(config, tokenizer, responses, question=None):
    """Returns the generator's output for one question, and its uids."""
    generator = PerTokenExp.get_generator(None, config, tokenizer, Sampled(tokenizer, responses))
    prompts, uids = prepare_generator_input(
        [question or row()],
        len(responses),
        {"logprobs": 1},
        config.environment.env_class,
        "train",
        1,
    )
    output = asyncio.run(generator.generate(prompts, disable_tqdm=True))
    validate_generator_output(len(prompts["prompts"]), output)
    return output, uids


def test_generator_rewards_each_token(tokenizer, responses, expected):
    output, _ = roll_out(skyrl_config(), tokenizer, responses)
    assert output["response_ids"] == responses
    for rewards, score in zip(output["rewards"], expected, strict=True):
        assert [value * len(rewards) for value in rewards] == pytest.approx(score.returns)
        assert sum(rewards) == pytest.approx(score.reward)
    assert len(set(expected[0].returns)) > 1, "a sentence has its own reward"
    metrics = output["rollout_metrics"]
    assert (metrics["environment/corver/acc"], metrics["environment/corver/error"]) == (0.5, 0.0)
    assert [metrics["corver/acc"] for metrics in output["env_metrics"]] == [1.0, 0.0]


def skyrl_trainer(config, tokenizer, monkeypatch):
    """Returns SkyRL's trainer without models."""
    loader = "_build_train_dataloader_and_compute_training_steps"
    monkeypatch.setattr(RayPPOTrainer, loader, lambda _: None)
    trainer = RayPPOTrainer(
        cfg=config,
        tracker=None,
        tokenizer=tokenizer,
        train_dataset=None,
        eval_dataset=None,
        inference_engine_client=None,
        generator=None,
    )
    trainer.dispatch = SimpleNamespace(get_lcm_dp_size=lambda: 4)  # 2 rows of padding
    return trainer


def test_trainer_advantages_match_host(tokenizer, responses, expected, monkeypatch):
    config = skyrl_config("generator.inference_engine.enable_ray_prometheus_stats=false")
    output, uids = roll_out(config, tokenizer, responses)
    trainer = skyrl_trainer(config, tokenizer, monkeypatch)
    output, uids = trainer.postprocess_generator_output(output, uids)
    batch = trainer.convert_to_training_input(output, uids)
    batch["values"] = None
    batch = trainer.compute_advantages_and_returns(batch)
    [baseline] = group_baselines([score.reward for score in expected], 2)
    for position, score in enumerate(expected):
        by_host = [baseline.advantage(value) for value in score.returns]
        # SkyRL has the padding on the left.
        padding = batch["advantages"].shape[1] - len(by_host)
        got = batch["advantages"][position]
        assert got[padding:].tolist() == pytest.approx(by_host, abs=1e-3)
        assert not got[:padding].any()
    assert len(batch["advantages"]) == 4 and not batch["advantages"][2:].any()
    assert trainer.all_metrics["reward/avg_raw_reward"] == pytest.approx(
        (expected[0].reward + expected[1].reward) / 2
    )


def estimator_arguments(rewards, mask, index, estimator="corver", **settings):
    """Returns the arguments that SkyRL's trainer passes to its dispatch of estimators."""
    config = AlgorithmConfig(advantage_estimator=estimator, **settings)
    return {
        "token_level_rewards": rewards,
        "response_mask": mask,
        "index": index,
        "adv_estimator": config.advantage_estimator,
        "config": config,
        "values": None,
        "gamma": config.gamma,
        "lambd": config.lambd,
        "grpo_norm_by_std": config.grpo_norm_by_std,
    }


def estimate(*batch, **settings):
    """Returns advantages and returns by SkyRL's dispatch."""
    return compute_advantages_and_returns(**estimator_arguments(*batch, **settings))


@pytest.mark.parametrize("padding", ["right", "left"])
def test_advantage_estimator_matches_hand_computed_values(padding):
    # Returns (1, 3), (4), (7), (7, 7): the example of host/core/src/advantage/grpo.rs, its groups
    # not next to each other. The values are those of the test with verl.
    returns = torch.tensor([[1.0, 3.0], [7.0, 0.0], [4.0, 0.0], [7.0, 7.0]])
    mask = torch.tensor([[1, 1], [1, 0], [1, 0], [1, 1]])
    first = 0
    if padding == "left":
        returns[1:3], mask[1:3] = returns[1:3].flip(1), mask[1:3].flip(1)
        first = 1
    rewards = returns / mask.sum(dim=1, keepdim=True)
    advantages, got_returns = estimate(rewards, mask, ["a", "b", "a", "b"])
    scale = 2**0.5 + EPSILON
    assert advantages[0].tolist() == pytest.approx([-2.0 / scale, 0.0])
    assert advantages[2][first].item() == pytest.approx(1.0 / scale)
    assert not advantages[2][1 - first] and not advantages[1].any() and not advantages[3].any()
    assert torch.equal(got_returns, returns)
    unscaled, _ = estimate(rewards, mask, ["a", "b", "a", "b"], grpo_norm_by_std=False)
    assert unscaled[0].tolist() == [-2.0, 0.0]
    summed, _ = estimate(rewards, mask, ["a", "b", "a", "b"], estimator="grpo")
    assert summed[0][0] == summed[0][1], "SkyRL's own estimator adds the rewards up"


def test_single_completion_group_has_zero_advantage():
    rewards = torch.tensor([[1.0, 3.0], [2.0, 5.0], [4.0, 0.0]]) / 2
    advantages, returns = estimate(rewards, torch.ones(3, 2), ["a", "alone", "a"])
    assert advantages[1].tolist() == [0.0, 0.0]
    assert advantages[0].any() and advantages[2].any()
    assert torch.equal(returns, rewards * 2)


def test_advantage_estimator_rejects_incompatible_batches():
    rewards, mask = torch.tensor([[0.5, 1.0], [0.2, 2.0]]), torch.ones(2, 2)
    with pytest.raises(ValueError, match="n_samples_per_prompt"):
        estimate(rewards, mask, ["a", "b"])
    with pytest.raises(ValueError, match="last tokens only"):
        estimate(torch.tensor([[0.0, 1.0], [0.0, 2.0]]), mask, ["a", "a"])
    with pytest.raises(corver.SettingsError, match="use_kl_loss"):
        estimate(rewards, mask, ["a", "a"], use_kl_in_reward=True)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("trainer.algorithm.advantage_estimator=grpo", "set it to corver"),
        ("trainer.algorithm.use_kl_in_reward=true", "use_kl_loss=true"),
        ("trainer.algorithm.zero_variance_filter=true", "dynamic_sampling.type=filter"),
        ("generator.n_samples_per_prompt=1", "must be 2 or more"),
        ("generator.max_turns=2", "single-turn"),
        ("generator.step_wise_trajectories=true", "single-turn"),
        ("generator.vision_language_generator=true", "single-turn"),
        ("generator.batched=true", "agent loop"),
        ("generator.chat_template.name_or_path=qwen3_without_thinking", "chat_template"),
    ],
)
def test_incompatible_settings_are_rejected(setting, message):
    check_settings(skyrl_config())
    with pytest.raises(corver.SettingsError, match=message):
        PerTokenExp(skyrl_config(setting))


def test_generator_rejects_tokenizer_and_configuration_of_others(tokenizer):
    config = skyrl_config()
    gym = config.environment.skyrl_gym
    with pytest.raises(corver.SettingsError, match="generator.corver"):
        PerTokenGenerator(GeneratorConfig(max_input_length=64), gym, None, tokenizer)
    with pytest.raises(corver.SettingsError, match="disable_fast_tokenizer"):
        PerTokenGenerator(config.generator, gym, None, SimpleNamespace(is_fast=False))


def test_invalid_scorer_arguments_are_rejected(tokenizer):
    with pytest.raises(Exception, match="no-such-rule"):
        roll_out(skyrl_config(scorer={"plugin": "no-such-rule.wasm"}), tokenizer, [])


def test_environment_needs_this_generator(tokenizer, responses):
    config = skyrl_config()
    generator = SkyRLGymGenerator(
        config.generator, config.environment.skyrl_gym, Sampled(tokenizer, responses), tokenizer
    )
    prompts, _ = prepare_generator_input([row()], 2, {"logprobs": 1}, "corver", "train", 1)
    with pytest.raises(corver.SettingsError, match="PerTokenGenerator"):
        asyncio.run(generator.generate(prompts, disable_tqdm=True))


class OtherEnv(BaseTextEnv):
    """An environment with a reward of its own, which may answer the first reply."""

    def __init__(self, env_config=None, extras=None):
        super().__init__()
        self._answers = extras.get("answers", False)

    def step(self, action):
        observations = [{"role": "user", "content": "Are you sure?"}] if self._answers else []
        done = not self._answers
        self._answers = False
        return BaseTextEnvStepOutput(observations=observations, reward=0.5, done=done, metadata={})


@pytest.fixture
def other_environment():
    skyrl_gym.register(id="other", entry_point=OtherEnv)
    yield "other"
    skyrl_gym.envs.deregister("other")


def test_environment_reward_is_added(tokenizer, responses, expected, other_environment):
    output, _ = roll_out(skyrl_config(), tokenizer, responses, row(env_class=other_environment))
    for rewards, score in zip(output["rewards"], expected, strict=True):
        returns = [value + 0.5 for value in score.returns]
        assert [value * len(rewards) for value in rewards] == pytest.approx(returns)


def test_tokens_of_environment_are_rejected(tokenizer, responses, other_environment):
    config = skyrl_config("generator.max_input_length=512")
    question = row(env_class=other_environment, answers=True)
    with pytest.raises(ValueError, match="tokens of the environment"):
        roll_out(config, tokenizer, responses, question)


@pytest.mark.parametrize("ground_truth", [GOLD, [GOLD, "elsewhere"], f"elsewhere; {GOLD}"])
def test_ground_truth_shapes_are_accepted(tokenizer, responses, ground_truth):
    output, _ = roll_out(skyrl_config(), tokenizer, responses[:1], row(ground_truth))
    assert output["env_metrics"][0]["corver/acc"] == 1.0


def test_judge_reward_is_zero_without_gold(tokenizer, responses):
    output, _ = roll_out(skyrl_config(), tokenizer, responses[:1], row(None))
    metrics = output["env_metrics"][0]
    assert metrics["corver/judge"] == metrics["corver/acc"] == metrics["corver/error"] == 0.0


def test_row_without_golds_column_is_rejected(tokenizer, responses):
    question = row()
    del question["env_extras"]["reward_spec"]
    with pytest.raises(ValueError, match="reward_spec.ground_truth"):
        roll_out(skyrl_config(), tokenizer, responses[:1], question)


def test_unscorable_completion_gets_zero_and_error_flag(tokenizer, responses, caplog):
    question = row({"solution": GOLD})
    with caplog.at_level(logging.ERROR):
        output, _ = roll_out(skyrl_config(), tokenizer, responses[:1], question)
    assert not any(output["rewards"][0])
    assert output["env_metrics"][0]["corver/error"] == 1.0
    assert "`label` is an object with the fields solution" in caplog.text
    with pytest.raises(ValueError, match="with the fields solution"):
        roll_out(skyrl_config("generator.corver.strict=true"), tokenizer, responses[:1], question)


@pytest.mark.parametrize(
    ("credit", "message"),
    [("advantage_sign", "signs of advantages"), ({"token_rewards": []}, "rewards single tokens")],
)
def test_credit_of_other_algorithms_is_rejected(tokenizer, responses, monkeypatch, credit, message):
    trace = {"sentences": [{"verdict": {"count": None, "credit": credit}}]}
    score = SimpleNamespace(returns=None, to_dict=lambda: trace)
    opened = corver.skyrl.batch_queue(SCORER)
    monkeypatch.setattr(opened, "_scorer", SimpleNamespace(score=lambda **_: [score]))
    with pytest.raises(corver.CorverError, match=message):
        roll_out(skyrl_config(), tokenizer, responses[:1])


def test_server_scores_equal_local_scores(tokenizer, responses):
    here, _ = roll_out(skyrl_config(), tokenizer, responses)
    with trainers.served() as address:
        config = skyrl_config(scorer={"url": address, "strict": True})
        there, _ = roll_out(config, tokenizer, responses)
    for one, other in zip(here["rewards"], there["rewards"], strict=True):
        assert one == pytest.approx(other)


def test_estimator_reaches_other_processes():
    rewards, mask = torch.tensor([[0.5, 1.0], [0.2, 2.0]]), torch.ones(2, 2)
    arguments = estimator_arguments(rewards, mask, ["a", "a"])
    here, _ = compute_advantages_and_returns(**arguments)
    ray.init(num_cpus=1, include_dashboard=False, logging_level="error")
    try:
        sync_registries()
        there, _ = ray.get(ray.remote(compute_advantages_and_returns).remote(**arguments))
    finally:
        ray.shutdown()
    assert torch.equal(there, here) and here.any()


@pytest.mark.parametrize("entrypoint", [main_base, corver.skyrl], ids=["skyrl", "corver"])
def test_entry_points_start_same_training(monkeypatch, entrypoint):
    started = []
    arguments = ["generator.corver.plugin=first.wasm", "trainer.logger=console"]
    if entrypoint is main_base:
        arguments.append("trainer.override_entrypoint=corver.skyrl")
    monkeypatch.setattr(sys, "argv", ["train", *arguments])
    monkeypatch.setattr(corver.skyrl, "initialize_ray", lambda _: None)
    monkeypatch.setattr(corver.skyrl, "train", SimpleNamespace(remote=started.append))
    monkeypatch.setattr(ray, "get", lambda _: None)
    entrypoint.main()
    [config] = started
    assert config.generator.corver == {"plugin": "first.wasm"}
    assert config.trainer.algorithm.advantage_estimator == "corver"
    assert config.environment.env_class == "corver"
    assert "corver" in AdvantageEstimatorRegistry.list_available()


def test_module_is_a_program():
    command = [sys.executable, "-m", "corver.skyrl", "trainer.algorithm.advantage_estimator=grpo"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert "SettingsError: trainer.algorithm.advantage_estimator=grpo" in done.stderr


def test_example_settings_are_valid_in_skyrl(tmp_path, tokenizer):
    shown = trainers.dry_run(EXAMPLE / "run.sh", tmp_path)
    settings = [line for line in shown if "=" in line]
    estimator = "trainer.algorithm.advantage_estimator=corver"  # which main() adds
    config = PerTokenConfig.from_cli_overrides([estimator, *settings])
    check_settings(config)
    validate_cfg(config)
    assert config.generator.corver == SCORER
    max_length = config.trainer.max_prompt_length
    dataset = PromptDataset(config.data.train_data, tokenizer, max_length, num_workers=1)
    prompt, _, extras, _ = dataset[0]
    assert extras["reward_spec"]["ground_truth"]
    assert extras["extra_info"]["question"] == prompt[0]["content"]
