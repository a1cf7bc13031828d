"""Takes the step of algorithms.rs with a trainer of trl, and compares the adapters: algorithms.py FOLDER."""

import json
import sys
from pathlib import Path

import torch
from datasets import Dataset
from peft import get_peft_model_state_dict
from peers import MOVE, REPORT, apart, check, load, log_probs, padded
from safetensors.torch import load_file
from transformers import AutoTokenizer
from trl import DPOConfig, DPOTrainer, RLOOConfig, RLOOTrainer, SFTConfig, SFTTrainer


def config_of(kind, folder, settings, **more):
    """Returns the settings that all trainers share."""
    adam = settings["optimizer"]
    return kind(
        output_dir=str(folder / "trl"), use_cpu=True, bf16=False, report_to=[], learning_rate=settings["learning_rate"],
        adam_beta1=adam["beta1"], adam_beta2=adam["beta2"], adam_epsilon=adam["eps"], weight_decay=adam["weight_decay"],
        max_grad_norm=settings["max_grad_norm"], gradient_accumulation_steps=1, gradient_checkpointing=False, **more,
    )


def rloo(folder, computed, tokenizer, model):
    """Returns the trainer, its loss, and the divisor that makes its gradient equal to ours."""
    rollouts, longest = computed["rollouts"], computed["max_completion_length"]
    config = config_of(
        RLOOConfig, folder, computed["settings"], beta=0.0, num_generations=4, temperature=1.0, max_completion_length=longest,
        per_device_train_batch_size=len(rollouts),
    )
    data = Dataset.from_list([{"prompt": "a"}] * len(rollouts))
    trainer = RLOOTrainer(
        model=model, reward_funcs=[lambda **given: [0.0] * len(given["prompts"])], args=config, train_dataset=data,
        processing_class=tokenizer,
    )
    tokens = [row["tokens"] for row in rollouts]
    prompts = [computed["prompts"][row["question"]] for row in rollouts]
    inputs = {
        "prompt_ids": padded(prompts, tokenizer.pad_token_id, left=True),
        "prompt_mask": padded([[1] * len(row) for row in prompts], 0, left=True),
        "completion_ids": padded(tokens, tokenizer.pad_token_id),
        "completion_mask": padded([[1] * len(row) for row in tokens], 0),
        "advantages": torch.tensor([row["advantages"][0] for row in rollouts], dtype=torch.float64),
        "old_logps": torch.stack([row.sum() for row in log_probs(model, computed)]).double(),
    }
    return trainer, trainer._compute_loss(model.train(), inputs), longest


def dpo(folder, computed, tokenizer, model):
    rows = {sign: [row for row in computed["rollouts"] if row["advantages"][0] == sign] for sign in (1.0, -1.0)}
    rows = rows[1.0] + rows[-1.0]
    config = config_of(
        DPOConfig, folder, computed["settings"], beta=computed["settings"]["dpo"]["beta"], per_device_train_batch_size=len(rows) // 2,
    )
    data = Dataset.from_list([{"prompt": "a", "chosen": "b", "rejected": "c"}])
    trainer = DPOTrainer(model=model, args=config, train_dataset=data, processing_class=tokenizer)
    # The trainer would use the initial adapter as reference; here the reference is the base model.
    trainer.model.delete_adapter("ref")
    prompts = [computed["prompts"][row["question"]] for row in rows]
    sequences = [prompt + row["tokens"] for prompt, row in zip(prompts, rows, strict=True)]
    masks = [[0] * len(prompt) + [1] * len(row["tokens"]) for prompt, row in zip(prompts, rows, strict=True)]
    inputs = {
        "input_ids": padded(sequences, tokenizer.pad_token_id),
        "attention_mask": padded([[1] * len(row) for row in sequences], 0),
        "completion_mask": padded(masks, 0),
    }
    loss = trainer.compute_loss(model.train(), inputs)
    check("losses", abs(computed["report"]["loss"] - loss.item()), REPORT)
    return trainer, loss, 1.0


def sft(folder, computed, tokenizer, model):
    """Returns the trainer and its loss. It tokenizes demonstrations, adds the stop token, and masks prompts."""
    pairs = computed["demonstrations"]
    data = Dataset.from_list([{"prompt": question, "completion": completion} for question, completion in pairs])
    config = config_of(SFTConfig, folder, computed["settings"], per_device_train_batch_size=len(pairs), completion_only_loss=True)
    trainer = SFTTrainer(model=model, args=config, train_dataset=data, processing_class=tokenizer)
    inputs = next(iter(trainer.get_train_dataloader()))
    learned = (inputs["labels"][:, 1:] != -100).sum()
    assert learned == sum(len(completion) + 1 for _, completion in pairs), learned
    loss = trainer.compute_loss(model.train(), inputs, num_items_in_batch=learned)
    check("losses", abs(computed["report"]["loss"] - loss.item()), REPORT)
    return trainer, loss, 1.0


def main():
    folder = Path(sys.argv[1])
    computed = json.loads((folder / "computed.json").read_text())
    tokenizer = AutoTokenizer.from_pretrained(folder)
    before, ours = (load_file(folder / name / "adapter_model.safetensors") for name in ("before", "after"))
    moved = {}
    for dtype in (torch.float64, torch.float32):
        model = load(folder, torch.float32).to(dtype)
        trainer, loss, divisor = {"rloo": rloo, "dpo": dpo, "sft": sft}[computed["algorithm"]](folder, computed, tokenizer, model)
        (loss / divisor).backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), computed["settings"]["max_grad_norm"]).item()
        trainer.create_optimizer().step()
        moved[dtype] = get_peft_model_state_dict(model)
        if dtype == torch.float64:
            check("gradient norms", abs(computed["report"]["grad_norm"] / norm - 1.0), REPORT)
    right = moved[torch.float64]
    check("adapters after a step, in shares of their moves,", apart(ours, right, before), MOVE)
    print(f"where trl in f32 differs by {apart(moved[torch.float32], right, before):.1e}")


if __name__ == "__main__":
    main()
