"""Compares training steps and greedy decoding with trl and transformers, in turns:
train.py CORVER_HOST DECODE MODEL OUT DEVICE PRECISION.

The step on a CPU: 4 questions × 8 completions of at most 48 tokens, a KL term, LoRA r 16 on all projections. On a GPU: the paper's
24 × 16 completions of at most 150 tokens, r 128. Ours includes the CorVer reward with the demo's extractor (on the CPU) and
index; a second run has only answer judge and format check. The peer's reward costs no time. Decoding: 64 tokens, four rows per prompt.
"""

import gc
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

THREADS = 2
os.environ["OMP_NUM_THREADS"] = str(THREADS)

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

BETA, STEPS, DECODED = 0.001, 3, 64
DEVICE, PRECISION = sys.argv[5:7]
DTYPE = {"f32": torch.float32, "bf16": torch.bfloat16}[PRECISION]
if DEVICE == "cpu":
    PROMPTS, SAMPLES, TOKENS, RANK, TURNS, ROWS = 4, 8, 48, 16, 2, (16, 32, 64)
    PEER_ROWS = PROMPTS * SAMPLES  # of a micro-batch
else:
    PROMPTS, SAMPLES, TOKENS, RANK, TURNS, ROWS = 24, 16, 150, 128, 1, (16, 64, 384)
    PEER_ROWS = 16
QUESTIONS = [
    f"Who {did}?"
    for did in (
        "wrote the novel Middlemarch", "discovered the moons of Mars", "painted The Night Watch", "built the first telephone",
        "led the first voyage around the world", "composed the opera Carmen", "invented the steam turbine", "founded the city of Kyoto",
        "was the first king of Portugal", "measured the speed of light in 1676", "designed the Crystal Palace", "wrote The Tale of Genji",
    )
]
QUESTIONS += [question.replace("Who", "Which woman") for question in QUESTIONS]
QUESTIONS = QUESTIONS[: PROMPTS * STEPS]


def step_here(host, model, folder, lambda_corver=1.0):
    """Returns the seconds of each step except the first, the mean completion length, and the processor time of all steps."""
    questions = folder / "questions.json"
    questions.write_text(json.dumps([{"question": q, "answers": "nobody", "title": ""} for q in QUESTIONS]))
    out = Path(tempfile.mkdtemp(dir=folder)) / "run"
    settings = {
        "run.threads": THREADS, "run.device": DEVICE, "extract.device": "cpu", "policy.model": model,
        "policy.precision": PRECISION, "question.train": questions,
        "policy.system_prompt": "", "update.optimizer.moments": "f32", "extract.model": "demo", "corpus.index": "demo",
        "question.prompts_per_step": PROMPTS, "rollout.num_generations": SAMPLES, "rollout.max_completion_length": TOKENS,
        "update.lora.r": RANK, "update.lora.alpha": 2 * RANK, "update.loss.beta": BETA, "update.learning_rate": 1e-5,
        "reward.lambda_corver": lambda_corver,
    }
    sets = [text for key, value in settings.items() for text in ("--set", f"{key}={value}")]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([host, "train", "--steps", str(STEPS), "--out", out, *sets], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    metrics = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()][1:]
    return [m["step_time"] for m in metrics], statistics.mean(m["completions/mean_length"] for m in metrics), processor


class Clock(TrainerCallback):
    def __init__(self):
        self.seconds = []

    def on_step_begin(self, *_, **__):
        self.start = time.perf_counter()

    def on_step_end(self, *_, **__):
        self.seconds.append(time.perf_counter() - self.start)


def step_there(model, folder):
    config = GRPOConfig(
        output_dir=str(folder / "trl"), use_cpu=DEVICE == "cpu", bf16=DTYPE == torch.bfloat16, report_to=[], beta=BETA,
        num_generations=SAMPLES, max_completion_length=TOKENS,
        per_device_train_batch_size=PEER_ROWS, gradient_accumulation_steps=PROMPTS * SAMPLES // PEER_ROWS,
        learning_rate=1e-5, max_steps=STEPS, logging_steps=1, save_strategy="no", gradient_checkpointing=False, loss_type="grpo",
    )
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    clock = Clock()
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(model, dtype=DTYPE, device_map=DEVICE),
        reward_funcs=[lambda completions, **_: [float(len(c[0]["content"]) % 7) for c in completions]],
        args=config,
        train_dataset=Dataset.from_list([{"prompt": [{"role": "user", "content": q}]} for q in QUESTIONS]),
        processing_class=AutoTokenizer.from_pretrained(model),
        peft_config=LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules=targets, task_type="CAUSAL_LM"),
        callbacks=[clock],
    )
    trainer.train()
    lengths = [line["completions/mean_length"] for line in trainer.state.log_history if "completions/mean_length" in line]
    return clock.seconds[1:], statistics.mean(lengths[1:])


def decode_here(decode, model, rows):
    command = [decode, model, str(rows), str(DECODED), "2", DEVICE, PRECISION]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    answer = json.loads(out)
    return min(answer["seconds"]), answer["prompts"], answer["tokens"]


def decode_there(model, prompts, samples):
    """Returns the seconds of the fastest of two turns, and the ids."""
    rows = [prompt for prompt in prompts for _ in range(samples)]
    longest = max(map(len, rows))
    ids = torch.tensor([[0] * (longest - len(row)) + row for row in rows], device=DEVICE)
    mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows], device=DEVICE)
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        with torch.no_grad():
            out = model.generate(
                input_ids=ids, attention_mask=mask, do_sample=False, min_new_tokens=DECODED, max_new_tokens=DECODED,
                pad_token_id=0, eos_token_id=None,
            )
        seconds.append(time.perf_counter() - start)
    return min(seconds), out[:, longest:].tolist()


def main():
    host, decode, model, out = sys.argv[1:5]
    torch.set_num_threads(THREADS)
    result = {"step": {"here": [], "without the rule": [], "rule's share of the cores": [], "trl": []}, "decode": {}}
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        for _ in range(TURNS):
            here, length, processor = step_here(host, model, folder)
            bare, _, processor_bare = step_here(host, model, folder, lambda_corver=0.0)
            there, length_there = step_there(model, folder)
            gc.collect()  # the GPU's memory is for the next process
            torch.cuda.empty_cache()
            result["step"]["here"] += here
            result["step"]["without the rule"] += bare
            # Time of the rule and its extractor if all cores worked for them without waiting.
            result["step"]["rule's share of the cores"].append((processor - processor_bare) / STEPS / THREADS)
            result["step"]["trl"] += there
            print(f"a step: {here} s here ({length:.1f} tokens), {bare} s without the rule, {there} s with trl ({length_there:.1f} tokens)", flush=True)
    peer = AutoModelForCausalLM.from_pretrained(model, dtype=DTYPE, device_map=DEVICE)
    for rows in ROWS:
        turns = {"here": [], "transformers": [], "equal": 0}
        for _ in range(TURNS):
            seconds, prompts, tokens = decode_here(decode, model, rows)
            turns["here"].append(seconds)
            seconds, expected = decode_there(peer, prompts, rows // len(prompts))
            turns["transformers"].append(seconds)
            turns["equal"] = sum(map(list.__eq__, tokens, expected))
        result["decode"][rows] = turns
        print(f"decoding {rows} rows: {turns}", flush=True)
    median = statistics.median
    step = {what: median(seconds) for what, seconds in result["step"].items()}
    result["ratio"] = {
        "step": step["trl"] / step["here"],
        "rule": step["here"] / (step["without the rule"] + step["rule's share of the cores"]),
    }
    for rows, turns in result["decode"].items():
        result["ratio"][f"decode {rows}"] = median(turns["transformers"]) / median(turns["here"])
    print(json.dumps(result["ratio"], indent=1))
    Path(out).write_text(json.dumps(result, indent=1) + "\n")


main()
