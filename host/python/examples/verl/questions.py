"""Converts a question file to verl's dataset: ``python questions.py QUESTIONS.json OUT.parquet``.

The file is a JSON list of ``{"question": …, "answers": […]}``, as `corver-host demo world` writes it.
"""

import json
import sys
from pathlib import Path

import pandas


def row(index: int, question: str, answers: list[str]) -> dict:
    return {
        "data_source": "corver",
        "prompt": [{"role": "user", "content": question}],
        "ability": "facts",
        "reward_model": {"style": "rule", "ground_truth": answers},
        "extra_info": {"index": index, "question": question},
    }


if __name__ == "__main__":
    questions, out = Path(sys.argv[1]), Path(sys.argv[2])
    records = json.loads(questions.read_text())
    rows = [row(index, record["question"], record["answers"]) for index, record in enumerate(records)]
    pandas.DataFrame(rows).to_parquet(out)
    print(f"{len(rows)} questions in {out}")
