"""Times the parts of `make train` in a fresh clone of the last commit: fresh.py OUT.json. pip and cargo may have cached downloads."""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def main(out):
    root = Path(__file__).resolve().parents[3]
    with tempfile.TemporaryDirectory(dir=out.parent) as folder:
        clone = Path(folder) / "corver"
        subprocess.run(["git", "clone", "--quiet", root, clone], check=True)
        result = {f"{target}_s": make(clone, target) for target in ("setup", "plugins", "build", "train")}
        [summary] = clone.glob("runs/*/summary.json")
        summary = json.loads(summary.read_text())
    for name in ("steps", "seconds_total", "seconds_per_step", "reward_seconds_per_step"):
        result[name] = summary[name]
    out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


def make(clone, target):
    start = time.monotonic()
    subprocess.run(["make", target], cwd=clone, check=True, stdout=sys.stderr)
    return time.monotonic() - start


main(Path(sys.argv[1]).absolute())
