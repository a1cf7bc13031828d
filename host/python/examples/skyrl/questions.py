"""Converts a question file to SkyRL's dataset: ``python questions.py QUESTIONS.json OUT.jsonl``.

The file is a JSON list of ``{"question": …, "answers": […]}``, as `corver-host demo world` writes
it.
"""

import json
import sys
from pathlib import Path


def row(question: str, answers: list[str]) -> dict:
    return {
        "data_source": "corver",
        "prompt": [{"role": "user", "content": question}],
        "reward_spec": {"method": "rule", "ground_truth": answers},
        "extra_info": {"question": question},
    }


if __name__ == "__main__":
    questions, out = Path(sys.argv[1]), Path(sys.argv[2])
    records = json.loads(questions.read_text())
    rows = [row(record["question"], record["answers"]) for record in records]
    out.write_text("".join(json.dumps(row) + "\n" for row in rows))
    print(f"{len(rows)} questions in {out}")
