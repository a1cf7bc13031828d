"""CorVer in TRL: a GRPO trainer whose advantages differ from token to token.

    import corver, corver.trl

    scorer = corver.Scorer(plugin="first.wasm", index="my-index", extractor="my-extractor")
    trainer = corver.trl.CorverGRPOTrainer(
        model="Qwen/Qwen3-4B", scorer=scorer, args=corver.trl.paper_config(), train_dataset=dataset,
        peft_config=corver.trl.paper_lora(),
    )
    trainer.train()

The dataset has TRL's column `prompt`, and a column `answers` with the golds. For another trainer, `CorverReward(scorer)` is a
plain reward function: one number for each completion.

Written for TRL 1.16.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from accelerate.utils import gather_object
from trl import GRPOConfig, GRPOTrainer

from . import CorverError, Scorer
from ._native import group_baselines
from ._reward import CorverReward

__all__ = ["CorverGRPOTrainer", "CorverReward", "paper_config", "paper_lora"]


class CorverGRPOTrainer(GRPOTrainer):
    """TRL's GRPO trainer, with an advantage for each token.

    A token's advantage is its return, less the mean reward of its group, over the standard deviation of the group's rewards;
    groups are gathered over all processes. If the rule sets a sign for a sentence, the advantages of its tokens then take it.
    Everything else is TRL's.

    scorer: the reward.
    reward_funcs: more reward functions, whose rewards are added to each token of their completion. `args.reward_weights` has
        CorVer's weight first.
    answers, question: columns of the dataset; see CorverReward.
    min_spread: groups whose rewards have a smaller standard deviation get advantage 0; 0 keeps every group, as published.
    allow_sequence_ratio: accept `importance_sampling_level="sequence"` although it multiplies the advantage of a token by the
        ratio of its whole completion.
    """

    def __init__(
        self,
        model: Any,
        scorer: Scorer,
        args: GRPOConfig | None = None,
        *,
        reward_funcs: Any = (),
        answers: str | None = "answers",
        question: str | None = None,
        min_spread: float = 0.0,
        allow_sequence_ratio: bool = False,
        **trl: Any,
    ) -> None:
        if scorer.credit == "token_rewards":
            # A baseline of the group rises with them, and no token before them shares them.
            raise CorverError("the rule rewards single tokens, which needs PPO's advantages (GAE), and this trainer has GRPO's")
        args = paper_config() if args is None else args
        _check_settings(args, trl, allow_sequence_ratio)
        others = list(reward_funcs) if isinstance(reward_funcs, (list, tuple)) else [reward_funcs]
        self.min_spread = min_spread
        self.corver = CorverReward(scorer, answers=answers, question=question, applies_signs=True)
        super().__init__(model, reward_funcs=[self.corver, *others], args=args, **trl)
        self.corver.tokenizer = self._tokenizer

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> torch.Tensor:
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        # [B over all processes, functions]: weighted rewards of the other functions.
        weighted = rewards[:, 1:].double() * self.reward_weights[1:].to(rewards.device)
        self._other_rewards = weighted.nansum(dim=1).tolist()
        return rewards

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        mode = "train" if self.model.training else "eval"
        output = super()._generate_and_score_completions(inputs)
        num_generations = self.num_generations if mode == "train" else self.num_generations_eval
        ids = output["completion_ids"]
        _check_rows(ids, self.corver.completion_ids)
        output["advantages"] = self._token_advantages(num_generations, width=ids.size(1)).to(ids.device)
        return output

    def _token_advantages(self, num_generations: int, width: int) -> torch.Tensor:
        """Returns advantages [B, T] f32, T = width; 0 after the end of a completion."""
        weight = float(self.reward_weights[0])
        scores = self.corver.scores
        # Not as tensors: f32 would lose the digits that a small spread needs.
        rewards = gather_object([weight * score.reward for score in scores])
        totals = [reward + other for reward, other in zip(rewards, self._other_rewards, strict=True)]
        groups = group_baselines(totals, num_generations, self.scale_rewards, self.min_spread)
        first = self.accelerator.process_index * len(scores)
        rows = torch.zeros(len(scores), width)
        for row, score in enumerate(scores):
            group = groups[(first + row) // num_generations]
            other = self._other_rewards[first + row]
            tokens = zip(score.returns or [], score.advantage_signs or [], strict=True)
            advantages = [group.advantage(weight * token_return + other, sign) for token_return, sign in tokens]
            rows[row, : len(advantages)] = torch.tensor(advantages)
        return rows


# Settings of the paper's runs that differ from the others (Tab. per-model-hp).
_MODEL_SETTINGS = {
    "olmo-2-1124-13b-instruct": {"learning_rate": 3e-6, "beta": 0.01},
    "qwen3-14b": {"learning_rate": 2.5e-5, "beta": 0.0},
}


def paper_config(model: str | None = None, **overrides: Any) -> GRPOConfig:
    """Returns TRL's settings with the paper's values: 24 prompts with 16 completions each for an optimiser step, on one process.

    `model` is the name or the folder of the policy: OLMo-2-1124-13B-Instruct and Qwen3-14B have a learning rate and a beta of
    their own. Every argument of GRPOConfig may override one. The paper trains all but OLMo with optim="adamw_bnb_8bit", which
    needs bitsandbytes and a GPU.
    """
    name = (model or "").rstrip("/").rpartition("/")[2].lower()
    paper = {
        "loss_type": "grpo",
        "beta": 0.001,
        "use_bias_correction_kl": False,
        "num_generations": 16,
        "per_device_train_batch_size": 16,
        "gradient_accumulation_steps": 24,
        "max_completion_length": 1024,
        "learning_rate": 1e-5,
        "lr_scheduler_type": "cosine",
        "warmup_steps": 0.03,  # share of all steps
        "max_steps": 100,
        "save_steps": 50,
        "save_total_limit": 4,
        "logging_steps": 1,
    }
    return GRPOConfig(**{**paper, **_MODEL_SETTINGS.get(name, {}), **overrides})


def paper_lora(**overrides: Any) -> Any:
    """Returns the LoraConfig (peft) of the paper's adapters: rank 128, alpha 256, on all projections of attention and MLP."""
    from peft import LoraConfig  # not a dependency of TRL

    modules = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    paper = {"r": 128, "lora_alpha": 256, "lora_dropout": 0.0, "target_modules": modules, "task_type": "CAUSAL_LM"}
    return LoraConfig(**{**paper, **overrides})


def _check_settings(args: GRPOConfig, trl: Mapping[str, Any], allow_sequence_ratio: bool) -> None:
    """Raises for settings that would silently change the credit of a token."""
    if args.importance_sampling_level != "token" and not allow_sequence_ratio:
        raise ValueError(
            f'importance_sampling_level="{args.importance_sampling_level}" multiplies the advantage of a token by the ratio of its '
            'whole completion; use "token", or pass allow_sequence_ratio=True'
        )
    if args.multi_objective_aggregation != "sum_then_normalize":
        raise ValueError(
            f'multi_objective_aggregation="{args.multi_objective_aggregation}" normalises each reward on its own, which no '
            'token-level reward defines; use "sum_then_normalize"'
        )
    if args.loss_type == "vespo":
        raise ValueError(
            'loss_type="vespo" multiplies the advantage of a token by a factor of its whole completion; use "grpo", "dapo" or another'
        )
    for name in ("tools", "environment_factory", "rollout_func"):
        if trl.get(name):
            raise ValueError(f"{name}: completions may hold text that the policy did not write, which would receive a reward")


def _check_rows(padded: torch.Tensor, scored: list[list[int]]) -> None:
    """Raises if the rows that TRL trains on are not those that were scored."""
    rows = padded.tolist()
    if len(rows) != len(scored) or any(row[: len(ids)] != ids for row, ids in zip(rows, scored)):
        raise RuntimeError(
            "the completions that TRL trains on are not those that were scored, in the same order: this release of TRL works "
            "differently from 1.16, for which corver.trl was written"
        )
