"""CorVer in OpenRLHF 0.11: the reward of a completion, computed on the machine of vLLM.

Write a file, and pass it as ``--reward.remote_url reward.py``::

    from corver.openrlhf import reward_function

    reward_func = reward_function(plugin="first.wasm", index="INDEX", extractor="MODEL")

``--reward.remote_url http://HOST:8765/get_reward`` uses `corver-host serve` instead, with the same results. Rewards per token are
not possible: OpenRLHF puts one number on the last token.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import corver
from corver import _native, _report
from corver._batching import BatchQueue, Completion
from corver._golds import parse_golds, question_in

_log = logging.getLogger("corver.openrlhf")

RewardFunction = Callable[[list[str], list[str], list[Any]], dict[str, Any]]


def reward_function(*, strict: bool = False, **scorer: Any) -> RewardFunction:
    """Returns OpenRLHF's ``reward_func``; ``scorer`` are the arguments of `corver.Scorer`, which is opened immediately.

    ``reward_func`` returns ``rewards`` (mean returns), ``scores`` (1 if the answer judge's reward is positive, else 0: dynamic
    filtering reads them) and ``extra_logs``. Each is a number for one query, which is how OpenRLHF calls it, or else a list. A
    completion that cannot be scored is logged, gets 0, and has ``corver/error`` 1; with ``strict`` it is an error, after which
    OpenRLHF has no reward for it. A rule that sets advantage signs is always an error: OpenRLHF cannot apply them.
    """
    batches = BatchQueue(corver.Scorer(**scorer))

    def reward_func(queries: list[str], prompts: list[str], labels: list[Any]) -> dict[str, Any]:
        futures = [_submit(batches, *row) for row in zip(queries, prompts, labels, strict=True)]
        return _answer([_result(future, strict) for future in futures])

    return reward_func


def _submit(batches: BatchQueue, query: str, prompt: str, label: Any) -> Future:
    try:
        question = question_in(label)
        if question is None:
            question = _native.last_user_turn(prompt)
        completion = Completion(question, parse_golds(label), _native.extract_response(query, prompt))
    except ValueError as error:
        unreadable: Future = Future()
        unreadable.set_exception(error)
        return unreadable
    return batches.submit(completion)


def _result(future: Future, strict: bool) -> tuple[float, float, dict[str, float]]:
    """Returns the reward, the accuracy and the metrics of a completion."""
    try:
        score = future.result()
    except Exception as error:
        if strict:
            raise
        _log.error("a completion could not be scored; its reward is 0: %s", error)
        return 0.0, 0.0, _report.neutral_metrics()
    trace = score.to_dict()
    _report.refuse_signs(trace, "OpenRLHF")
    return score.reward, _report.accuracy(trace), _report.metrics(trace)


def _answer(results: list[tuple[float, float, dict[str, float]]]) -> dict[str, Any]:
    def column(values: tuple[float, ...]) -> float | list[float]:
        return values[0] if len(values) == 1 else list(values)

    rewards, scores, logs = zip(*results, strict=True)
    extra_logs = {name: column(tuple(metrics[name] for metrics in logs)) for name in _report.neutral_metrics()}
    return {"rewards": column(rewards), "scores": column(scores), "extra_logs": extra_logs}
