//! libtorch: models, LoRA, sampling, the GRPO update.
