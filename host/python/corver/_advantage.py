"""The paper's advantages of tokens, in tensors, for the estimators of trainers (verl, SkyRL).

A completion's R is its mean return. A token's advantage is its return, less the group's mean R,
over the group's standard deviation of R plus 1e-4 (paper, Eq. advantage;
host/core/src/advantage/grpo.rs). This module imports no trainer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from corver._native import group_baselines


def token_advantages(
    rewards: torch.Tensor, mask: torch.Tensor, index: Sequence[Any], scale_rewards: str = "group"
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns advantages and returns, both `[B, T]`.

    The ``rewards`` `[B, T]` of a completion add up to its R. ``mask`` `[B, T]` is 1 for its tokens,
    before or after the padding. ``index`` names each row's group. A group of one completion gets
    advantage 0, as in TRL: there is nothing to compare it with. ``scale_rewards="none"`` leaves out
    the standard deviation.
    """
    mask = mask.double()
    masked = rewards.double() * mask
    returns = masked * mask.sum(dim=1, keepdim=True)
    advantages = torch.zeros_like(returns)
    for rows in _groups(index):
        if len(rows) == 1:
            continue
        means = masked[rows].sum(dim=1).tolist()
        [baseline] = group_baselines(means, len(rows), scale_rewards=scale_rewards)
        advantages[rows] = (returns[rows] - baseline.centre) / baseline.scale
    return (advantages * mask).to(rewards.dtype), returns.to(rewards.dtype)


def check_groups(index: Sequence[Any], setting: str) -> None:
    """Raises ValueError if every group has one completion.

    ``setting`` is the trainer's, for the number of completions.
    """
    if len(set(index)) == len(index):
        raise ValueError(
            f"every group has one completion; the advantage compares several: {setting}"
        )


def check_token_rewards(rewards: torch.Tensor, mask: torch.Tensor, remedy: str) -> None:
    """Raises ValueError if only last tokens have rewards.

    Trainers put the reward of a whole completion there.
    """
    last = mask.long().cumsum(dim=1).argmax(dim=1, keepdim=True)
    elsewhere = (rewards * mask).scatter(1, last, 0.0)
    if rewards.any() and not elsewhere.any() and mask.sum(dim=1).max() > 1:
        raise ValueError(
            f"the advantage estimator `corver` got rewards on last tokens only; {remedy}"
        )


def _groups(index: Sequence[Any]) -> list[list[int]]:
    """Returns the rows of each group."""
    groups: dict[Any, list[int]] = {}
    for row, group in enumerate(index):
        groups.setdefault(group, []).append(row)
    return list(groups.values())
