"""The reward function of verl's reward loop."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import corver
from corver import _report
from corver._batching import Batches, Completion
from corver._golds import golds
from corver._server import Server

#: Under this key of `extra_info`, the agent loop hands over question, token ids and tokenizer.
HANDED = "corver"
#: Under this key of the result, the agent loop finds a reward for each token.
TOKEN_REWARDS = "corver_token_rewards"

_log = logging.getLogger("corver.verl")
_open: dict[str, Batches | Exception] = {}
_opening = threading.Lock()


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
    """What a completion earns: ``score``, ``acc`` (1 where the judge pays), and numbers for the log, always the same ones.

    ``scorer`` are the arguments of `corver.Scorer`, from ``reward_kwargs``, or the ``url`` of a `corver-host serve`. Each
    worker opens it once; what is wrong with them is an error. A completion that cannot be scored is logged, gets 0, and has
    ``corver/error`` 1; with ``strict`` it is an error, which ends its rollout. A rule that labels sentences is an error in any
    case: verl hands its estimators rewards alone.

    ``ground_truth`` is read as `corver._golds.golds` says. The question is ``extra_info["question"]``, or what the agent loop
    hands over. The two ``reward_…`` arguments are verl's, for other reward functions.
    """
    batches = await asyncio.to_thread(_batches, _plain(scorer))
    info = extra_info or {}
    handed = info.get(HANDED) or {}
    token_ids = handed.get("token_ids")
    try:
        score = await asyncio.wrap_future(
            batches.submit(
                Completion(
                    question=str(info.get("question") or handed.get("question") or ""),
                    golds=golds(ground_truth),
                    text=solution_str,
                    token_ids=token_ids,
                    tokenizer=_tokenizer(handed["tokenizer"]) if handed else None,
                )
            )
        )
    except Exception as error:
        if strict:
            raise
        _log.error("a completion of %s could not be scored, and is paid 0: %s", data_source, error)
        result = {"score": 0.0, "acc": 0.0, **_report.neutral()}
        returns = [0.0] * len(token_ids or [])
    else:
        trace = score.to_dict()
        _report.refuse_labels(trace, "verl")
        result = {"score": score.reward, "acc": _report.is_right(trace), **_report.numbers(trace)}
        returns = score.returns
    if token_ids is not None:
        result[TOKEN_REWARDS] = token_rewards(returns)
    return result


def token_rewards(returns: Sequence[float]) -> list[float]:
    """Rewards in verl's sense from returns `[T]`: they add up to the completion's score, which is the mean return."""
    return [value / len(returns) for value in returns]


def _batches(scorer: dict[str, Any]) -> Batches:
    """Opened once in a process; what could not be opened stays so."""
    key = json.dumps(scorer, sort_keys=True, default=str)
    with _opening:
        if key not in _open:
            try:
                _open[key] = Batches(Server(**scorer) if "url" in scorer else corver.Scorer(**scorer))
            except Exception as error:
                _open[key] = error
        opened = _open[key]
    if isinstance(opened, Exception):
        raise opened
    opened.check_process()
    return opened


@functools.cache
def _tokenizer(name: str) -> Any:
    """A folder as it is; a name as the tokenizer that transformers finds under it."""
    if Path(name).exists():
        return name
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(name)


def _plain(value: Any) -> Any:
    """Without OmegaConf's containers."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in value]
    return value
