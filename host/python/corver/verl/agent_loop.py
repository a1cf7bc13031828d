"""An agent loop whose output has a reward for each token.

verl's own output puts the score on the last token, and its reward loop passes text without ids. So this loop passes the sampled
ids to `corver.verl.compute_score`, in the fields that verl passes to reward functions as ``extra_info``. Its output replaces the
scores of the tokens by the rewards that it gets back.
"""

from __future__ import annotations

from typing import Any

import torch
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput
from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop

from corver._reward import last_user_turn
from corver.verl.reward import ROLLOUT, TOKEN_REWARDS


class PerTokenOutput(AgentLoopOutput):
    """An output with `rm_scores` (`[T]` f32) from `corver.verl.compute_score`."""

    @classmethod
    def from_output(cls, output: AgentLoopOutput, *, question: str, tokenizer: str) -> PerTokenOutput:
        """Adds the inputs of the reward function to an output; ``tokenizer`` is a folder or a name.

        An output of several turns is refused: the policy gets no reward for the text of tools.
        """
        if not all(output.response_mask):
            raise ValueError("CorVer's rewards per token are for single-turn rollouts; this response holds tokens of a tool")
        fields = {name: getattr(output, name) for name in output.model_fields_set}
        rollout = {"question": question, "token_ids": output.response_ids, "tokenizer": tokenizer}
        return cls(**fields | {"extra_fields": {**output.extra_fields, ROLLOUT: rollout}})

    def as_dict(self) -> dict[str, Any]:
        fields = super().as_dict()
        extra = {name: value for name, value in fields["extra_fields"].items() if name != ROLLOUT}
        info = dict(extra.get("reward_extra_info", {}))
        rewards = info.pop(TOKEN_REWARDS, None)
        if "rm_scores" in fields:
            fields["rm_scores"] = self._rm_scores(rewards)
        if "reward_extra_info" in extra:
            extra["reward_extra_info"] = info
        fields["extra_fields"] = extra
        return fields

    def _rm_scores(self, rewards: list[float] | None) -> torch.Tensor:
        if rewards is None:
            raise ValueError(
                "the agent loop `corver` got no rewards per token; set reward.custom_reward_function.path=pkg://corver.verl"
            )
        if len(rewards) != len(self.response_ids):
            raise ValueError(f"{len(rewards)} rewards came for {len(self.response_ids)} tokens")
        return torch.tensor(rewards, dtype=torch.float32)


class PerTokenAgentLoop(SingleTurnAgentLoop):
    """verl's single-turn loop, with a reward for each token."""

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> PerTokenOutput:
        if not self.config.trainer.use_v1:
            raise ValueError("CorVer's rewards per token need verl's v1 trainer: trainer.use_v1=True")
        output = await super().run(sampling_params, **kwargs)
        question = last_user_turn(kwargs["raw_prompt"])
        return PerTokenOutput.from_output(output, question=question, tokenizer=self.tokenizer.name_or_path)
