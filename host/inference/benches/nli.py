"""Pairs per second against transformers, with random weights of the published sizes: nli.py ENTAIL OUT.

32 pairs, a premise of 150 to 250 words that are tokens and a hypothesis of 12 to 28, in f32 on two threads, in turns, without
loading. transformers takes them as one batch. The ratio is one of processor time, which other work on the machine
hardly changes; no thread spins while it waits. Both give the same answers, or this fails.
"""

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

THREADS, ROWS, TURNS = 2, 32, 3
os.environ |= {"OMP_NUM_THREADS": str(THREADS), "OMP_WAIT_POLICY": "PASSIVE"}
sys.path.insert(0, str(Path(__file__).parent.parent / "tests/peers"))

import nli as peers  # noqa: E402
import torch  # noqa: E402
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors  # noqa: E402
from transformers import PreTrainedTokenizerFast  # noqa: E402

SHAPES = {
    "hhem": dict(vocab_size=32_128, d_model=768, d_kv=64, d_ff=2048, num_layers=12, num_heads=12),
    "deberta": dict(vocab_size=128_100, hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12,
                    position_buckets=256, max_position_embeddings=512),
}
WORDS = 20_000


def words(special, template):
    """A tokenizer in which a word is a token."""
    vocab = {token: n for n, token in enumerate(special)} | {f"w{n}": n + len(special) for n in range(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token=special[-1]))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        **template, special_tokens=[(token, n) for n, token in enumerate(special) if token in str(template)]
    )
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in special])
    return tokenizer


def tokenizer_of(family):
    if family == "hhem":
        return words(["<pad>", "</s>", "<unk>"], dict(single="$A </s>", pair="$A </s> $B </s>"))
    return words(["[PAD]", "[CLS]", "[SEP]", "[UNK]"], dict(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1"))


def make(family, folder):
    peers.t5_tokenizer = peers.deberta_tokenizer = lambda: tokenizer_of(family)
    if family == "hhem":
        return peers.make_hhem(folder, SHAPES[family], 0.03)
    return peers.make_deberta(folder, SHAPES[family], 0.03, ["entailment", "neutral", "contradiction"])


def pairs():
    draw = random.Random(1)
    text = lambda least, most: " ".join(f"w{draw.randrange(WORDS)}" for _ in range(draw.randint(least, most)))
    return [(text(150, 250), text(12, 28)) for _ in range(ROWS)]


def there(family, model, tokenizer, rows):
    scores = {"hhem": peers.hhem_scores, "deberta": peers.deberta_scores}[family]
    start, busy = time.perf_counter(), time.process_time()
    answers = scores(model, tokenizer, rows)
    took = dict(seconds=time.perf_counter() - start, processor_seconds=time.process_time() - busy)
    return took, answers if family == "hhem" else answers[:, 0]


def here(entail, folder, rows):
    given = json.dumps([dict(premise=a, hypothesis=b) for a, b in rows])
    command = ["taskset", "-c", ",".join(map(str, range(THREADS))), entail, str(folder)]
    done = json.loads(subprocess.run(command, input=given, stdout=subprocess.PIPE, check=True, text=True).stdout)
    return done, torch.tensor([answer["entail"] for answer in done.pop("answers")])


def measure(family, entail, rows):
    with tempfile.TemporaryDirectory() as folder:
        model, tokenizer = make(family, Path(folder))
        model = model.float()
        turns, differ = {"here": [], "transformers": []}, 0.0
        for _ in range(TURNS):
            took, ours = here(entail, folder, rows)
            turns["here"].append(took)
            took, theirs = there(family, model, tokenizer, rows)
            turns["transformers"].append(took)
            differ = max(differ, (ours - theirs).abs().max().item())
    if differ > 1e-3:
        sys.exit(f"{family}: answers differ by {differ}")
    each = {
        name: {of: statistics.median(turn[of] for turn in took) / len(rows) for of in ("seconds", "processor_seconds")}
        for name, took in turns.items()
    }
    ratio = each["transformers"]["processor_seconds"] / each["here"]["processor_seconds"]
    parameters = sum(weight.numel() for weight in model.parameters())
    return dict(parameters=parameters, seconds_per_pair=each, ratio=ratio, differ=differ)


def main(entail, out):
    torch.set_num_threads(THREADS)
    rows, result = pairs(), {}
    for family in SHAPES:
        result[family] = measure(family, entail, rows)
        print(json.dumps({family: result[family]}), flush=True)
    Path(out).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
