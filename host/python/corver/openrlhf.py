"""CorVer in OpenRLHF 0.11: the reward of a completion, computed beside vLLM.

Write a file, and give it as ``--reward.remote_url reward.py``::

    from corver.openrlhf import reward_function

    reward_func = reward_function(plugin="first.wasm", index="INDEX", extractor="MODEL")

``--reward.remote_url http://HOST:8765/get_reward`` asks `corver-host serve` instead, and gets the same answers. Rewards per
token are not possible: OpenRLHF puts one number on the last token.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

import corver
from corver import _native, _report
from corver._batching import Batches, Completion
from corver._golds import golds

_log = logging.getLogger("corver.openrlhf")

RewardFunction = Callable[[list[str], list[str], list[Any]], dict[str, Any]]


def reward_function(*, strict: bool = False, **scorer: Any) -> RewardFunction:
    """OpenRLHF's ``reward_func``; ``scorer`` are the arguments of `corver.Scorer`, which is opened at once.

    It returns ``rewards`` (mean returns), ``scores`` (1 where the judge pays, else 0: what dynamic filtering looks at) and
    ``extra_logs``: numbers where one query came, which is how OpenRLHF calls it, else lists. A completion that cannot be scored
    is logged, gets 0, and has ``corver/error`` 1; with ``strict`` it is an error, after which OpenRLHF has no reward for it. A rule
    that labels sentences is an error in any case: OpenRLHF cannot apply labels.
    """
    batches = Batches(corver.Scorer(**scorer))

    def reward_func(queries: list[str], prompts: list[str], labels: list[Any]) -> dict[str, Any]:
        futures = [_submit(batches, *row) for row in zip(queries, prompts, labels, strict=True)]
        return _answer([_paid(future, strict) for future in futures])

    return reward_func


def _submit(batches: Batches, query: str, prompt: str, label: Any) -> Future:
    try:
        completion = Completion(_question(label, prompt), golds(label), _native.response(query, prompt))
    except ValueError as error:
        unreadable: Future = Future()
        unreadable.set_exception(error)
        return unreadable
    return batches.submit(completion)


def _question(label: Any, prompt: str) -> str:
    """What a label holds as ``question`` or ``problem``, where that is a text, or else what the prompt asks; as the server does."""
    asked = label.get("question", label.get("problem")) if isinstance(label, Mapping) else None
    return asked if isinstance(asked, str) else _native.question(prompt)


def _paid(future: Future, strict: bool) -> tuple[float, float, dict[str, float]]:
    """A completion's reward, whether it is right, and the numbers for the log."""
    try:
        score = future.result()
    except Exception as error:
        if strict:
            raise
        _log.error("a completion could not be scored, and is paid 0: %s", error)
        return 0.0, 0.0, _report.neutral()
    trace = score.to_dict()
    _report.refuse_labels(trace, "OpenRLHF")
    return score.reward, _report.is_right(trace), _report.numbers(trace)


def _answer(paid: list[tuple[float, float, dict[str, float]]]) -> dict[str, Any]:
    def column(values: tuple[float, ...]) -> float | list[float]:
        return values[0] if len(values) == 1 else list(values)

    rewards, scores, logs = zip(*paid, strict=True)
    extra_logs = {name: column(tuple(numbers[name] for numbers in logs)) for name in _report.neutral()}
    return {"rewards": column(rewards), "scores": column(scores), "extra_logs": extra_logs}
