"""Completions about the demo's world, and completions whose returns the host's own test has checked."""

import json
from pathlib import Path

QUESTIONS = ["Where does it lie?", "Who wrote it?", ""]
ANSWERS = [["Old Riavuck", "Riavuck"], "somebody; nobody", []]
COMPLETIONS = [
    "<think>Old Riavuck is a town, as far as anyone remembers. It is old.</think><answer>Old Riavuck</answer>",
    "<think>unknown</think><answer>I don't know</answer>",
    "No block at all. Old Riavuck lies somewhere!",
]


def checked():
    """Returns `[{"question", "answers", "tokens", "returns", "advantages"}]` of tests/returns.rs, groups of four next to each other."""
    return json.loads((Path(__file__).parent / "checked.json").read_text())
