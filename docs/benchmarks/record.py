"""Runs `make bench-NAME`, and puts the figures that it writes into this folder: record.py NAME [VARIABLE=VALUE]...

A record also has what it takes to repeat the benchmark: command, date, commit and machine.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]


def main(name, *variables):
    commit = clean_commit()
    start = time.time()
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    subprocess.run(["make", f"bench-{name}", *variables], cwd=ROOT, env=environment, check=True)
    if clean_commit() != commit:
        sys.exit("record.py: the commit has changed during the benchmark")
    shown = [key + "=DIR" if "/" in value else f"{key}={value}" for key, _, value in (v.partition("=") for v in variables)]
    about = {"command": " ".join(["make", f"bench-{name}", *shown]), "date": time.strftime("%Y-%m-%d"), "commit": commit}
    for file in (ROOT / "target/bench").glob("*.json"):
        if file.stat().st_mtime >= start:
            figures = file.read_text()
            if '"is_resumed": true' in figures:
                sys.exit(f"record.py: an earlier run began what {file} describes; delete target/bench/{name} and run again")
            record = {**about, "machine": machine(), "figures": json.loads(figures)}
            (FOLDER / file.name).write_text(json.dumps(record, indent=1) + "\n")


def clean_commit():
    if git("status", "--porcelain", "--", ".", ":!docs"):
        sys.exit("record.py: commit the changes outside docs/ first")
    return git("rev-parse", "--short=8", "HEAD")


def git(*command):
    return subprocess.check_output(["git", "-C", ROOT, *command], text=True).strip()


def machine():
    cpuinfo = Path("/proc/cpuinfo").read_text()
    model = cpuinfo.split("model name")[1].split("\n")[0].strip("\t :")
    with_amx = " with AMX" if "amx_tile" in cpuinfo else ""
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores, {model}{with_amx}, {gib:.0f} GiB"


main(*sys.argv[1:])
