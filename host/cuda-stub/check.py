#!/usr/bin/env python3
"""Compares a step's GPU work with the committed record: launches, products and memory of a rollout and of an update.

usage: check.py AT_SCALE RECORD [--write]   Run through `make test-cuda-stub`; WRITE=1 renews the record.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

SHAPES = ["llama-8b", "qwen3-14b", "olmo2-13b"]
TOLERANCE = 0.01  # of a count; libtorch's allocator depends a little on the order of threads
ROWS, DECODED = 384, 150  # completions in at_scale, and tokens of each
ROOT = pathlib.Path(__file__).parents[2]


def measure(program, shape):
    """Returns the work of the second rollout and of the second update, and the passes of the rollout over the model."""
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder, "sections.jsonl")
        environment = dict(
            os.environ,
            LD_LIBRARY_PATH=f"{ROOT}/.deps/cuda/torch/lib:{ROOT}/target/cuda-stub",
            LD_PRELOAD=str(ROOT / "target/cuda-stub/libcudastub.so"),
            CUDA_STUB_LOG=str(log),
        )
        command = [program, "--counts", "cuda", shape]
        run = subprocess.run(command, env=environment, text=True, stdout=subprocess.PIPE)
        if run.returncode != 0:
            sys.exit(f"error: {' '.join(command)} failed:\n{run.stdout}")
        # Each phase ends with a synchronisation, and the second update is the last one.
        rollout, update = [json.loads(line) for line in log.read_text().splitlines()[-2:]]
    reported = json.loads(run.stdout.splitlines()[-1])
    work = {"rollout": rollout, "update": update}
    for phase, section in work.items():
        del section["kernels"]
        section["allocated"] = reported[f"{phase}_peak"]
        section["planned"] = reported[f"{phase}_planned"]
    waves = -(-ROWS // reported["plan"]["rows"])
    return work, waves * DECODED


def main():
    program, record = sys.argv[1], pathlib.Path(sys.argv[2])
    write = sys.argv[3:] == ["--write"]
    expected = {} if write else json.loads(record.read_text())
    measured, failures = {}, []
    for shape in SHAPES:
        work, passes = measure(program, shape)
        measured[shape] = work
        for phase, section in work.items():
            print(
                f"{shape} {phase}: {section['launches']:,} launches, {section['products']:,} products, "
                f"{section['flop'] / 1e12:,.0f} TFLOP, {section['allocated'] / 2**30:.1f} of {section['planned'] / 2**30:.1f} GiB"
            )
            if section["allocated"] > section["planned"]:
                failures.append(f"{shape} {phase}: needs more memory than planned")
            if write:
                continue
            for key, value in section.items():
                known = expected[shape][phase][key]
                if abs(value - known) > TOLERANCE * known:
                    failures.append(f"{shape} {phase}: {key} is {value:,}, and {known:,} in the record")
        rollout = work["rollout"]
        per_pass = (rollout["launches"] + rollout["products"]) / passes
        print(f"{shape}: {per_pass:,.0f} launches and products per decoded token of a row")
    if write:
        record.write_text(json.dumps(measured, indent=1) + "\n")
    for failure in failures:
        print(failure, file=sys.stderr)
    if failures:
        sys.exit("error: the work of a step changed; if that is intended, renew the record: make test-cuda-stub WRITE=1")


if __name__ == "__main__":
    main()
