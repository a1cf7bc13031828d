"""Settings in environment variables, for functions that a trainer imports by name and calls without arguments of ours."""

from __future__ import annotations

import os
from typing import Any

from corver import SettingsError


def scorer_arguments(config: str | None = None) -> dict[str, Any]:
    """Returns the scorer's arguments: the files of ``config``, or else of CORVER_CONFIG."""
    paths = config or os.environ.get("CORVER_CONFIG")
    if not paths:
        raise SettingsError("CORVER_CONFIG is not set; it must be the path of the reward's settings file (TOML), or demo")
    return {"config": paths.split(os.pathsep)}


def answers_column() -> str | None:
    """Returns the name of the column with the golds; None if there are none."""
    return os.environ.get("CORVER_ANSWERS", "answers") or None


def tokenizer() -> str | None:
    """Returns the path of the policy's tokenizer.json or of its folder; None if CORVER_TOKENIZER is not set."""
    return os.environ.get("CORVER_TOKENIZER") or None
