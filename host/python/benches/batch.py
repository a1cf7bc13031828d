"""Times a batch of 384 completions in process and in the host, alternately: batch.py CORVER_HOST EXAMPLE OUT.json.

The completions are those of one step of the demo with 24 prompts. Every round opens a new scorer, since a scorer caches triplets
and counts. The package gets token ids, and its time includes decoding them; the host decodes while it samples.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import corver

ROUNDS = 7


def main():
    host, example, out = (Path(argument).resolve() for argument in sys.argv[1:])
    run = out.parent / "wheel-run"
    shutil.rmtree(run, ignore_errors=True)
    train = ["train", "--steps", "1", "--set", "question.prompts_per_step=24", "--set", "question.eval_limit=1", "--out", run]
    subprocess.run([host, *train], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    step = json.loads((run / "metrics.jsonl").read_text().splitlines()[0])
    questions = [json.loads(line)["trace"]["question"] for line in (run / "traces.jsonl").read_text().splitlines()]
    ids = run / "ids.json"

    seconds = {"host": [], "package": []}
    for number in range(ROUNDS + 1):
        printed = subprocess.run([example, host, run / "traces.jsonl", ids], check=True, capture_output=True, text=True).stdout
        package_seconds = in_process(json.loads(ids.read_text()), questions)
        if number > 0:  # the first round fills the page cache
            seconds["host"].append(float(printed))
            seconds["package"].append(package_seconds)
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    result = {
        "completions": len(questions),
        "host_s": medians["host"],
        "package_s": medians["package"],
        "ratio": medians["package"] / medians["host"],
        "host_range_s": [min(seconds["host"]), max(seconds["host"])],
        "package_range_s": [min(seconds["package"]), max(seconds["package"])],
        "host_step_reward_s": step["seconds/reward"],
        "processors": os.cpu_count(),
    }
    out.write_text(json.dumps(result, indent=1))
    print(json.dumps(result, indent=1))


def in_process(ids, questions):
    scorer = corver.Scorer(index="demo")
    demo = corver.demo().policy
    scorer.score(completion_ids=[], tokenizer=demo)  # reads the tokenizer
    begun = time.perf_counter()
    scores = scorer.score(questions=questions, completion_ids=ids, tokenizer=demo)
    [(score.reward, score.returns) for score in scores]
    return time.perf_counter() - begun


main()
