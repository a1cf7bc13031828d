"""CorVer in SkyRL 0.3: the reward of each token of a completion.

This module starts SkyRL's trainer, with a generator, an environment and an advantage estimator::

    python -m corver.skyrl \\
        generator.corver.plugin=first.wasm \\
        generator.corver.index=INDEX \\
        generator.corver.extractor=MODEL …

``generator.corver`` has the arguments of `corver.Scorer`, or the ``url`` of a `corver-host serve`.
SkyRL's own entry point starts it with ``trainer.override_entrypoint=corver.skyrl``. A program of
your own calls `register` before SkyRL's ``validate_cfg``, and runs `PerTokenExp`.

Rows have SkyRL's columns: ``prompt``, and ``reward_spec`` with the golds as ``ground_truth``. The
question is ``extra_info.question``, or the last user turn.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

try:
    import ray
    import skyrl_gym
    import torch
    from skyrl.backends.skyrl_train.inference_servers.utils import resolve_policy_model_name
    from skyrl.backends.skyrl_train.utils.ppo_utils import AdvantageEstimatorRegistry
    from skyrl.train.config import GeneratorConfig, make_config
    from skyrl.train.entrypoints.main_base import BasePPOExp
    from skyrl.train.generators.skyrl_gym_generator import SkyRLGymGenerator, TrajectoryOutput
    from skyrl.train.utils import validate_cfg
    from skyrl.train.utils.utils import initialize_ray
    from skyrl_gym.envs import registration
    from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput
except ImportError as error:
    raise ImportError(
        "corver.skyrl needs SkyRL 0.3 with its trainer, on Python 3.12: "
        f"pip install 'skyrl[fsdp]==0.3.0' ({error})"
    ) from error

from corver import SettingsError, _report
from corver._advantage import check_groups, check_token_rewards, token_advantages
from corver._batching import Completion
from corver._golds import parse_golds
from corver._opened import batch_queue
from corver._reward import last_user_turn

__all__ = [
    "NAME", "PerTokenConfig", "PerTokenExp", "PerTokenGenerator", "QuestionEnv", "check_settings",
    "main", "register", "token_advantage",
]  # fmt: skip

#: Name of the advantage estimator and of the environment.
NAME = "corver"
#: Key of an environment's extras, set by the generator that replaces the environment's reward.
_SCORED = "corver_scored"
_ENTRYPOINT = "trainer.override_entrypoint="

_log = logging.getLogger("corver.skyrl")


@dataclass
class PerTokenGeneratorConfig(GeneratorConfig):
    """SkyRL's ``generator`` section, with CorVer's arguments.

    corver: arguments of `corver.Scorer`, or ``url``. ``strict``: a completion that cannot be scored
        is an error.
    """

    corver: dict[str, Any] = field(default_factory=dict)


#: SkyRL's configuration, with the section ``generator.corver``.
PerTokenConfig = make_config(generator_cls=PerTokenGeneratorConfig)


def token_advantage(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    index: Sequence[Any],
    config: Any = None,
    grpo_norm_by_std: bool = True,
    **_unused: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns advantages and returns, both `[B, T]`: the advantage estimator ``corver``.

    Rewards `[B, T]` are those of `PerTokenGenerator`. ``index`` names each row's group. A group of
    one completion gets advantage 0; if all groups are such, that is an error.
    ``trainer.algorithm.grpo_norm_by_std=false`` leaves out the standard deviation.
    """
    if config is not None:
        _check_algorithm(config)
    check_groups(index, "generator.n_samples_per_prompt")
    # SkyRL's own generators put the reward on the last token of a turn, and nothing on the others.
    remedy = "start the trainer by `python -m corver.skyrl`, or use its PerTokenGenerator"
    check_token_rewards(token_level_rewards, response_mask, remedy)
    scale_rewards = "group" if grpo_norm_by_std else "none"
    return token_advantages(token_level_rewards, response_mask, index, scale_rewards)


def register() -> None:
    """Makes the estimator and the environment ``corver`` known to SkyRL in this process.

    Ray's other processes get the estimator from SkyRL's registry.
    """
    if NAME not in AdvantageEstimatorRegistry.list_available():
        AdvantageEstimatorRegistry.register(NAME, token_advantage)
    if NAME not in registration.registry:
        skyrl_gym.register(id=NAME, entry_point="corver.skyrl:QuestionEnv")


class QuestionEnv(BaseTextEnv):
    """The environment ``corver``: a question with one reply, which `PerTokenGenerator` scores."""

    def __init__(self, env_config: Any = None, extras: dict[str, Any] | None = None) -> None:
        super().__init__()
        if not (extras or {}).get(_SCORED, False):
            raise SettingsError(
                "the environment `corver` has no reward of its own; "
                "its generator is corver.skyrl.PerTokenGenerator"
            )

    def step(self, action: str) -> BaseTextEnvStepOutput:
        return BaseTextEnvStepOutput(observations=[], reward=0.0, done=True, metadata={})


class PerTokenGenerator(SkyRLGymGenerator):
    """SkyRL's generator, with a reward for each token: its return over the number of tokens.

    The rewards of a completion add up to its mean return. The environment's own reward is added to
    the return of each token. Completions are scored while others are still sampled. The metrics
    ``environment/corver/…`` are those of verl. A completion that cannot be scored is logged, gets
    0, and has ``corver/error`` 1; with ``generator.corver.strict=true`` it is an error.
    """

    def __init__(
        self,
        generator_cfg: PerTokenGeneratorConfig,
        skyrl_gym_cfg: Any,
        inference_engine_client: Any,
        tokenizer: Any,
        policy_model_name: str | None = None,
    ) -> None:
        _check_generator(generator_cfg)
        if not tokenizer.is_fast:
            raise SettingsError(
                "the policy has no fast tokenizer, which CorVer needs to align tokens to text; "
                "see trainer.disable_fast_tokenizer"
            )
        super().__init__(
            generator_cfg, skyrl_gym_cfg, inference_engine_client, tokenizer, policy_model_name
        )
        scorer = dict(generator_cfg.corver)
        self._strict = scorer.pop("strict", False)
        self._batches = batch_queue(scorer)

    async def agent_loop(
        self,
        prompt: list[dict[str, Any]],
        env_class: str,
        env_extras: dict[str, Any],
        *limits: Any,
        **options: Any,
    ) -> TrajectoryOutput:
        golds = _golds(env_extras)
        question = _question(prompt, env_extras)
        extras = {**env_extras, _SCORED: True}
        output = await super().agent_loop(prompt, env_class, extras, *limits, **options)
        # The last token may be an end that SkyRL appends.
        if not all(output.loss_mask[:-1]):
            raise ValueError(
                "CorVer's rewards per token are for single-turn rollouts; "
                f"this response of {env_class} holds tokens of the environment"
            )
        returns, metrics = await self._score(question, golds, output.response_ids)
        environment_reward = sum(output.reward)
        output.reward = [(value + environment_reward) / len(returns) for value in returns]
        output.env_metrics = {**output.env_metrics, **metrics}
        return output

    async def _score(
        self, question: str, golds: Any, token_ids: list[int]
    ) -> tuple[list[float], dict[str, float]]:
        """Returns the return of each token, and the completion's metrics."""
        try:
            completion = Completion(
                question, parse_golds(golds), token_ids=token_ids, tokenizer=self.tokenizer
            )
            score = await asyncio.wrap_future(self._batches.submit(completion))
        except Exception as error:
            if self._strict:
                raise
            _log.error("a completion could not be scored; its reward is 0: %s", error)
            return [0.0] * len(token_ids), {"corver/acc": 0.0, **_report.neutral_metrics()}
        trace = score.to_dict()
        _report.refuse_signs(trace, "SkyRL")
        _report.refuse_token_rewards(trace, "SkyRL")
        return score.returns, {"corver/acc": _report.accuracy(trace), **_report.metrics(trace)}


class PerTokenExp(BasePPOExp):
    """SkyRL's experiment, with `PerTokenGenerator`. ``cfg`` is a `PerTokenConfig`."""

    def __init__(self, cfg: Any) -> None:
        check_settings(cfg)
        register()
        super().__init__(cfg)

    def get_generator(
        self, cfg: Any, tokenizer: Any, inference_engine_client: Any
    ) -> PerTokenGenerator:
        return PerTokenGenerator(
            generator_cfg=cfg.generator,
            skyrl_gym_cfg=cfg.environment.skyrl_gym,
            inference_engine_client=inference_engine_client,
            tokenizer=tokenizer,
            policy_model_name=resolve_policy_model_name(cfg),
        )


def check_settings(cfg: Any) -> None:
    """Raises SettingsError for settings that would silently change the return of a token."""
    algorithm = cfg.trainer.algorithm
    if algorithm.advantage_estimator != NAME:
        raise SettingsError(
            f"trainer.algorithm.advantage_estimator={algorithm.advantage_estimator} has no "
            f"advantage of its own for each token's return; set it to {NAME}"
        )
    _check_algorithm(algorithm)
    if cfg.generator.n_samples_per_prompt < 2:
        raise SettingsError(
            "generator.n_samples_per_prompt must be 2 or more: the advantage compares completions"
        )
    _check_generator(cfg.generator)


def _check_algorithm(algorithm: Any) -> None:
    if algorithm.use_kl_in_reward:
        raise SettingsError(
            "trainer.algorithm.use_kl_in_reward puts a penalty into the rewards of tokens; "
            "use trainer.algorithm.use_kl_loss=true instead"
        )
    if algorithm.zero_variance_filter:
        raise SettingsError(
            "SkyRL ignores trainer.algorithm.zero_variance_filter with rewards per token; "
            "use trainer.algorithm.dynamic_sampling.type=filter instead"
        )


def _check_generator(generator: Any) -> None:
    if not isinstance(generator, PerTokenGeneratorConfig):
        raise SettingsError(
            "the configuration has no section generator.corver; make it with "
            "corver.skyrl.PerTokenConfig"
        )
    single_turn = "CorVer's rewards per token are for single-turn rollouts of text"
    if generator.max_turns != 1:
        raise SettingsError(f"generator.max_turns={generator.max_turns}: {single_turn}")
    if generator.step_wise_trajectories:
        raise SettingsError(f"generator.step_wise_trajectories=true: {single_turn}")
    if generator.vision_language_generator:
        raise SettingsError(f"generator.vision_language_generator=true: {single_turn}")
    if generator.batched:
        raise SettingsError(
            "generator.batched=true leaves out SkyRL's agent loop, in which completions are scored"
        )
    if generator.chat_template.name_or_path is not None:
        raise SettingsError(
            "generator.chat_template replaces the sampled tokens by those of the template; "
            "remove it"
        )


def _golds(env_extras: dict[str, Any]) -> Any:
    reward_spec = env_extras.get("reward_spec")
    if not isinstance(reward_spec, dict) or "ground_truth" not in reward_spec:
        raise ValueError(
            "a row has no reward_spec.ground_truth with the golds; it is null if there are none"
        )
    return reward_spec["ground_truth"]


def _question(prompt: list[dict[str, Any]], env_extras: dict[str, Any]) -> str:
    """Returns ``extra_info.question`` if that is a text, or else the last user turn."""
    extra_info = env_extras.get("extra_info")
    question = extra_info.get("question") if isinstance(extra_info, dict) else None
    return question if isinstance(question, str) else last_user_turn(prompt)


@ray.remote(num_cpus=1)
def train(cfg: Any) -> None:
    """Trains in a process of Ray's, as SkyRL's entry points do."""
    PerTokenExp(cfg).run()


def main() -> None:
    """Trains by the settings of the command line, those of SkyRL and ``generator.corver``."""
    settings = [f"trainer.algorithm.advantage_estimator={NAME}", f"environment.env_class={NAME}"]
    for argument in sys.argv[1:]:
        # SkyRL's entry point reads it and leaves it there, and its configuration has no such field.
        if not argument.startswith(_ENTRYPOINT):
            settings.append(argument)
    cfg = PerTokenConfig.from_cli_overrides(settings)
    check_settings(cfg)
    register()
    validate_cfg(cfg)
    initialize_ray(cfg)
    ray.get(train.remote(cfg))


if __name__ == "__main__":
    # By its name, under which Ray's processes import it.
    from corver.skyrl import main as run

    run()
