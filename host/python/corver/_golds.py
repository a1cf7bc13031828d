"""The gold answers of a dataset's row, in the shapes that trainers' datasets have."""

from __future__ import annotations

import json
from typing import Any

from corver import _native


def golds(value: Any) -> list[str]:
    """Every spelling that counts as right, in order.

    ``value`` is a list or array of texts; or one text, in which ``;`` separates answers, or which is the JSON of a list; or a
    number; or a mapping that holds them as question files, NQ, TriviaQA, PopQA, SQuAD, Search-R1 and verl's sets do. ``None``, an empty
    text and an empty list mean that nobody knows. Anything else is a ``ValueError``.
    """
    return _native.golds(json.dumps(value, default=_plain))


def _plain(value: Any) -> Any:
    """An array, as Parquet files are read, as a list."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise ValueError(f"a gold answer is a text; the row has {value!r}")
