"""Metrics of a score for trainers' logs, under fixed names, the same that the server returns to OpenRLHF."""

from __future__ import annotations

from typing import Any

from corver import CorverError

_PARTS = ("judge", "format", "sentences")
_NAMES = (*_PARTS, "num_sentences", "num_counted", "error")


def metrics(trace: dict[str, Any]) -> dict[str, float]:
    """Returns the metrics of a trace, as `Score.to_dict` has it.

    ``corver/judge``, ``corver/format`` and ``corver/sentences`` add up to the reward. ``corver/num_sentences`` is the number of
    sentences, ``corver/num_counted`` of those whose verdict depends on a count.
    """
    sentences = trace["sentences"]
    counted = [sentence for sentence in sentences if sentence["verdict"] and sentence["verdict"]["count"] is not None]
    parts = [trace["return_parts"][part] for part in _PARTS]
    return _named((*parts, len(sentences), len(counted), 0))


def sentences(trace: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns text, section, count, precision, reward and note of each sentence, for logs."""
    return [_sentence(sentence) for sentence in trace["sentences"]]


def refuse_signs(trace: dict[str, Any], trainer: str) -> None:
    """Raises if the rule sets advantage signs, which the reward of a completion leaves out."""
    verdicts = [sentence["verdict"] for sentence in trace["sentences"]]
    if any(verdict is not None and verdict.get("credit") == "advantage_sign" for verdict in verdicts):
        raise CorverError(
            f"the rule sets signs of advantages, and {trainer} cannot apply them; use another rule, or "
            "corver.trl.CorverGRPOTrainer, which can"
        )


def refuse_token_rewards(trace: dict[str, Any], trainer: str) -> None:
    """Raises if the rule rewards single tokens, which a baseline of the group does not fit."""
    verdicts = [sentence["verdict"] for sentence in trace["sentences"]]
    credits = [verdict.get("credit") for verdict in verdicts if verdict is not None]
    if any(isinstance(credit, dict) and "token_rewards" in credit for credit in credits):
        raise CorverError(
            f"the rule rewards single tokens, which needs PPO's advantages (GAE), and {trainer} gets "
            "GRPO's; use another rule"
        )


def neutral_metrics() -> dict[str, float]:
    """Returns the metrics of a completion that could not be scored: ``corver/error`` is 1."""
    return _named((0, 0, 0, 0, 0, 1))


def accuracy(trace: dict[str, Any]) -> float:
    """Returns 1 if the answer judge's reward is positive, else 0; 0 without golds."""
    return float(trace["response"]["judge"]["reward"] > 0)


def _sentence(sentence: dict[str, Any]) -> dict[str, Any]:
    verdict = sentence["verdict"] or {}
    count = verdict.get("count")
    precisions = [lookup["precision"] for lookup in verdict.get("lookups", []) if lookup["occurrences"] == count]
    return {
        "text": sentence["text"],
        "section": sentence["section"],
        "count": count,
        "precision": precisions[0] if count is not None and precisions else None,
        "reward": verdict.get("reward"),
        "note": verdict.get("note"),
    }


def _named(values: tuple[float, ...]) -> dict[str, float]:
    return {f"corver/{name}": float(value) for name, value in zip(_NAMES, values, strict=True)}
