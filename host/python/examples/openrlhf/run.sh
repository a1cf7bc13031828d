#!/usr/bin/env bash
# Trains CorVer's demo with OpenRLHF: a tiny policy, one reward per completion. Needs one NVIDIA GPU, and in the Python environment:
#   pip install corver 'openrlhf[vllm]==0.11.2'
# The reward is computed on this machine (reward.py). REWARD=http://HOST:8765/get_reward uses `corver-host serve`; several
# addresses, separated by commas, share the work. CORVER_DRY_RUN=1 writes the questions and prints the arguments; that needs no GPU.
# MODEL=DIR trains another policy; further arguments are OpenRLHF's.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${OUT:-runs/openrlhf}
model=${MODEL:-$(python -c 'import corver; print(corver.demo().policy)')}

mkdir -p "$out"
corver-host demo world "$out/world"

arguments=(
  --reward.remote_url "${REWARD:-$here/reward.py}"

  # An unchanged question file: answers are a list.
  --data.prompt_dataset "$out/world/train.json"
  --data.input_key question
  --data.label_key answers
  --data.apply_chat_template
  --data.max_len 160
  --rollout.max_new_tokens 96
  --rollout.batch_size 16
  --rollout.n_samples_per_prompt 16
  --rollout.micro_batch_size 64

  --actor.model_name_or_path "$model"
  --actor.num_gpus_per_node 1
  --actor.adam.lr 1e-3
  --actor.loss_agg_mode seq-mean-token-mean
  --ref.num_gpus_per_node 1
  --ds.lora.rank 16
  --ds.lora.alpha 32
  --ds.attn_implementation sdpa
  --train.batch_size 256
  --train.micro_batch_size 64
  --train.num_episodes 1
  --train.colocate_all
  --vllm.num_engines 1
  --vllm.enable_sleep
  --vllm.gpu_memory_utilization 0.4

  --algo.advantage.estimator group_norm
  --algo.kl.use_loss
  --algo.kl.estimator k3
  --algo.kl.init_coef 0.001
  --ckpt.output_dir "$out/model"
  "$@"
)
if [ -n "${CORVER_DRY_RUN:-}" ]; then
  printf '%s\n' "${arguments[@]}"
  exit
fi
exec python -m openrlhf.cli.train_ppo_ray "${arguments[@]}"
