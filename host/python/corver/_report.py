"""What trainers log of a score: numbers under names that never change, the same that the server gives to OpenRLHF."""

from __future__ import annotations

from typing import Any

from corver import CorverError

_NAMES = ("judge", "format", "sentences", "num_sentences", "num_counted", "error")


def numbers(trace: dict[str, Any]) -> dict[str, float]:
    """Of a trace, as `Score.to_dict` has it.

    ``corver/judge``, ``corver/format`` and ``corver/sentences`` add up to the reward. ``corver/num_sentences`` and
    ``corver/num_counted`` say how many sentences there are, and how many of them a count decided.
    """
    sentences = trace["sentences"]
    counted = [one for one in sentences if one["verdict"] and one["verdict"]["count"] is not None]
    values = (*(trace["return_parts"][part] for part in _NAMES[:3]), len(sentences), len(counted), 0)
    return _named(values)


def refuse_labels(trace: dict[str, Any], trainer: str) -> None:
    """Raises where the rule labelled a sentence: the reward of a completion leaves labels out."""
    verdicts = [one["verdict"] for one in trace["sentences"]]
    if any(verdict is not None and verdict.get("credit") == "sign" for verdict in verdicts):
        raise CorverError(
            f"the rule labels sentences, and {trainer} cannot apply labels to the advantages of their tokens; use another rule, or "
            "corver.trl.CorverGRPOTrainer, which can"
        )


def neutral() -> dict[str, float]:
    """The same names, of a completion that could not be scored: ``corver/error`` is 1."""
    return _named((0, 0, 0, 0, 0, 1))


def is_right(trace: dict[str, Any]) -> float:
    """1 where the judge pays, else 0; 0 too where there is no gold."""
    return float(trace["response"]["judge"]["reward"] > 0)


def _named(values: tuple[float, ...]) -> dict[str, float]:
    return {f"corver/{name}": float(value) for name, value in zip(_NAMES, values, strict=True)}
