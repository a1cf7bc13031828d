"""CorVer in prime-rl 0.8: advantages that differ from token to token.

prime-rl's configuration names its own algorithms only. `register` replaces ``grpo`` by `PerTokenGRPO` in the orchestrator's process. The
environment ``corver_qa`` calls it if ``token_advantages`` is true; a taskset of your own calls it in its module.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any

try:
    from prime_rl.orchestrator import algo
    from prime_rl.orchestrator.algo.base import iter_trainable_traces
    from prime_rl.orchestrator.algo.grpo import GRPOAlgorithm
except ImportError as error:
    raise ImportError("corver.prime_rl needs prime-rl 0.8, from https://github.com/PrimeIntellect-ai/prime-rl") from error

from corver import CorverError
from corver._native import group_baselines
from corver.verifiers import INFO, REWARDS

__all__ = ["PerTokenGRPO", "register"]

#: Release whose algorithm classes these are.
_RELEASE = "0.8"


class PerTokenGRPO(GRPOAlgorithm):
    """prime-rl's GRPO; traces with `corver.verifiers` returns get the paper's advantage of each token.

    A token's advantage is its return, less the mean reward of its group, over the standard deviation of the group's rewards plus 1e-4.
    Other rewards of a trace are added to each of its tokens. A group of one trace gets advantage 0.
    """

    def __init__(self, config: Any, policy_pool: Any) -> None:
        super().__init__(config, policy_pool)
        if self.length_penalty is not None:
            raise ValueError("length_penalty changes the reward of a completion, and no return of a token; remove it from [algo]")

    async def score_group(self, episodes: list[Any]) -> None:
        traces = [trace for _, trace in iter_trainable_traces(episodes)]
        if not any(INFO in trace.info for trace in traces):
            await super().score_group(episodes)
            return
        returns = [_token_returns(trace) for trace in traces]
        if len(traces) == 1:
            algo.assign_advantages(traces[0], 0.0)
            return
        rewards = [sum(row) / len(row) for row in returns]
        [baseline] = group_baselines(rewards, len(rewards))
        for trace, row in zip(traces, returns, strict=True):
            algo.assign_advantages(trace, [baseline.advantage(value) for value in row])


def register() -> None:
    """Makes ``algo.type = "grpo"`` mean `PerTokenGRPO` in this process. Raises CorverError for another release of prime-rl."""
    try:
        found = version("prime-rl")
    except PackageNotFoundError:
        found = "unknown"
    if found != _RELEASE and not found.startswith(f"{_RELEASE}."):
        raise CorverError(f"corver.prime_rl is written for prime-rl {_RELEASE}, and this is release {found}; install {_RELEASE}")
    algo.ALGORITHM_CLASSES["grpo"] = PerTokenGRPO


def _token_returns(trace: Any) -> list[float]:
    """Returns the return of each sampled token: CorVer's, times its weight, plus the other rewards of the trace."""
    returns = trace.info.get(INFO, {}).get("returns")
    if returns is None:
        raise CorverError(
            "a trace has no return for each token: set the tokenizer of corver.verifiers (CORVER_TOKENIZER), and use tasks with one reply"
        )
    weight = trace.rewards[REWARDS[0]].weight
    other = sum(reward.value for name, reward in trace.rewards.items() if reward is not None and name not in REWARDS)
    return [weight * value + other for value in returns]
