//! Compares the memory plan with measurements. They are of the process, so this program has no other
//! tests.

use std::process::Command;

mod common;

use common::write_folder;
use corver_core::{
    Advantages, LearnSettings, Learner, Question, Sampler, Sampling, Signal, TrainingBatch,
};
use corver_learn::{
    AdamWSettings, LoraSettings, MemoryPlan, Model, MomentPrecision, Policy, Precision, Workload,
    memory,
};
use corver_pretrained::{ChatTokenizer, ModelConfig, ModelFamily};
use tch::{Device, Kind};

/// A model that is larger than those of other tests and smaller than published ones.
const MODEL: ModelConfig = ModelConfig {
    family: ModelFamily::Llama,
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

/// Environment variable that makes the C library return freed tensors immediately, so that only
/// tensors in use are measured.
const RETURN_MEMORY: (&str, &str) = ("MALLOC_MMAP_THRESHOLD_", "65536");

#[test]
fn update_memory_stays_within_plan() {
    run_in_child_process("update_memory_stays_within_plan", || {
        let share = measured_share(&MODEL, 8, 240);
        assert!((0.75..1.0).contains(&share), "{share} of the plan");
    });
}

#[test]
#[ignore = "16 GB and minutes: cargo test --release --workspace --test memory -- --ignored --nocapture"]
fn layers_of_8b_model_stay_within_memory_plan() {
    run_in_child_process("layers_of_8b_model_stay_within_memory_plan", || {
        let sizes = ModelConfig {
            hidden_size: 4096,
            intermediate_size: 14_336,
            num_heads: 32,
            num_kv_heads: 8,
            ..MODEL
        };
        let [model, layers] =
            [32, 3].map(|num_layers| ModelConfig { num_layers, head_dim: 128, ..sizes.clone() });
        let share = measured_share(&layers, 128, 60);
        let planned = plan(&model, Kind::BFloat16, 128, 240).graph_per_token as f64 / 1e6;
        eprintln!(
            "measured {share:.2} of the plan; the plan of 32 layers in bf16 is {planned:.2} MB a token"
        );
        assert!((0.75..1.0).contains(&share), "{share} of the plan");
        assert!(planned < 5.5, "{planned}");
    });
}

fn run_in_child_process(name: &str, test: fn()) {
    if std::env::var_os(RETURN_MEMORY.0).is_some() {
        return test();
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args([name, "--exact", "--include-ignored", "--nocapture"]);
    child.env(RETURN_MEMORY.0, RETURN_MEMORY.1);
    assert!(child.status().unwrap().success());
}

fn plan(model: &ModelConfig, kind: Kind, rank: usize, max_completion_length: usize) -> MemoryPlan {
    let workload = Workload {
        num_generations: SAMPLES,
        max_prompt_length: Some(8),
        max_completion_length,
        answers: None,
        max_rows: SAMPLES,
        micro_batch_tokens: 16_384,
        rank,
        moments: MomentPrecision::F32,
        rows_together: 1,
        reference_adapter: false,
    };
    MemoryPlan::new(model, kind, Device::Cpu, &workload, 64 << 30).unwrap()
}

/// Returns the memory of an update on completions of `tokens` tokens, without weights and adapters, as
/// a share of the plan.
fn measured_share(model: &ModelConfig, rank: usize, tokens: usize) -> f64 {
    let folder = tempfile::tempdir().unwrap();
    write_folder(folder.path(), model);
    let weights = Model::load(folder.path(), Precision::F32, Device::Cpu).unwrap();
    let settings = LearnSettings {
        lora: LoraSettings { r: rank, alpha: 16.0 },
        optimizer: AdamWSettings::with_f32_moments(),
        ..LearnSettings::default()
    };
    let mut policy =
        Policy::new(weights, ChatTokenizer::load(folder.path()).unwrap(), settings, 1).unwrap();
    let questions =
        [Question { question: "Q a".into(), golds: vec!["a".into()], ..Question::default() }];
    let sampling =
        Sampling { num_generations: SAMPLES, max_completion_length: 4, ..Sampling::default() };
    let mut rollouts = policy.sample(&questions, &sampling, 1, &mut |_, _| ()).unwrap();
    for rollout in &mut rollouts {
        rollout.tokens = vec![3; tokens];
        rollout.log_probs = vec![-2.0; tokens];
    }
    let values = (0..SAMPLES).map(|row| vec![row as f64 / 8.0 - 1.0; tokens]).collect();
    let advantages = Advantages { values, ..Advantages::default() };

    let before = memory::Peak::begin(Device::Cpu).unwrap().bytes().unwrap();
    let peak = memory::Peak::begin(Device::Cpu).unwrap();
    let batch = TrainingBatch { questions: &questions, sampling: &sampling, rollouts: &rollouts };
    policy.update(&batch, &Signal::Advantages(advantages)).unwrap();
    let measured = (peak.bytes().unwrap() - before) as f64;
    let plan = plan(model, Kind::Float, rank, tokens);
    measured / (plan.update(SAMPLES * tokens) - plan.weights - plan.adapters) as f64
}
