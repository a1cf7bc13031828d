"""The reward as functions that a trainer imports by name, for trainers that are configured by files or flags alone.

=================  =================================================================================
`trl`              ``trl grpo --reward_funcs corver.reward.trl``; axolotl: ``trl.reward_funcs``
`CorverORM`        ms-swift: ``orms["corver"] = CorverORM`` in a file for ``--external_plugins``
`slime`            slime: ``--custom-rm-path corver.reward.slime``
`areal`            AReaL: ``reward_fn="corver.reward.areal"`` of its workflow
`verl`             verl: ``path=pkg://corver.reward`` and ``name=verl`` of ``reward.custom_reward_function``
`openrlhf`         OpenRLHF: ``from corver.reward import openrlhf as reward_func`` in its file
=================  =================================================================================

CORVER_CONFIG is the settings file (TOML) of the reward; several are separated by ``:``, later ones over earlier ones. CORVER_ANSWERS
is the dataset's column with the golds, ``answers`` if unset; an empty value means that there are none. Each process opens the reward
at its first completion. A completion that cannot be scored is an error, except for verl and OpenRLHF, which get 0 and ``corver/error``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from corver import _native, _report
from corver._batching import Completion
from corver._environment import answers_column, scorer_arguments
from corver._golds import parse_golds
from corver._opened import Opened, batch_queue, scorer
from corver._reward import CorverReward, column, last_user_turn
from corver.openrlhf import reward_function
from corver.verl.reward import compute_score

__all__ = ["CorverORM", "areal", "openrlhf", "slime", "trl", "verl"]

_openrlhf_functions = Opened(reward_function)


def trl(prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[float]:
    """Returns the reward of each completion, with the arguments of TRL's and axolotl's reward functions.

    It is the mean return over the characters; `corver.trl.CorverGRPOTrainer` credits tokens.
    """
    # A reward of its own for each call, since axolotl calls from several threads.
    return CorverReward(scorer(scorer_arguments()), answers=answers_column())(prompts, completions, **columns)


trl.__name__ = "corver"  # in the names of TRL's metrics; pickle uses __qualname__


class CorverORM:
    """Reward function of ms-swift: the mean return over the characters of each completion."""

    def __init__(self, args: Any = None, **_options: Any) -> None:
        self.args = args

    def __call__(
        self, completions: Sequence[str], *, messages: Sequence[Sequence[Mapping[str, Any]]], **columns: Any
    ) -> list[float]:
        """Returns the rewards. ``messages`` are the conversations, which end with the completions."""
        return trl([turns[:-1] for turns in messages], completions, **columns)


async def slime(args: Any, sample: Any, **_options: Any) -> float | list[float]:
    """Returns the reward of slime's sample, or those of a list of samples (``--group-rm``).

    ``corver_config`` in the file of ``--custom-config-path`` replaces CORVER_CONFIG. The golds are the sample's label.
    """
    if not isinstance(sample, list):
        return await _sample_reward(args, sample)
    return list(await asyncio.gather(*(_sample_reward(args, each) for each in sample)))


async def _sample_reward(args: Any, sample: Any) -> float:
    prompt = sample.prompt
    completion = Completion(
        question=_native.last_user_turn(prompt) if isinstance(prompt, str) else last_user_turn(prompt),
        golds=parse_golds(sample.label),
        text=_native.extract_response(sample.response, ""),  # slime leaves the special tokens in
    )
    queue = await asyncio.to_thread(batch_queue, scorer_arguments(getattr(args, "corver_config", None)))
    return _checked_reward(await asyncio.wrap_future(queue.submit(completion)), "slime")


def areal(
    prompt: str, completions: str, prompt_ids: Sequence[int], completion_ids: Sequence[int], **columns: Any
) -> float:
    """Returns the reward of a completion, with the arguments of AReaL's reward functions.

    AReaL calls it in worker processes, and replaces a reward that takes more than 15 s four times by 0.
    """
    completion = Completion(
        question=_native.last_user_turn(prompt),
        golds=parse_golds(column(columns, answers_column(), "answers")),
        text=_native.extract_response(completions, ""),  # AReaL leaves the special tokens in
    )
    return _checked_reward(batch_queue(scorer_arguments()).submit(completion).result(), "AReaL")


async def verl(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    **reward_kwargs: Any,
) -> dict[str, Any]:
    """Returns the result of `corver.verl.compute_score`. ``reward_kwargs`` are single settings over CORVER_CONFIG."""
    return await compute_score(data_source, solution_str, ground_truth, extra_info, **scorer_arguments(), **reward_kwargs)


def openrlhf(queries: list[str], prompts: list[str], labels: list[Any]) -> dict[str, Any]:
    """Returns the result of `corver.openrlhf.reward_function`."""
    return _openrlhf_functions.get(scorer_arguments())(queries, prompts, labels)


def _checked_reward(score: Any, trainer: str) -> float:
    _report.refuse_signs(score.to_dict(), trainer)
    return score.reward
