"""Golds and question of a dataset's row, in the shapes that trainers' datasets have."""

from __future__ import annotations

import json
from typing import Any

from corver import _native


def parse_golds(value: Any) -> list[str]:
    """Returns the accepted answers, in order.

    ``value`` is a list or array of texts; one text, in which ``;`` separates answers, or which is the JSON of a list; a number; or
    a mapping that holds them as question files, NQ, TriviaQA, PopQA, SQuAD, Search-R1 and verl's sets do. ``None``, an empty text
    and an empty list mean that there are no golds. Anything else is a ``ValueError``.
    """
    return _native.parse_golds(_to_json(value))


def question_in(label: Any) -> str | None:
    """Returns the question in a label, as the server reads it; None if it has none."""
    return _native.question_in(_to_json(label))


def _to_json(value: Any) -> str:
    return json.dumps(value, default=_array_to_list)


def _array_to_list(value: Any) -> Any:
    """Converts an array, which readers of Parquet files return."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise ValueError(f"a gold answer is a text; the row has {value!r}")
