"""The gold answers of a dataset's row, in the shapes that trainers' datasets have."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

#: The keys under which published sets keep their answers: Search-R1, NQ, TriviaQA, PopQA, SQuAD.
KEYS = ("target", "ground_truth", "golds", "answers", "answer", "value", "aliases", "possible_answers", "text")


def golds(value: Any) -> list[str]:
    """Every spelling that counts as right, each once, in order.

    ``value`` is a list or array of texts; or one text, in which ``;`` separates answers, or which is the JSON of a list; or a
    number; or a mapping with one or more of ``KEYS``. ``None``, an empty text and an empty list mean that nobody knows.
    Anything else is a ``ValueError``.
    """
    return list(dict.fromkeys(text for text in map(str.strip, _texts(value)) if text))


def _texts(value: Any) -> Iterable[str]:
    if value is None:
        return []
    if isinstance(value, str):
        return _of_text(value)
    if isinstance(value, Mapping):
        return _of_mapping(value)
    if hasattr(value, "tolist"):  # an array, as Parquet files are read
        return _texts(value.tolist())
    if isinstance(value, Iterable):
        return [_of_item(item) for item in value]
    return [_of_item(value)]


def _of_text(text: str) -> Iterable[str]:
    if text.lstrip().startswith("["):
        try:
            return [_of_item(item) for item in json.loads(text)]
        except ValueError:
            pass  # only looks like a list
    return text.split(";")


def _of_mapping(mapping: Mapping[Any, Any]) -> Iterable[str]:
    known = [key for key in KEYS if key in mapping]
    if not known:
        keys = sorted(map(str, mapping))
        raise ValueError(f"a gold answer is looked for under {', '.join(KEYS)}; the row has a mapping with the keys {keys}")
    return [text for key in known for text in _texts(mapping[key])]


def _of_item(item: Any) -> str:
    if isinstance(item, (str, int, float)):
        return str(item)
    raise ValueError(f"a gold answer is a text; the row has {item!r}")
