"""Does with transformers, peft and trl what main.rs did with a model, and compares: peers.py FOLDER."""

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


def padded(rows, fill, left=False):
    longest = max(map(len, rows))
    pad = [[fill] * (longest - len(row)) for row in rows]
    return torch.tensor([p + row if left else row + p for row, p in zip(rows, pad)])


def check(what, difference, limit):
    print(f"{what} differ by {difference:.1e},", end=" ")
    assert difference <= limit, f"{what} differ by {difference}; at most {limit}"


def main():
    folder = Path(sys.argv[1])
    computed = json.loads((folder / "computed.json").read_text())
    settings, prompts, rollouts = computed["settings"], computed["prompts"], computed["rollouts"]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    base = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model = PeftModel.from_pretrained(base, folder / "before", is_trainable=True)
    named = json.loads((folder / "before" / "adapter_config.json").read_text())["base_model_name_or_path"]
    assert Path(named) == folder, named
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

    worst = 0.0
    for row in rollouts:
        ids = torch.tensor([prompts[row["question"]] + row["tokens"]])
        with torch.no_grad():
            log_probs = model(ids).logits.log_softmax(-1)[0, -len(row["tokens"]) - 1 : -1]
        log_probs = log_probs.gather(1, torch.tensor(row["tokens"]).unsqueeze(1)).squeeze(1)
        worst = max(worst, (log_probs - torch.tensor(row["log_probs"])).abs().max().item())
    check("log-probabilities", worst, LOG_PROBS)

    step32, step64 = (step(folder, computed, tokenizer, dtype) for dtype in (torch.float32, torch.float64))
    ours = load_file(folder / "after" / "adapter_model.safetensors")
    before = load_file(folder / "before" / "adapter_model.safetensors")
    report = computed["report"]
    assert ours.keys() == step64.adapters.keys(), ours.keys() ^ step64.adapters.keys()
    check("losses", abs(report["loss"] - step64.loss), REPORT)
    check("gradient norms", abs(report["grad_norm"] / step64.norm - 1.0), REPORT)

    def apart(adapters):
        """From the step in f64, in shares of the largest move of each adapter."""
        right = step64.adapters
        return max(((adapters[n] - right[n]).abs().max() / (right[n] - before[n]).abs().max()).item() for n in before)

    check("adapters after a step", max((ours[n] - step64.adapters[n]).abs().max().item() for n in ours), ADAPTER)
    check("in shares of their moves they", apart(ours), MOVE)
    print(f"where trl in f32 differs by {apart(step32.adapters):.1e}")


Step = collections.namedtuple("Step", "loss norm adapters")


def step(folder, computed, tokenizer, dtype):
    """One optimiser step of trl from the same rollouts and advantages."""
    settings, prompts, rollouts = computed["settings"], computed["prompts"], computed["rollouts"]
    base = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    model = PeftModel.from_pretrained(base, folder / "before", is_trainable=True, autocast_adapter_dtype=False).to(dtype)
    loss, adam = settings["loss"], settings["optimizer"]
    config = GRPOConfig(
        output_dir=str(folder / "trl"), use_cpu=True, bf16=False, report_to=[], loss_type=loss["loss_type"], beta=loss["beta"],
        epsilon=loss["epsilon_low"], epsilon_high=loss["epsilon_high"], temperature=1.0, num_generations=4,
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
    of_rows = [prompts[row["question"]] for row in rollouts]
    inputs = {
        "prompt_ids": padded(of_rows, tokenizer.pad_token_id, left=True),
        "prompt_mask": padded([[1] * len(row) for row in of_rows], 0, left=True),
        "completion_ids": padded(tokens, tokenizer.pad_token_id),
        "completion_mask": padded([[1] * len(row) for row in tokens], 0),
        "advantages": padded([row["advantages"] for row in rollouts], 0.0).to(dtype),
        "num_items_in_batch": torch.tensor(float(sum(map(len, tokens)))),
    }
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
    with torch.no_grad(), model.disable_adapter():
        reference = trainer._get_per_token_logps_and_entropies(model, ids, mask, inputs["completion_ids"].size(1))
    inputs["ref_per_token_logps"] = reference[0]
    model.train()
    value = trainer._compute_loss(model, inputs)
    value.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), settings["max_grad_norm"])
    trainer.create_optimizer().step()
    return Step(value.item(), norm.item(), get_peft_model_state_dict(model))


main()
