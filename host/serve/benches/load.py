"""`corver-host serve` under load, by wrk: load.py CORVER_HOST OUT.

The demo's parts; every completion says three sentences that no other one says, so nothing is remembered from before. Clients ask, wait
for the answer, and ask again. One completion again and again costs what the server itself costs, and the rule. In the last row the queue
is small and the clients are many: what is not answered must have got status 503 and Retry-After. `score` is such completions on the
command line, in one batch.
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
        completions = made_up(host, folder)
        rollouts, batches = folder / "rollouts.jsonl", folder / "batches.jsonl"
        rollouts.write_text("".join(json.dumps(rollout(one)) + "\n" for one in completions))
        groups = (completions[n : n + PER_REQUEST] for n in range(0, len(completions), PER_REQUEST))
        batches.write_text("".join(json.dumps({"completions": group}) + "\n" for group in groups))

        rows = [on_the_command_line(host, folder, completions[-1024:])]
        with Server(host) as server:
            for number, clients in enumerate((1, 8, 64)):
                rows.append(load(server, "/get_reward", rollouts, clients, 1 + 10_000 * number))
            rows.append(load(server, "/v1/score", batches, 8, 2_000, PER_REQUEST))
            again = folder / "again.jsonl"
            again.write_text(json.dumps(rollout(completions[0])) + "\n")
            rows.append(load(server, "/get_reward", again, 64, 1) | {"request": "/get_reward, one again and again"})
            memory = server.memory_mib()
        with Server(host, "--queue", "64", "--max-batch", "64") as server:
            rows.append(load(server, "/v1/score", batches, 256, 1, PER_REQUEST) | {"queue": 64})
            rows[-1]["memory_mib"] = server.memory_mib()
        rows[-2]["memory_mib"] = memory
    Path(out).write_text(json.dumps(rows, indent=1) + "\n")
    print("| request | clients | completions/s | p50 | p99 | answered | 503 | lost | peak memory |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for row in rows:
        print(shown(row))
    if any(row.get("lost") or row.get("other") for row in rows):
        sys.exit("requests were lost, or got another status")


def made_up(host, folder):
    """Completions whose sentences are all different."""
    subprocess.run([host, "demo", "world", folder / "world"], check=True, stdout=subprocess.DEVNULL)
    titles = [json.loads(line)["title"] for line in (folder / "world/articles.jsonl").open()]
    names = sorted({word for title in titles for word in title.split()})
    draw = random.Random(18)

    def sentence():  # of so many names, hardly two are alike
        head, tail = (f"{draw.choice(names)} {draw.choice(names)}" for _ in range(2))
        return f"{head} {draw.choice(RELATIONS)} {tail}."

    def completion(n):
        thought = " ".join(sentence() for _ in range(3))
        return {"question": f"Which is it, {n}?", "answers": [titles[n % len(titles)]],
                "completion": f"<think>{thought}</think><answer>{draw.choice(titles)}</answer>"}

    return [completion(n) for n in range(BODIES)]


def rollout(completion):
    """As OpenRLHF's client posts it."""
    prompt = f"<|im_start|>user\n{completion['question']}<|im_end|>\n<|im_start|>assistant\n"
    return {"query": [f"{prompt}{completion['completion']}<|im_end|>"], "prompts": [prompt], "labels": [completion["answers"]]}


def on_the_command_line(host, folder, completions):
    file = folder / "completions.jsonl"

    def seconds(many):
        file.write_text("".join(json.dumps(one) + "\n" for one in many))
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
            sys.exit("the server did not end well")

    def settle(self):
        """Until what the clients left behind is done: this request stands behind it."""
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
    told = subprocess.run([*command, "--", bodies, str(first)], check=True, stdout=subprocess.PIPE, text=True).stdout
    row = json.loads(told[told.index("\n{") :])
    server.settle()
    print(f"{path}, {clients} clients: {row}", file=sys.stderr)
    return {"request": path, "clients": clients, "completions_per_s": row["good"] * per_request / row["seconds"], **row}


def shown(row):
    columns = [row["request"], row.get("clients"), f"{row['completions_per_s']:,.0f}"]
    columns += [f"{row[name]:.1f} ms" if name in row else None for name in ("p50_ms", "p99_ms")]
    columns += [row.get(name) for name in ("good", "busy", "lost")]
    columns.append(f"{row['memory_mib']} MiB" if "memory_mib" in row else None)
    return "| " + " | ".join("–" if column is None else str(column) for column in columns) + " |"


if __name__ == "__main__":
    main(*sys.argv[1:])
