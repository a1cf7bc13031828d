#!/usr/bin/env bash
# Trains CorVer's demo with SkyRL and a reward for each token: a tiny policy, 60 steps. Needs one NVIDIA GPU, and Python 3.12 with:
#   pip install corver 'skyrl[fsdp]==0.3.0'
# CORVER_DRY_RUN=1 writes the questions and prints the settings; that needs no GPU. MODEL=DIR trains another policy; further
# arguments are settings of SkyRL.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${OUT:-runs/skyrl}
model=${MODEL:-$(python -c 'import corver; print(corver.demo().policy)')}

mkdir -p "$out"
corver-host demo world "$out/world"
python "$here/questions.py" "$out/world/train.json" "$out/train.jsonl"
python "$here/questions.py" "$out/world/eval.json" "$out/eval.jsonl"

settings=(
  # CorVer: the arguments of corver.Scorer. The estimator and the environment are set by corver.skyrl.
  generator.corver.plugin=first.wasm
  generator.corver.index=demo
  generator.corver.extractor=demo

  data.train_data="['$out/train.jsonl']"
  data.val_data="['$out/eval.jsonl']"
  trainer.max_prompt_length=64
  generator.sampling_params.max_generate_length=96

  trainer.policy.model.path="$model"
  trainer.policy.model.lora.rank=16
  trainer.policy.model.lora.alpha=32
  trainer.policy.optimizer_config.lr=1e-3
  trainer.strategy=fsdp
  trainer.placement.colocate_all=true
  trainer.placement.policy_num_gpus_per_node=1
  trainer.placement.ref_num_gpus_per_node=1
  generator.inference_engine.num_engines=1
  generator.inference_engine.gpu_memory_utilization=0.4
  generator.n_samples_per_prompt=16

  trainer.train_batch_size=16
  trainer.policy_mini_batch_size=16
  trainer.micro_forward_batch_size_per_gpu=64
  trainer.micro_train_batch_size_per_gpu=64
  # The paper's loss: each completion weighs the same; the KL is in the loss.
  trainer.algorithm.loss_reduction=sequence_mean
  trainer.algorithm.use_kl_loss=true
  trainer.algorithm.kl_loss_coef=0.001

  trainer.epochs=1
  trainer.max_training_steps=60
  trainer.eval_batch_size=64
  trainer.eval_interval=20
  trainer.ckpt_interval=-1
  trainer.logger=console
  trainer.export_path="$out/export"
  trainer.ckpt_path="$out/checkpoints"
  trainer.log_path="$out/log"
  "$@"
)
if [ -n "${CORVER_DRY_RUN:-}" ]; then
  printf '%s\n' "${settings[@]}"
  exit
fi
exec python -m corver.skyrl "${settings[@]}"
