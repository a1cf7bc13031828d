//! Decoding and updating with a small random model (about 1.1 million weights, f32).

use std::hint::black_box;

use corver_core::{
    AdamWSettings, Advantages, Learner, Question, Sampler, Sampling, Signal, TrainingBatch,
};
use corver_learn::{LearnSettings, LoraSettings, Model, Policy, find_device, sample::sample};
use corver_pretrained::{ChatTokenizer, ModelConfig, ModelFamily};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tch::Device;

const PROMPTS: usize = 24;
const LENGTH: usize = 32;
fn sampling() -> Sampling {
    Sampling { num_generations: 16, max_completion_length: LENGTH, ..Sampling::default() }
}

/// Returns the device that `CORVER_BENCH_DEVICE` names, as `--device` would; the CPU by default.
fn device() -> Device {
    let wanted = std::env::var("CORVER_BENCH_DEVICE").unwrap_or_else(|_| "cpu".into());
    let wanted = wanted.parse().expect("CORVER_BENCH_DEVICE is auto, cpu, cuda or cuda:N");
    find_device(wanted).expect("CORVER_BENCH_DEVICE names a device of this machine")
}

fn model() -> Model {
    let config = ModelConfig {
        family: ModelFamily::Qwen3,
        vocab_size: 2048,
        hidden_size: 128,
        intermediate_size: 384,
        num_layers: 4,
        num_heads: 4,
        num_kv_heads: 2,
        head_dim: 32,
        max_positions: 512,
        norm_eps: 1e-6,
        rope_theta: 10_000.0,
        rope_scaling: None,
        tie_embeddings: true,
    };
    Model::random(config, 1, device()).expect("a small model fits every device")
}

fn decoding(c: &mut Criterion) {
    let model = model();
    let prompts: Vec<Vec<u32>> = (0..PROMPTS as u32)
        .map(|p| (0..40 + p % 8).map(|t| (p * 31 + t) % 2048).collect())
        .collect();
    let slices: Vec<&[u32]> = prompts.iter().map(Vec::as_slice).collect();
    let mut group = c.benchmark_group("decode");
    group.sample_size(10);
    group.throughput(Throughput::Elements((PROMPTS * sampling().num_generations * LENGTH) as u64));
    group.bench_function("24 prompts x 16 samples x 32 tokens", |b| {
        b.iter(|| {
            black_box(sample(&model, &slices, &sampling(), &[], 7).expect("the prompts fit"))
        });
    });
    group.finish();
}

fn updating(c: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write_tokenizer(folder.path());
    let tokenizer = ChatTokenizer::load(folder.path()).expect("the tokenizer written above");
    let settings = LearnSettings {
        lora: LoraSettings { r: 16, alpha: 32.0 },
        optimizer: AdamWSettings::with_f32_moments(),
        ..LearnSettings::default()
    };
    let mut policy =
        Policy::new(model(), tokenizer, settings, 1).expect("the tokenizer fits the model");
    // The first letters differ, so that the prompts share no prefix.
    let question = |n: usize| Question {
        question: format!("{}{}", letter(n), "x".repeat(39 + n % 8)),
        golds: vec!["x".into()],
        ..Question::default()
    };
    let questions: Vec<Question> = (0..PROMPTS).map(question).collect();
    let rollouts =
        policy.sample(&questions, &sampling(), 7, &mut |_, _| ()).expect("the prompts fit");
    let values = rollouts
        .iter()
        .enumerate()
        .map(|(n, r)| vec![(n % 3) as f64 - 1.0; r.tokens.len()])
        .collect();
    let signal = Signal::Advantages(Advantages { values, ..Advantages::default() });
    let batch = TrainingBatch { questions: &questions, sampling: &sampling(), rollouts: &rollouts };
    let mut group = c.benchmark_group("update");
    group.sample_size(10);
    group.throughput(Throughput::Elements(rollouts.iter().map(|r| r.tokens.len() as u64).sum()));
    group.bench_function("384 completions of 32 tokens, with KL", |b| {
        b.iter(|| black_box(policy.update(&batch, &signal).expect("finite")));
    });
    group.finish();
}

/// Returns one of 24 letters, `a` to `x`.
fn letter(n: usize) -> char {
    char::from(b'a' + (n % 24) as u8)
}

/// Writes a tokenizer with the letters and a stop token.
fn write_tokenizer(folder: &std::path::Path) {
    let letters: Vec<String> = (0..23).map(|n| format!(r#""{}": {}"#, letter(n), n + 2)).collect();
    let tokenizer = r#"{"version": "1.0", "truncation": null, "padding": null, "normalizer": null, "pre_tokenizer": null,
        "post_processor": null, "decoder": null,
        "added_tokens": [{"id": 1, "content": "<|im_end|>", "single_word": false, "lstrip": false, "rstrip": false,
                          "normalized": false, "special": true}],
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                  "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
                  "vocab": {"x": 0, "<|im_end|>": 1, LETTERS}, "merges": []}}"#;
    let tokenizer = tokenizer.replace("LETTERS", &letters.join(", "));
    std::fs::write(folder.join("tokenizer.json"), tokenizer).expect("a writable temporary folder");
    let config = r#"{"chat_template": "{{ messages[-1].content }}"}"#;
    std::fs::write(folder.join("tokenizer_config.json"), config)
        .expect("a writable temporary folder");
}

criterion_group!(benches, decoding, updating);
criterion_main!(benches);
