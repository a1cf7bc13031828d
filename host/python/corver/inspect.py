"""CorVer in Inspect AI: a scorer whose log has each sentence with its count.

    from corver.inspect import factuality

    Task(dataset=json_dataset("questions.json"), solver=generate(), scorer=factuality(config="corver.toml"))

`inspect score LOG --scorer corver/factuality -S config=corver.toml` scores a log that exists. A sample's target has the golds.

Written for Inspect AI 0.3.
"""

from __future__ import annotations

import asyncio
import math
from typing import Any

try:
    from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
    from inspect_ai.solver import TaskState
except ImportError as error:
    raise ImportError("corver.inspect needs Inspect AI: pip install 'corver[inspect]'") from error

from corver import _report
from corver._batching import Completion
from corver._opened import batch_queue

__all__ = ["factuality"]

_METRICS = {name: [mean(), stderr()] for name in ("accuracy", "supported", "reward")}


#: Relation of a count to the true number, as the reports write it.
_SIGNS = {"exact": "", "at_least": "≥ ", "estimate": "≈ "}


@scorer(metrics=_METRICS)
def factuality(
    plugin: str | list[str] | None = None,
    index: str | list[str] | None = None,
    extractor: str | None = None,
    judge: str | None = None,
    format: str | None = None,
    config: str | list[str] | None = None,
    settings: dict[str, Any] | None = None,
) -> Scorer:
    """Scores a completion by the corpus. The arguments are those of `corver.Scorer`, which is opened at the first sample.

    The score has these values, NaN where there is none, which Inspect leaves out of its means:

    accuracy: 1 if the answer judge's reward is positive, else 0; NaN without golds.
    supported: share of the sentences with a count whose count is above 0; NaN if no sentence has a count.
    reward: mean return over the characters.

    ``metadata["sentences"]`` has text, section, count, precision, reward and note of each sentence.
    """
    arguments = {
        "plugin": plugin, "index": index, "extractor": extractor, "judge": judge, "format": format, "config": config,
        "settings": settings,
    }  # fmt: skip
    given = {name: value for name, value in arguments.items() if value is not None}

    async def score(state: TaskState, target: Target) -> Score:
        queue = await asyncio.to_thread(batch_queue, given)
        golds = [gold for gold in target if gold.strip()]
        completion = Completion(question=state.input_text, golds=golds, text=_completion(state))
        scored = await asyncio.wrap_future(queue.submit(completion))
        trace = scored.to_dict()
        sentences = _report.sentences(trace)
        counts = [sentence["count"] for sentence in sentences if sentence["count"] is not None]
        return Score(
            value={
                "accuracy": _report.accuracy(trace) if golds else math.nan,
                "supported": sum(count > 0 for count in counts) / len(counts) if counts else math.nan,
                "reward": scored.reward,
            },
            explanation="\n".join(_line(sentence) for sentence in sentences),
            metadata={"sentences": sentences, "parts": trace["return_parts"]},
        )

    return score


def _completion(state: TaskState) -> str:
    """Returns the text of the model. Inspect separates reasoning from it; here it is between `<think>` tags again."""
    if state.output.empty:
        return ""
    content = state.output.message.content
    if isinstance(content, str):
        return content
    return "\n".join(part.text for part in content if part.type in ("reasoning", "text"))


def _line(sentence: dict[str, Any]) -> str:
    """Returns count, reward and text of a sentence."""
    sign = _SIGNS.get(sentence["precision"], "")
    count = "no count" if sentence["count"] is None else f"count {sign}{sentence['count']}"
    reward = "" if sentence["reward"] is None else f", {sentence['reward']:+.2f}"
    return f"[{count}{reward}] {sentence['text']}"
