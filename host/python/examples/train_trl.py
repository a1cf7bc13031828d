"""Trains the demo's tiny policy with TRL on the demo's questions, on the CPU: python train_trl.py. Needs corver[trl]."""

from datasets import Dataset

import corver
from corver.trl import CorverGRPOTrainer, paper_config, paper_lora

demo = corver.demo()
rows = [{"prompt": [{"role": "user", "content": row.question}], "answers": row.answers} for row in demo.train]
trainer = CorverGRPOTrainer(
    model=demo.policy,
    scorer=corver.Scorer(plugin="first.wasm", index="demo", extractor="demo"),
    # The step of `corver-host train`: 16 prompts with 16 completions.
    args=paper_config(
        output_dir="runs/trl", use_cpu=True, bf16=False, gradient_checkpointing=False, report_to=[], max_steps=60,
        per_device_train_batch_size=256, gradient_accumulation_steps=1, max_completion_length=96, learning_rate=1e-3,
    ),
    train_dataset=Dataset.from_list(rows),
    peft_config=paper_lora(r=16, lora_alpha=32),
)  # fmt: skip
trainer.train()
