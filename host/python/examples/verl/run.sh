#!/usr/bin/env bash
# Trains CorVer's demo with verl and a reward for each token: a tiny policy, 60 steps. Needs one NVIDIA GPU, and in the Python environment:
#   pip install corver 'verl[vllm,fsdp]==0.9.1'
# CORVER_DRY_RUN=1 writes the questions and prints the settings; that needs no GPU. MODEL=DIR trains another policy; further
# arguments are settings of verl.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${OUT:-runs/verl}
model=${MODEL:-$(python -c 'import corver; print(corver.demo().policy)')}

mkdir -p "$out"
corver-host demo world "$out/world"
python "$here/questions.py" "$out/world/train.json" "$out/train.parquet"
python "$here/questions.py" "$out/world/eval.json" "$out/eval.parquet"

settings=(
  # CorVer: the reward, the agent loop, the advantage estimator.
  $(python -m corver.verl)
  +reward.custom_reward_function.reward_kwargs.plugin=first.wasm
  +reward.custom_reward_function.reward_kwargs.index=demo
  +reward.custom_reward_function.reward_kwargs.extractor=demo
  reward.num_workers=1

  data.train_files="$out/train.parquet"
  data.val_files="$out/eval.parquet"
  data.train_batch_size=16
  data.max_prompt_length=64
  data.max_response_length=96

  actor_rollout_ref.model.path="$model"
  actor_rollout_ref.model.lora_rank=16
  actor_rollout_ref.model.lora_alpha=32
  actor_rollout_ref.rollout.name=vllm
  actor_rollout_ref.rollout.load_format=safetensors
  actor_rollout_ref.rollout.n=16
  actor_rollout_ref.rollout.tensor_model_parallel_size=1
  actor_rollout_ref.rollout.gpu_memory_utilization=0.4
  actor_rollout_ref.rollout.agent.num_workers=2
  actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=64
  actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=64
  actor_rollout_ref.actor.ppo_mini_batch_size=16
  actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=64
  actor_rollout_ref.actor.optim.lr=1e-3
  # The paper's loss: each completion weighs the same; the KL is in the loss.
  actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-mean
  actor_rollout_ref.actor.use_kl_loss=True
  actor_rollout_ref.actor.kl_loss_coef=0.001

  trainer.n_gpus_per_node=1
  trainer.nnodes=1
  trainer.total_epochs=1
  trainer.total_training_steps=60
  trainer.test_freq=20
  trainer.save_freq=-1
  trainer.logger=[console]
  "$@"
)
if [ -n "${CORVER_DRY_RUN:-}" ]; then
  printf '%s\n' "${settings[@]}"
  exit
fi
exec python -m verl.trainer.main_ppo "${settings[@]}"
