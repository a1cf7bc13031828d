"""Repeats the computation of main.rs with transformers, peft and trl, and compares: peers.py FOLDER."""

import collections
import json
import sys
from pathlib import Path

import torch
from datasets import Dataset
from peft import PeftModel, get_peft_model_state_dict
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

LOG_PROBS = 1e-4  # nats
ADAPTER = 1e-5
MOVE = 1e-3
REPORT = 1e-5
BF16 = 1.5  # times the peer's own error, which a few dozen tokens do not determine better


def padded(rows, fill, left=False):
    longest = max(map(len, rows))
    pad = [[fill] * (longest - len(row)) for row in rows]
    return torch.tensor([p + row if left else row + p for row, p in zip(rows, pad)])


def check(what, difference, limit):
    print(f"{what} differ by {difference:.1e},", end=" ")
    assert difference <= limit, f"{what} differ by {difference}; at most {limit}"


def log_probs(model, computed):
    """Yields the log-probabilities of the sampled tokens, row by row."""
    for row in computed["rollouts"]:
        ids = torch.tensor([computed["prompts"][row["question"]] + row["tokens"]])
        with torch.no_grad():
            scores = model(ids).logits.float().log_softmax(-1)[0, -len(row["tokens"]) - 1 : -1]
        yield scores.gather(1, torch.tensor(row["tokens"]).unsqueeze(1)).squeeze(1)


def load(folder, dtype):
    base = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    return PeftModel.from_pretrained(base, folder / "before", is_trainable=True)


def main():
    folder = Path(sys.argv[1])
    computed = json.loads((folder / "computed.json").read_text())
    tokenizer = AutoTokenizer.from_pretrained(folder)
    compare = in_f32 if computed["precision"] == "f32" else in_bf16
    compare(folder, computed, tokenizer)


def in_f32(folder, computed, tokenizer):
    """Checks that the results are equal up to rounding."""
    prompts = computed["prompts"]
    model = load(folder, torch.float32)
    base_name = json.loads((folder / "before" / "adapter_config.json").read_text())["base_model_name_or_path"]
    assert Path(base_name) == folder, base_name
    model.save_pretrained(folder / "peft")

    for row in computed["greedy"]:
        prompt = torch.tensor([prompts[row["question"]]])
        with torch.no_grad():
            out = model.generate(
                input_ids=prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=12,
                eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
            )
        assert out[0, prompt.size(1) :].tolist() == row["tokens"], (out, row)
    print(f"{len(computed['greedy'])} greedy answers are equal,", end=" ")

    right = log_probs(model, computed)
    rows = zip(computed["rollouts"], right, strict=True)
    check("log-probabilities", max((r - torch.tensor(row["log_probs"])).abs().max().item() for row, r in rows), LOG_PROBS)

    step32, step64 = (step(folder, computed, tokenizer, dtype) for dtype in (torch.float32, torch.float64))
    ours = load_file(folder / "after" / "adapter_model.safetensors")
    before = load_file(folder / "before" / "adapter_model.safetensors")
    report = computed["report"]
    assert ours.keys() == step64.adapters.keys(), ours.keys() ^ step64.adapters.keys()
    check("losses", abs(report["loss"] - step64.loss), REPORT)
    check("gradient norms", abs(report["grad_norm"] / step64.norm - 1.0), REPORT)

    check("adapters after a step", max((ours[n] - step64.adapters[n]).abs().max().item() for n in ours), ADAPTER)
    check("in shares of their moves they", apart(ours, step64.adapters, before), MOVE)
    print(f"where trl in f32 differs by {apart(step32.adapters, step64.adapters, before):.1e}")


def apart(adapters, right, before):
    """Returns the largest error as a share of the largest move of an adapter."""
    return max(((adapters[n] - right[n]).abs().max() / (right[n] - before[n]).abs().max()).item() for n in before)


def in_bf16(folder, computed, tokenizer):
    """Checks that our error against f32 and f64 is at most BF16 times the peer's: in bf16 no two programs agree closely."""

    def far(values, right):
        return torch.cat([(v - r).flatten() for v, r in zip(values, right, strict=True)]).norm().item()

    ours = [torch.tensor(row["log_probs"]) for row in computed["rollouts"]]
    exact = list(log_probs(load(folder, torch.float32), computed))
    with torch.autocast("cpu", torch.bfloat16):
        theirs = list(log_probs(load(folder, torch.bfloat16), computed))
    tokens = sum(map(len, ours)) ** 0.5
    no_further("log-probabilities", far(ours, exact) / tokens, far(theirs, exact) / tokens)

    right, peer = (step(folder, computed, tokenizer, dtype).adapters for dtype in (torch.float64, torch.bfloat16))
    after, before = (load_file(folder / name / "adapter_model.safetensors") for name in ("after", "before"))
    names = sorted(right)
    ours, theirs, right, before = ([adapters[name].double() for name in names] for adapters in (after, peer, right, before))
    move = far(before, right)
    no_further("adapters after a step, in shares of the move,", far(ours, right) / move, far(theirs, right) / move)
    print()


def no_further(what, ours, theirs):
    print(f"{what} are {ours:.1e} from f32 and f64 where the peer's are {theirs:.1e},", end=" ")
    assert ours <= BF16 * theirs, f"{what} are {ours} from f32 and f64, the peer's {theirs}"


Step = collections.namedtuple("Step", "loss norm adapters")


def step(folder, computed, tokenizer, dtype):
    """Takes one optimiser step of trl with the same rollouts and advantages."""
    settings, prompts, rollouts = computed["settings"], computed["prompts"], computed["rollouts"]
    mixed = dtype == torch.bfloat16  # adapters are f32, their products bf16
    model = load(folder, dtype)
    if not mixed:
        model.to(dtype)
    loss, adam = settings["loss"], settings["optimizer"]
    config = GRPOConfig(
        output_dir=str(folder / "trl"), use_cpu=True, bf16=False, report_to=[], loss_type=loss["loss_type"], beta=loss["beta"],
        epsilon=loss["epsilon_low"], epsilon_high=loss["epsilon_high"], temperature=1.0, num_generations=4,
        importance_sampling_level=loss["importance_sampling_level"],
        max_completion_length=computed["max_completion_length"], per_device_train_batch_size=len(rollouts),
        gradient_accumulation_steps=1, learning_rate=settings["learning_rate"], adam_beta1=adam["beta1"],
        adam_beta2=adam["beta2"], adam_epsilon=adam["eps"], weight_decay=adam["weight_decay"],
        max_grad_norm=settings["max_grad_norm"],
        use_bias_correction_kl=False,  # the paper's loss has none
    )
    data = Dataset.from_list([{"prompt": "a"}] * len(rollouts))
    trainer = GRPOTrainer(
        model=model, reward_funcs=[lambda **given: [0.0] * len(given["prompts"])], args=config, train_dataset=data,
        processing_class=tokenizer,
    )
    trainer.current_gradient_accumulation_steps = 1
    tokens = [row["tokens"] for row in rollouts]
    row_prompts = [prompts[row["question"]] for row in rollouts]
    inputs = {
        "prompt_ids": padded(row_prompts, tokenizer.pad_token_id, left=True),
        "prompt_mask": padded([[1] * len(row) for row in row_prompts], 0, left=True),
        "completion_ids": padded(tokens, tokenizer.pad_token_id),
        "completion_mask": padded([[1] * len(row) for row in tokens], 0),
        "advantages": padded([row["advantages"] for row in rollouts], 0.0).to(torch.float32 if mixed else dtype),
        "num_items_in_batch": torch.tensor(float(sum(map(len, tokens)))),
    }
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
    precision = torch.autocast("cpu", torch.bfloat16, enabled=mixed)
    with torch.no_grad(), model.disable_adapter(), precision:
        reference = trainer._get_per_token_logps_and_entropies(model, ids, mask, inputs["completion_ids"].size(1))
    inputs["ref_per_token_logps"] = reference[0]
    model.train()
    with precision:
        value = trainer._compute_loss(model, inputs)
    value.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), settings["max_grad_norm"])
    trainer.create_optimizer().step()
    return Step(value.item(), norm.item(), get_peft_model_state_dict(model))


if __name__ == "__main__":
    main()
