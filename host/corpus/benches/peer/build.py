"""Building an index: the official indexer and corver-host in turns, on the same text with the same tokenizer.

    make bench-build CORVER_SHARED=DIR, or
    python build.py --text DIR --tokenizer DIR --host corver-host --work DIR [--copies N] [--json FILE] [--turns N]

DIR of --text holds JSONL files (.gz too), DIR of --tokenizer a Llama-2 tokenizer as transformers 4.57 reads it. The
official indexer runs at its best: all cores, memory to spare, no metadata, no unigrams. Its tokenizer switch names a hub that
asks for a login, so the name is led to the local folder; it asks for the slow tokenizer, and a third run gives it the
fast one, which the indexer has no switch for. Time is wall time, memory the sum over the process tree, looked at every
20 ms; the fastest run of --turns counts. Both tables are compared byte for byte. With --sort-only the streams are made here, and
only suffixes are sorted there.
"""

import argparse
import filecmp
import gzip
import json
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import time

INDEXER = """
import resource, sys, types
tokenizer, fast = sys.argv[1], sys.argv[2] == "fast"
if tokenizer == "none":
    transformers = types.ModuleType("transformers")
    transformers.utils = types.SimpleNamespace(logging=types.SimpleNamespace(set_verbosity=lambda level: None))
    transformers.AutoTokenizer = types.SimpleNamespace(from_pretrained=lambda *args, **kwargs: None)
    sys.modules["transformers"] = transformers
else:
    import transformers
    load = transformers.AutoTokenizer.from_pretrained
    def local(name, **options):
        options.pop("token", None)
        options["use_fast"] = fast
        return load(tokenizer, **options)
    transformers.AutoTokenizer.from_pretrained = local
from infini_gram import indexing
files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
sys.argv = ["indexing", "--tokenizer", "llama", "--token_dtype", "u16", "--ulimit", str(files)] + sys.argv[3:]
indexing.main()
"""


def resident(pid):
    """Bytes of a process and everything below it."""
    total, todo = 0, [pid]
    while todo:
        pid = todo.pop()
        try:
            with open(f"/proc/{pid}/statm") as statm:
                total += int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            for task in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{task}/children") as children:
                    todo += map(int, children.read().split())
        except (FileNotFoundError, ProcessLookupError):
            pass  # it has just ended
    return total


def measure(command, **options):
    """Runs a command; its seconds, peak bytes and output."""
    start = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
    peak, done = [0], threading.Event()

    def watch():
        while not done.is_set():
            peak[0] = max(peak[0], resident(process.pid))
            done.wait(0.02)

    watcher = threading.Thread(target=watch)
    watcher.start()
    output, errors = process.communicate()
    seconds = time.monotonic() - start
    done.set()
    watcher.join()
    if process.returncode != 0:
        sys.exit(f"{command} failed:\n{output}\n{errors}")
    return {"seconds": seconds, "peak_bytes": peak[0]}, output


def fresh(path):
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path


def official(arguments, text, out, tokenizer, kind):
    command = [sys.executable, "-c", INDEXER, tokenizer, kind, "--data_dir", str(text), "--save_dir", str(out)]
    command += ["--shards", "1", "--cpus", str(os.cpu_count()), "--mem", str(arguments.mem)]
    figures, _ = measure(command, env={**os.environ, "TOKENIZERS_PARALLELISM": "false"})
    return figures


def ours(arguments, text, out):
    shutil.rmtree(out, ignore_errors=True)
    files = sorted(map(str, text.glob("*.jsonl*")))
    command = [arguments.host, "index", "build", *files, "--out", str(out), "--no-metadata", "--json"]
    command += ["--tokenizer", str(pathlib.Path(arguments.tokenizer) / "tokenizer.json")]
    figures, output = measure(command)
    report = json.loads(output)
    return {**figures, "stages": report["stages"]}, report["index"]


def ratio(what, ours, theirs, unit, bar):
    """Returns a ratio with the fields of `Ratio` in figures.rs."""
    times = theirs / ours
    return {"what": what, "ours": ours, "theirs": theirs, "unit": unit, "ratio": times, "bar": bar, "met": times >= bar}


def unpack(arguments, work):
    """The text, unpacked and as often as asked for, each copy in another order of its lines."""
    text = fresh(work / "text")
    size = 0
    for copy in range(arguments.copies):
        for path in sorted(pathlib.Path(arguments.text).glob("*.jsonl*")):
            open_file = gzip.open if path.suffix == ".gz" else open
            with open_file(path, "rt", encoding="utf-8") as lines:
                lines = lines.readlines()
            size += sum(len(json.loads(line)["text"].encode()) for line in lines)
            with open(text / f"{copy}-{path.stem.split('.')[0]}.jsonl", "w", encoding="utf-8") as out:
                out.writelines(lines if copy == 0 else reversed(lines))
    return text, size


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--text", required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--host", default="target/release/corver-host")
    parser.add_argument("--work", default="target/bench/build")
    parser.add_argument("--json", default="target/bench/build.json")
    parser.add_argument("--copies", type=int, default=2, help="2 x the shared corpora are 80 MB")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--mem", type=int, default=12, help="GiB that the official indexer may take")
    parser.add_argument("--sort-only", action="store_true")
    arguments = parser.parse_args()

    work = pathlib.Path(arguments.work).absolute()
    text, text_bytes = unpack(arguments, work)
    least = lambda old, new: new if old is None or new["seconds"] < old["seconds"] else old  # noqa: E731
    best = {}
    for _ in range(arguments.turns):
        figures, index = ours(arguments, text, work / "ours")
        best["ours"] = least(best.get("ours"), figures)
        theirs = fresh(work / "theirs")
        for name in ["tokenized.0", "offset.0"]:
            shutil.copy(work / "ours" / name, theirs / name)
        figures = official(arguments, text, theirs, "none", "slow")
        best["official, suffix array alone"] = least(best.get("official, suffix array alone"), figures)
        if not filecmp.cmp(theirs / "table.0", work / "ours" / "table.0", shallow=False):
            sys.exit("the tables differ")
        for kind in [] if arguments.sort_only else ["slow", "fast"]:
            name = f"official, whole, {kind} tokenizer"
            best[name] = least(best.get(name), official(arguments, text, fresh(work / kind), arguments.tokenizer, kind))

    for name, figures in best.items():
        rate = text_bytes / figures["seconds"] / 1e6
        print(f"{name:32} {figures['seconds']:8.2f} s {rate:8.1f} MB/s {figures['peak_bytes'] / 1e6:8.0f} MB at most")
    stages = best["ours"]["stages"]
    for stage, seconds in stages.items():
        print(f"  ours, {stage:25}{seconds:8.2f} s {text_bytes / seconds / 1e6:8.1f} MB/s")

    sorting = sum(seconds for stage, seconds in stages.items() if stage != "tokenising")
    alone = best["official, suffix array alone"]
    ratios = [
        ratio("suffix array: time", sorting, alone["seconds"], "s", 5),
        # Ours is that of the whole process, tokenising included.
        ratio("suffix array: memory", best["ours"]["peak_bytes"] / 1e6, alone["peak_bytes"] / 1e6, "MB", 1),
    ]
    for name, figures in best.items():
        if name.startswith("official, whole"):
            ratios.append(ratio(name.removeprefix("official, "), best["ours"]["seconds"], figures["seconds"], "s", 4))
    print("\n| what | ours | official | ratio | bar | |\n| --- | --- | --- | --- | --- | --- |")
    for row in ratios:
        cells = [f"{row[side]:.2f} {row['unit']}" for side in ["ours", "theirs"]]
        cells += [f"{row['ratio']:.1f}×", f"≥ {row['bar']}×", "" if row["met"] else "missed"]
        print(f"| {row['what']} | {' | '.join(cells)} |")
    path = pathlib.Path(arguments.json)
    path.parent.mkdir(parents=True, exist_ok=True)
    result = {"text_bytes": text_bytes, "tokens": index["tokens"], "runs": best, "ratios": ratios}
    path.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
