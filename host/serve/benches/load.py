"""`corver-host serve` under load, by wrk: load.py CORVER_HOST OUT.

The server has the demo's parts. Every completion has three sentences of its own, so no cached reply is used. Each client sends a request,
waits for the answer, and repeats. A row with one repeated completion measures the server itself and the rule. In the last row the queue
is small and there are many clients: every request without an answer must get status 503 and Retry-After. The row `score` scores such
completions on the command line, in one batch.
"""

import json
import random
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

HERE = Path(__file__).parent
SECONDS = 20
BODIES = 60_000
PER_REQUEST = 16
RELATIONS = ("is the birthplace of", "lies in", "was founded by", "was the spouse of", "is the capital of")


def main(host, out):
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        completions = make_completions(host, folder)
        rollouts, batches = folder / "rollouts.jsonl", folder / "batches.jsonl"
        rollouts.write_text("".join(json.dumps(rollout(completion)) + "\n" for completion in completions))
        groups = (completions[n : n + PER_REQUEST] for n in range(0, len(completions), PER_REQUEST))
        batches.write_text("".join(json.dumps({"completions": group}) + "\n" for group in groups))

        rows = [time_command_line(host, folder, completions[-1024:])]
        with Server(host) as server:
            for number, clients in enumerate((1, 8, 64)):
                rows.append(load(server, "/get_reward", rollouts, clients, 1 + 10_000 * number))
            rows.append(load(server, "/v1/score", batches, 8, 2_000, PER_REQUEST))
            repeated = folder / "repeated.jsonl"
            repeated.write_text(json.dumps(rollout(completions[0])) + "\n")
            rows.append(load(server, "/get_reward", repeated, 64, 1) | {"request": "/get_reward, one repeated"})
            memory = server.memory_mib()
        with Server(host, "--queue", "64", "--max-batch", "64") as server:
            rows.append(load(server, "/v1/score", batches, 256, 1, PER_REQUEST) | {"queue": 64})
            rows[-1]["memory_mib"] = server.memory_mib()
        rows[-2]["memory_mib"] = memory
    Path(out).write_text(json.dumps(rows, indent=1) + "\n")
    print("| request | clients | completions/s | p50 | p99 | answered | 503 | lost | peak memory |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for row in rows:
        print(table_row(row))
    if any(row.get("lost") or row.get("other") for row in rows):
        sys.exit("requests were lost, or got another status")


def make_completions(host, folder):
    """Returns completions whose sentences are all different."""
    subprocess.run([host, "demo", "world", folder / "world"], check=True, stdout=subprocess.DEVNULL)
    titles = [json.loads(line)["title"] for line in (folder / "world/articles.jsonl").open()]
    names = sorted({word for title in titles for word in title.split()})
    rng = random.Random(18)

    def sentence():  # with this many names, repetitions are rare
        head, tail = (f"{rng.choice(names)} {rng.choice(names)}" for _ in range(2))
        return f"{head} {rng.choice(RELATIONS)} {tail}."

    def completion(n):
        thought = " ".join(sentence() for _ in range(3))
        return {"question": f"Which is it, {n}?", "answers": [titles[n % len(titles)]],
                "completion": f"<think>{thought}</think><answer>{rng.choice(titles)}</answer>"}

    return [completion(n) for n in range(BODIES)]


def rollout(completion):
    """Returns the request that OpenRLHF's client posts."""
    prompt = f"<|im_start|>user\n{completion['question']}<|im_end|>\n<|im_start|>assistant\n"
    return {"query": [f"{prompt}{completion['completion']}<|im_end|>"], "prompts": [prompt], "labels": [completion["answers"]]}


def time_command_line(host, folder, completions):
    file = folder / "completions.jsonl"

    def seconds(batch):
        file.write_text("".join(json.dumps(completion) + "\n" for completion in batch))
        start = time.monotonic()
        subprocess.run([host, "score", file, "--json"], check=True, stdout=subprocess.DEVNULL)
        return time.monotonic() - start

    start = seconds(completions[:1])
    return {"request": "score", "completions_per_s": len(completions) / (seconds(completions) - start)}


class Server:
    def __init__(self, host, *args):
        command = [host, "serve", "--listen", "127.0.0.1:0", "--json", *args]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.url = json.loads(self.process.stdout.readline())["url"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        if self.process.wait(60):
            sys.exit("the server did not exit with status 0")

    def settle(self):
        """Waits until the requests of the last clients are done: this request is queued after them."""
        body = json.dumps({"completions": [{"answers": [], "completion": "Done."}]}).encode()
        while True:
            try:
                return urllib.request.urlopen(self.url + "/v1/score", body).close()
            except urllib.error.HTTPError as error:
                if error.code != 503:
                    raise
                time.sleep(0.1)

    def memory_mib(self):
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) // 1024


def load(server, path, bodies, clients, first, per_request=1):
    threads = 2 if clients > 1 else 1
    command = ["wrk", f"-t{threads}", f"-c{clients}", f"-d{SECONDS}", "--timeout", "60", "-s", HERE / "load.lua", server.url + path]
    output = subprocess.run([*command, "--", bodies, str(first)], check=True, stdout=subprocess.PIPE, text=True).stdout
    row = json.loads(output[output.index("\n{") :])
    server.settle()
    print(f"{path}, {clients} clients: {row}", file=sys.stderr)
    return {"request": path, "clients": clients, "completions_per_s": row["good"] * per_request / row["seconds"], **row}


def table_row(row):
    columns = [row["request"], row.get("clients"), f"{row['completions_per_s']:,.0f}"]
    columns += [f"{row[name]:.1f} ms" if name in row else None for name in ("p50_ms", "p99_ms")]
    columns += [row.get(name) for name in ("good", "busy", "lost")]
    columns.append(f"{row['memory_mib']} MiB" if "memory_mib" in row else None)
    return "| " + " | ".join("–" if column is None else str(column) for column in columns) + " |"


if __name__ == "__main__":
    main(*sys.argv[1:])
