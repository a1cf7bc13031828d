"""The reward function of verl's reward loop."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from corver import _report
from corver._batching import Completion
from corver._golds import parse_golds
from corver._opened import batch_queue

#: Key of `extra_info` with the agent loop's question, token ids and tokenizer.
ROLLOUT = "corver"
#: Key of the result with a reward for each token, for the agent loop.
TOKEN_REWARDS = "corver_token_rewards"

_log = logging.getLogger("corver.verl")


async def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    *,
    strict: bool = False,
    reward_router_address: str | None = None,
    reward_model_tokenizer: Any = None,
    **scorer: Any,
) -> dict[str, Any]:
    """Scores a completion: ``score``, ``acc`` (1 if the answer judge's reward is positive), and metrics under fixed names.

    ``scorer`` are the arguments of `corver.Scorer`, from ``reward_kwargs``, or the ``url`` of a `corver-host serve`. Each
    worker opens it once; invalid arguments are an error. A completion that cannot be scored is logged, gets 0, and has
    ``corver/error`` 1; with ``strict`` it is an error, which ends its rollout. A rule that sets advantage signs is always an error:
    verl passes only rewards to its estimators. So is one that rewards single tokens, if the agent loop gets a return for each token.

    `corver._golds.parse_golds` parses ``ground_truth``. The question is ``extra_info["question"]``, or that of the agent loop. The
    two ``reward_…`` arguments are verl's, for other reward functions.
    """
    batches = await asyncio.to_thread(batch_queue, _plain(scorer))
    info = extra_info or {}
    rollout = info.get(ROLLOUT) or {}
    token_ids = rollout.get("token_ids")
    try:
        score = await asyncio.wrap_future(
            batches.submit(
                Completion(
                    question=str(info.get("question") or rollout.get("question") or ""),
                    golds=parse_golds(ground_truth),
                    text=solution_str,
                    token_ids=token_ids,
                    tokenizer=_tokenizer(rollout["tokenizer"]) if rollout else None,
                )
            )
        )
    except Exception as error:
        if strict:
            raise
        _log.error("a completion of %s could not be scored; its reward is 0: %s", data_source, error)
        result = {"score": 0.0, "acc": 0.0, **_report.neutral_metrics()}
        returns = [0.0] * len(token_ids or [])
    else:
        trace = score.to_dict()
        _report.refuse_signs(trace, "verl")
        if token_ids is not None:
            _report.refuse_token_rewards(trace, "verl")
        result = {"score": score.reward, "acc": _report.accuracy(trace), **_report.metrics(trace)}
        returns = score.returns
    if token_ids is not None:
        result[TOKEN_REWARDS] = token_rewards(returns)
    return result


def token_rewards(returns: Sequence[float]) -> list[float]:
    """Converts returns `[T]` to verl's rewards, which add up to the completion's score, the mean return."""
    return [value / len(returns) for value in returns]


@functools.cache
def _tokenizer(name: str) -> Any:
    """Returns a folder unchanged, or the tokenizer that transformers finds under a name."""
    if Path(name).exists():
        return name
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(name)


def _plain(value: Any) -> Any:
    """Converts OmegaConf's containers to dicts and lists."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in value]
    return value
