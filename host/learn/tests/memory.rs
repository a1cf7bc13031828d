//! The memory plan against what is taken. Alone in its program: the measurement is of the whole process.

use std::process::Command;

mod common;

use common::write_folder;
use corver_core::{Advantages, LearnSettings, Learner, Question, Sampler, Sampling};
use corver_learn::{
    Family, Load, LoraSettings, MemoryPlan, Model, ModelConfig, MomentPrecision, Policy, PolicyTokenizer, Precision,
    memory,
};
use tch::{Device, Kind};

/// Between the sizes of a test and of a model.
const MODEL: ModelConfig = ModelConfig {
    family: Family::Llama,
    vocab_size: 12,
    hidden_size: 512,
    intermediate_size: 1536,
    num_layers: 6,
    num_heads: 8,
    num_kv_heads: 2,
    head_dim: 64,
    max_positions: 512,
    norm_eps: 1e-6,
    rope_theta: 10_000.0,
    rope_scaling: None,
    tie_embeddings: true,
};
const SAMPLES: usize = 16;
const TOKENS: usize = 240;

/// Under which the C library gives freed tensors back at once, so that only those in use are measured.
const GIVE_BACK: (&str, &str) = ("MALLOC_MMAP_THRESHOLD_", "65536");

#[test]
fn an_update_takes_what_was_planned() {
    if std::env::var_os(GIVE_BACK.0).is_none() {
        let mut again = Command::new(std::env::current_exe().unwrap());
        assert!(again.arg("--nocapture").env(GIVE_BACK.0, GIVE_BACK.1).status().unwrap().success());
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    write_folder(folder.path(), &MODEL);
    let model = Model::load(folder.path(), Precision::F32, Device::Cpu).unwrap();
    let settings = LearnSettings { lora: LoraSettings { r: 8, alpha: 16.0 }, ..LearnSettings::default() };
    let mut policy = Policy::new(model, PolicyTokenizer::load(folder.path()).unwrap(), settings, 1).unwrap();
    let question = Question { question: "Q a".into(), golds: vec!["a".into()], title: None };
    let sampling = Sampling { num_generations: SAMPLES, max_completion_length: 4, ..Sampling::PAPER };
    let mut rollouts = policy.sample(&[question], &sampling, 1).unwrap();
    for rollout in &mut rollouts {
        rollout.tokens = vec![3; TOKENS];
        rollout.log_probs = vec![-2.0; TOKENS];
    }
    let values = (0..SAMPLES).map(|row| vec![row as f64 / 8.0 - 1.0; TOKENS]).collect();
    let advantages = Advantages { values, reward: 0.0, reward_std: 0.0, frac_reward_zero_std: 0.0 };

    let before = memory::Peak::begin(Device::Cpu).unwrap().bytes().unwrap();
    let peak = memory::Peak::begin(Device::Cpu).unwrap();
    policy.update(&rollouts, &advantages).unwrap();
    let taken = (peak.bytes().unwrap() - before) as f64;

    let load = Load {
        num_generations: SAMPLES,
        max_prompt_length: 8,
        max_completion_length: TOKENS,
        max_rows: SAMPLES,
        micro_batch_tokens: 16_384,
        rank: 8,
        moments: MomentPrecision::F32,
    };
    let plan = MemoryPlan::new(&MODEL, Kind::Float, Device::Cpu, &load, 64 << 30).unwrap();
    let planned = (plan.update(SAMPLES * TOKENS) - plan.weights - plan.adapters) as f64;
    assert!((0.8..1.0).contains(&(taken / planned)), "taken {taken}, planned {planned}");
}
