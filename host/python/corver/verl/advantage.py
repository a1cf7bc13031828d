"""The advantage estimator ``corver``: the paper's, with credit per token.

`corver._advantage` computes it. verl's ``grpo`` adds the tokens' rewards up first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from verl.trainer.ppo.core_algos import register_adv_est

from corver._advantage import check_groups, check_token_rewards, token_advantages

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
    _check_settings(config)
    check_groups(index, "actor_rollout_ref.rollout.n")
    # verl's own loops put the score on the last token, and nothing on the others.
    check_token_rewards(token_level_rewards, response_mask, "`python -m corver.verl` prints what to set")
    scale_rewards = "group" if config is None or config.get("norm_adv_by_std_in_grpo", True) else "none"
    return token_advantages(token_level_rewards, response_mask, index, scale_rewards)


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
