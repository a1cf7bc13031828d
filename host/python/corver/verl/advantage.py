"""The advantage estimator ``corver``: the paper's, with credit per token.

A completion's R is its mean return. A token's advantage is its return, less the group's mean R, over the group's standard
deviation of R plus 1e-4 (paper, Eq. advantage; host/core/src/advantage/grpo.rs). verl's ``grpo`` adds the tokens' rewards up first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from verl.trainer.ppo.core_algos import register_adv_est

from corver._native import group_baselines

NAME = "corver"


@register_adv_est(NAME)
def per_token_advantage(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    index: Sequence[Any],
    config: Any = None,
    **_unused: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns advantages and returns, both `[B, T]`, from rewards `[B, T]` that add up to each completion's R.

    ``index`` names each row's group. A group of one completion gets advantage 0, as in TRL: there is nothing to compare it with.
    If all groups are such, that is an error. ``algorithm.norm_adv_by_std_in_grpo=False`` leaves out the standard deviation.
    """
    _check(token_level_rewards, response_mask, index, config)
    mask = response_mask.double()
    rewards = token_level_rewards.double() * mask
    returns = rewards * mask.sum(dim=1, keepdim=True)
    scale_rewards = "group" if config is None or config.get("norm_adv_by_std_in_grpo", True) else "none"
    advantages = torch.zeros_like(returns)
    for rows in _groups(index):
        if len(rows) == 1:
            continue
        means = rewards[rows].sum(dim=1).tolist()
        [baseline] = group_baselines(means, len(rows), scale_rewards=scale_rewards)
        advantages[rows] = (returns[rows] - baseline.centre) / baseline.scale
    dtype = token_level_rewards.dtype
    return (advantages * mask).to(dtype), returns.to(dtype)


def _groups(index: Sequence[Any]) -> list[list[int]]:
    """Returns the rows of each group."""
    groups: dict[Any, list[int]] = {}
    for row, group in enumerate(index):
        groups.setdefault(group, []).append(row)
    return list(groups.values())


def _check(rewards: torch.Tensor, mask: torch.Tensor, index: Sequence[Any], config: Any) -> None:
    _check_settings(config)
    if len(set(index)) == len(index):
        raise ValueError("every group has one completion; the advantage compares several: actor_rollout_ref.rollout.n")
    # verl's own loops put the score on the last token, and nothing on the others.
    last = mask.long().cumsum(dim=1).argmax(dim=1, keepdim=True)
    elsewhere = (rewards * mask).scatter(1, last, 0.0)
    if rewards.any() and not elsewhere.any() and mask.sum(dim=1).max() > 1:
        raise ValueError(
            "algorithm.adv_estimator=corver got rewards on last tokens only; `python -m corver.verl` prints what to set"
        )


def _check_settings(config: Any) -> None:
    if config is None:
        return
    if config.get("use_kl_in_reward", False):
        raise ValueError(
            "algorithm.adv_estimator=corver takes no KL in the rewards; use actor_rollout_ref.actor.use_kl_loss=True instead"
        )
    correction = config.get("rollout_correction")
    if correction is not None and correction.get("rollout_rs") is not None:
        raise ValueError(
            "algorithm.adv_estimator=corver needs all tokens; algorithm.rollout_correction.rollout_rs removes some"
        )
