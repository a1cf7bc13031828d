"""Time and memory against the size of the input: curves.py CORVER_HOST DECODE_EXAMPLE OUT_FOLDER [LARGEST].

A point is one process on generated input, a request to a server, or a call of the decode example. Indexes, document sets and question sets
above LARGEST (default 1e8) are left out; an index of 1e9 tokens takes 12 bytes of disk per token. `growth` is the exponent between the last
two points: 1 is linear. It leaves out the seconds in which a process starts, and is null where these are a third or more.
"""

import http.client
import itertools
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

RELATIONS = ("is the birthplace of", "lies in", "was founded by", "was the spouse of", "is the capital of")
RULES = ("first", "min", "mean", "log")
SMALL_STEPS = (
    "question.prompts_per_step=1",
    "question.eval_limit=1",
    "rollout.num_generations=2",
    "rollout.max_completion_length=16",
    "update.learning_rate=1e-9",
    "checkpoint.every=1000",
    "extract.kind=names",
)


def main(host, decode, out, largest):
    out.mkdir(parents=True, exist_ok=True)
    points = []
    with tempfile.TemporaryDirectory(dir=out) as folder:
        os.environ["XDG_CACHE_HOME"] = folder  # the demo of this host alone
        run(host, "index", "count", "word")  # unpacks it
        start_up = run(host, "index", "count", "word")["seconds"]
        for curve in (index, passages, count, questions, sentences, rules, clients, steps, decoding):
            for point in curve(Bench(host, decode, Path(folder), largest)):
                print(point, file=sys.stderr)
                points.append(point)
    curves = {name: {"growth": growth(own, start_up), "points": own} for name, own in by_curve(points)}
    (out / "curves.json").write_text(json.dumps({"start_up_s": start_up, "curves": curves}, indent=1) + "\n")
    print(table(curves))
    plot(curves, out / "curves.svg")


class Bench:
    def __init__(self, host, decode, folder, largest):
        self.host = host
        self.decode = decode
        self.folder = folder
        self.largest = largest
        self.text = Text()

    def sizes(self, *sizes):
        return [size for size in sizes if size <= self.largest]

    def built_index(self, documents, words):
        """Writes documents and builds their index. Returns its folder, and the seconds and MiB of the build."""
        text, folder = self.folder / "text.jsonl", self.folder / "index"
        shutil.rmtree(folder, ignore_errors=True)
        self.text.write_documents(text, documents, words)
        return folder, run(self.host, "index", "build", text, "--tokenizer", demo_policy(), "--out", folder)


class Text:
    """Words with the frequencies of natural text (Zipf's law)."""

    def __init__(self):
        self.rng = random.Random(1)
        syllables = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
        self.words = ["".join(self.rng.choices(syllables, k=self.rng.randint(2, 4))) for _ in range(50_000)]
        self.weights = list(itertools.accumulate(1 / (rank + 2.7) for rank in range(len(self.words))))

    def write_documents(self, file, documents, words):
        with file.open("w") as out:
            for _ in range(documents):
                text = " ".join(self.rng.choices(self.words, cum_weights=self.weights, k=words))
                out.write(json.dumps({"text": text}) + "\n")

    def name(self):
        return " ".join(word.capitalize() for word in self.rng.choices(self.words, k=2))

    def completion(self, sentences):
        thought = " ".join(f"{self.name()} {self.rng.choice(RELATIONS)} {self.name()}." for _ in range(sentences))
        return {"question": "Who?", "answers": ["x"], "completion": f"<think>{thought}</think><answer>x</answer>"}


def run(*command, output=subprocess.DEVNULL):
    """Returns the seconds and the MiB of one process. Linux counts at least the MiB of this process."""
    start = time.monotonic()
    process = subprocess.Popen(list(map(str, command)), stdout=output, stderr=subprocess.PIPE, text=True)
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"{command} ended with status {process.returncode}:\n{errors}")
    return {"seconds": time.monotonic() - start, "mib": usage.ru_maxrss / 1024}


def demo_policy():
    """Returns the folder of the demo's policy and tokenizer in the cache."""
    [policy] = Path(os.environ["XDG_CACHE_HOME"]).glob("corver/demo-*/policy")
    return policy


def point(curve, unit, size, measured, has_start_up=True):
    return {"curve": curve, "unit": unit, "size": size, "has_start_up": has_start_up} | measured


def index(bench):
    for tokens in bench.sizes(10**6, 10**7, 10**8, 10**9):
        folder, measured = bench.built_index(documents=tokens // 900, words=300)
        info = json.loads(subprocess.check_output([bench.host, "index", "info", "--index", folder, "--json"]))
        yield point("index build", "tokens", info["tokens"], measured)


def passages(bench):
    for documents in bench.sizes(1_000, 10_000, 100_000):
        folder, _ = bench.built_index(documents, words=100)
        yield point("index passages", "documents", documents, run(bench.host, "index", "passages", "--index", folder))


class Server:
    def __init__(self, host, *command):
        command = [host, *command, "--listen", "127.0.0.1:0", "--json"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.url = urlsplit(json.loads(self.process.stdout.readline())["url"])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def seconds(self, path, field, requests):
        """Posts requests one after another. Every reply must have the field."""
        connection = http.client.HTTPConnection("127.0.0.1", self.url.port)
        start = time.monotonic()
        for request in requests:
            connection.request("POST", path, json.dumps(request))
            if field not in (reply := json.loads(connection.getresponse().read())):
                raise ValueError(f"{request}: {reply}")
        return time.monotonic() - start

    def mib(self):
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) / 1024


def count(bench):
    folder, _ = bench.built_index(documents=10_000, words=300)
    with Server(bench.host, "index", "serve", "--index", folder) as server:
        for clauses in (1, 2, 4, 8, 16):
            words = [bench.text.rng.sample(bench.text.words[20:2_000], clauses) for _ in range(2_000)]
            requests = [{"index": server.url.fragment, "query_type": "count", "query": " AND ".join(w)} for w in words]
            seconds = server.seconds("/", "count", requests) / len(requests)
            measured = {"seconds": seconds, "mib": server.mib()}
            yield point("count, over HTTP", "clauses", clauses, measured, has_start_up=False)


def questions(bench):
    for number in bench.sizes(1_000, 10_000, 100_000, 1_000_000):
        file, pool = bench.folder / "questions.jsonl", bench.folder / f"pool-{number}"
        with file.open("w") as out:
            for _ in range(number):
                subject = f"{bench.text.rng.choice(bench.text.words[:200])} {bench.text.rng.choice(RELATIONS)} {bench.text.name()}"
                out.write(json.dumps({"question": f"Which {subject}?", "answers": [bench.text.name()]}) + "\n")
        measured = run(bench.host, "data", "pool", file, "--no-grounding", "--out", pool)
        yield point("data pool", "questions", number, measured)


def sentences(bench):
    file = bench.folder / "completion.jsonl"
    command = [bench.host, "score", file, "--config", "demo", "--set", "extract.kind=names"]
    file.write_text(json.dumps(bench.text.completion(1)))
    run(*command)  # compiles the rule
    for number in (1_000, 10_000, 30_000):
        file.write_text(json.dumps(bench.text.completion(number)))
        yield point("score", "sentences", number, run(*command))


def rules(bench):
    file = bench.folder / "completion.jsonl"
    file.write_text(json.dumps(bench.text.completion(10_000)))
    for number in (1, 2, 4):
        plugins = [flag for rule in RULES[:number] for flag in ("--plugin", f"{rule}.wasm:{1 / number}")]
        command = [bench.host, "score", file, "--config", "demo", "--set", "extract.kind=names", *plugins]
        run(*command)  # compiles the rules
        yield point("score, 10,000 sentences", "rules", number, run(*command))


def clients(bench):
    """Every client posts one completion after another, 1,024 in all."""
    for number in (1, 8, 64, 256):
        requests = [{"completions": [bench.text.completion(3)]} for _ in range(1_024)]
        shares = [requests[client::number] for client in range(number)]
        with Server(bench.host, "serve", "--config", "demo") as server, ThreadPoolExecutor(number) as pool:
            start = time.monotonic()
            for _ in pool.map(lambda share: server.seconds("/v1/score", "completions", share), shares):
                pass  # an error of a client is raised here
            measured = {"seconds": time.monotonic() - start, "mib": server.mib()}
        yield point("serve, 1,024 completions", "clients", number, measured, has_start_up=False)


def steps(bench):
    settings = [flag for setting in SMALL_STEPS for flag in ("--set", setting)]
    for number in (100, 1_000, 10_000):
        folder = bench.folder / f"run-{number}"
        train = [bench.host, "train", *settings, "--out", folder]
        yield point("train", "steps", number, run(*train, "--steps", number))
        yield point("report", "steps", number, run(bench.host, "report", folder))
        yield point("train --resume, one step", "steps", number, run(*train, "--resume", "--steps", number + 1))


def decoding(bench):
    policy = bench.folder / "policy"
    shutil.copytree(demo_policy(), policy)
    config = json.loads((policy / "config.json").read_text())
    (policy / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 16_384}))
    sizes = [("decode 64 tokens", "rows", rows, 64) for rows in (16, 64, 256)]
    sizes += [("decode 4 rows", "tokens", 4, tokens) for tokens in (512, 2_048, 8_192)]
    for curve, unit, rows, tokens in sizes:
        with (bench.folder / "decoded.json").open("w+") as output:
            measured = run(bench.decode, policy, rows, tokens, 1, "cpu", "f32", output=output)
            output.seek(0)
            measured["seconds"] = json.load(output)["seconds"][0]
        yield point(curve, unit, rows if unit == "rows" else tokens, measured, has_start_up=False)


def by_curve(points):
    """Returns each curve's points. Curves may be interleaved."""
    points = sorted(points, key=lambda point: (point["curve"], point["size"]))
    return [(name, list(own)) for name, own in itertools.groupby(points, key=lambda point: point["curve"])]


def growth(own, start_up):
    """Returns the exponent of the growth between the last two points."""
    if len(own) < 2:
        return None
    before, after = own[-2:]
    floor = start_up if after["has_start_up"] else 0
    if before["seconds"] < 3 * floor:
        return None
    seconds = (after["seconds"] - floor) / (before["seconds"] - floor)
    return math.log(seconds) / math.log(after["size"] / before["size"])


def table(curves):
    """Returns a line per curve, with its largest point."""
    lines = ["| | sizes | growth | seconds of the largest | its memory |", "| --- | --- | --- | --- | --- |"]
    for name, curve in curves.items():
        own = curve["points"]
        sizes = ", ".join(f"{point['size']:,}" for point in own)
        exponent = "" if curve["growth"] is None else f"{curve['growth']:.2f}"
        lines.append(
            f"| `{name}` | {sizes} {own[0]['unit']} | {exponent} | {own[-1]['seconds']:.3g} | {own[-1]['mib']:.0f} MiB |"
        )
    return "\n".join(lines)


def plot(curves, file):
    # Imported late: its memory would be the least that `run` can measure.
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, math.ceil(len(curves) / 2), figsize=(15, 6), layout="constrained")
    for axis, (name, curve) in zip(axes.flat, curves.items()):
        own = curve["points"]
        sizes = [point["size"] for point in own]
        axis.loglog(sizes, [point["seconds"] for point in own], "o-", label="seconds")
        axis.loglog(sizes, [point["mib"] / 1024 for point in own], "s--", label="GiB")
        axis.set(title=name, xlabel=own[0]["unit"])
        axis.legend()
    figure.savefig(file)


main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), float(sys.argv[4]) if len(sys.argv) > 4 else 1e8)
