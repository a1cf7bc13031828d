//! Times a training step with the sizes of a published model, by phase.
//!
//! `at_scale DEVICE SHAPE…` prints tables, and a line of JSON per shape at the end. Shapes: llama-8b,
//! qwen3-14b, olmo2-13b, tiny. With `--counts` first, for a CUDA runtime that computes nothing
//! (host/cuda-stub), results are not compared with the CPU's.
//!
//! Weights are noise from the device's generator. Prompts and completions have the paper's lengths:
//! 24 × 16 of 170 tokens, and 150 that are decoded. The update learns from 75 to 150 of them, and from
//! 1,024 in one completion of each group. On a GPU, results are first compared with those of the CPU. The
//! program needs neither network nor Rust: with only the binary and PyTorch 2.11, run
//! `LD_LIBRARY_PATH=$(python3 -c 'import torch; print(torch.__path__[0])')/lib ./at_scale cuda
//! llama-8b`.
#![allow(clippy::print_stdout)] // the output of the program

use std::path::Path;
use std::time::Instant;

use corver_core::{
    Advantages, LearnSettings, Learner, Precision, Question, Rollout, Sampler, Sampling, Signal,
    TrainingBatch, UpdateReport,
};
use corver_learn::memory::{Peak, free};
use corver_learn::{
    LoraSettings, LossSettings, MemoryPlan, Model, MomentPrecision, Policy, Result, Workload,
    find_device, sample::sample,
};
use corver_pretrained::{ChatTokenizer, ModelConfig, ModelFamily};
use serde_json::{Value, json};
use tch::{Device, Kind, Tensor};

struct Step {
    prompts: usize,
    samples: usize,
    prompt_tokens: usize,
    /// Tokens of a completion that are decoded.
    tokens: usize,
    /// Tokens of the longest completion of a group in the update.
    longest: usize,
    rank: usize,
}

/// Sizes of the paper's step, and of one for a CPU.
const PAPER: Step =
    Step { prompts: 24, samples: 16, prompt_tokens: 170, tokens: 150, longest: 1024, rank: 128 };
const TINY: Step =
    Step { prompts: 3, samples: 4, prompt_tokens: 17, tokens: 15, longest: 100, rank: 8 };

fn shape(name: &str) -> Option<(ModelConfig, Step)> {
    let (family, [vocab, d, f, layers, heads, kv_heads], tie, step) = match name {
        "llama-8b" => (ModelFamily::Llama, [128_256, 4096, 14_336, 32, 32, 8], false, PAPER),
        "qwen3-14b" => (ModelFamily::Qwen3, [151_936, 5120, 17_408, 40, 40, 8], false, PAPER),
        "olmo2-13b" => (ModelFamily::Olmo2, [100_352, 5120, 13_824, 40, 40, 40], false, PAPER),
        "tiny" => (ModelFamily::Llama, [512, 256, 512, 2, 2, 1], true, TINY),
        _ => return None,
    };
    let config = ModelConfig {
        family,
        vocab_size: vocab,
        hidden_size: d,
        intermediate_size: f,
        num_layers: layers,
        num_heads: heads,
        num_kv_heads: kv_heads,
        head_dim: 128,
        max_positions: 4096,
        norm_eps: 1e-5,
        rope_theta: 500_000.0,
        rope_scaling: None,
        tie_embeddings: tie,
    };
    Some((config, step))
}

fn main() -> std::result::Result<(), String> {
    measure().map_err(|error| error.to_string())
}

fn measure() -> Result<()> {
    let mut arguments = std::env::args().skip(1).peekable();
    let computes = arguments.next_if_eq("--counts").is_none();
    let name = arguments.next().expect("usage: at_scale [--counts] DEVICE SHAPE…");
    let device = find_device(name.parse().expect("a device: cpu, cuda or cuda:N"))?;
    if device.is_cuda() && computes {
        compare_samples(device)?;
        compare_updates(device)?;
    }
    let machine = Machine::measure(device)?;
    println!(
        "{device:?}: {:.2} TFLOP/s of products, {:.0} GB/s of copies",
        machine.flops / 1e12,
        machine.bytes / 1e9
    );
    let mut lines = Vec::new();
    for name in arguments {
        let (config, step) = shape(&name).unwrap_or_else(|| panic!("no shape is called {name}"));
        lines.push(run(&name, config, &step, device, &machine)?);
    }
    lines.iter().for_each(|line| println!("{line}"));
    Ok(())
}

/// Peak rates of a device in the two kinds of work of a step.
struct Machine {
    /// Floating-point operations per second of a product of two square matrices.
    flops: f64,
    /// Bytes per second that a copy reads and writes.
    bytes: f64,
}

impl Machine {
    fn measure(device: Device) -> Result<Self> {
        let (kind, n) = if device.is_cuda() { (Kind::BFloat16, 8192) } else { (Kind::Float, 1024) };
        let matrix = Tensor::f_ones([n, n], (kind, device))?;
        let product = fastest(device, || drop(matrix.matmul(&matrix)));
        let source = Tensor::f_ones([n * n * 8], (kind, device))?;
        let mut target = source.f_zeros_like()?;
        let copy = fastest(device, || target.copy_(&source));
        let copied = 2 * source.numel() * source.f_kind()?.elt_size_in_bytes();
        Ok(Self { flops: 2.0 * (n as f64).powi(3) / product, bytes: copied as f64 / copy })
    }
}

/// Returns the seconds of the fastest of five turns.
fn fastest(device: Device, mut work: impl FnMut()) -> f64 {
    let turn = |_| {
        wait(device);
        let start = Instant::now();
        work();
        wait(device);
        start.elapsed().as_secs_f64()
    };
    (0..5).map(turn).fold(f64::INFINITY, f64::min)
}

fn wait(device: Device) {
    if let Device::Cuda(index) = device {
        tch::Cuda::synchronize(index as i64);
    }
}

fn run(
    name: &str,
    config: ModelConfig,
    step: &Step,
    device: Device,
    machine: &Machine,
) -> Result<Value> {
    let Step { prompts, samples, prompt_tokens, tokens, longest, rank } = *step;
    let precision = Precision::Auto;
    let kind = if device.is_cuda() { Kind::BFloat16 } else { Kind::Float };
    let workload = Workload {
        num_generations: samples,
        max_prompt_length: Some(prompt_tokens),
        max_completion_length: longest,
        answers: None,
        max_rows: prompts * samples,
        micro_batch_tokens: 16_384,
        rank,
        moments: MomentPrecision::F32,
        rows_together: 1,
        reference_adapter: false,
    };
    let plan = MemoryPlan::new(&config, kind, device, &workload, free(device)?)?;
    println!("\n{name}\n{plan}");

    let start = Instant::now();
    let model = Model::noise(config.clone(), precision, device)?;
    let settings = LearnSettings {
        lora: LoraSettings { r: rank, alpha: 2.0 * rank as f64 },
        loss: LossSettings { beta: 0.001, ..LossSettings::default() },
        micro_batch_tokens: plan.micro_batch_tokens,
        ..LearnSettings::default()
    };
    let folder = tempfile::tempdir().expect("a temporary folder");
    write_tokenizer(folder.path());
    let policy = Policy::new(model, ChatTokenizer::load(folder.path())?, settings, 1)?;
    let mut policy = policy.with_max_rows(plan.rows);
    wait(device);
    println!("model and adapters made in {:.1} s", start.elapsed().as_secs_f64());

    // The first letters differ, so that the prompts share no prefix.
    let question = |n: usize| Question {
        question: format!("{}{}", letter(n), "x".repeat(prompt_tokens - 1)),
        golds: vec!["x".into()],
        ..Question::default()
    };
    let questions: Vec<Question> = (0..prompts).map(question).collect();
    let sampling =
        Sampling { num_generations: samples, max_completion_length: tokens, ..Sampling::default() };
    // The first step includes the set-up of libraries; the second one counts.
    let mut report = json!(null);
    for turn in ["first", "second"] {
        let (mut rollouts, rollout, rollout_peak) = timed(device, || {
            policy.sample(&questions, &sampling, 7, &mut |_, _| ()).expect("a rollout")
        })?;
        let decoded: usize = rollouts.iter().map(|r| r.tokens.len()).sum();
        skew(&mut rollouts, step);
        let value = |n: usize| (n % 3) as f64 - 1.0;
        let values =
            rollouts.iter().enumerate().map(|(n, r)| vec![value(n); r.tokens.len()]).collect();
        let signal = Signal::Advantages(Advantages { values, ..Advantages::default() });
        let batch =
            TrainingBatch { questions: &questions, sampling: &sampling, rollouts: &rollouts };
        let (_, update, update_peak) =
            timed(device, || policy.update(&batch, &signal).expect("an update"))?;

        let learned: usize = rollouts.iter().map(|r| r.tokens.len()).sum();
        let elements = elements(&config);
        let size = kind.elt_size_in_bytes() as f64;
        let kv = 2.0 * (config.num_layers * config.num_kv_heads * config.head_dim) as f64 * size;
        let rows = (prompts * samples) as f64;
        // Each decoding step reads every weight, the keys and values of every prompt once, and those
        // of the completions so far.
        let waves = rows / (plan.rows.min(prompts * samples) as f64);
        let per_step = waves.ceil() * elements * size
            + (prompts * prompt_tokens) as f64 * kv
            + rows * tokens as f64 / 2.0 * kv;
        let products = 2.0 * elements * rows;
        let roofline = tokens as f64 * (per_step / machine.bytes).max(products / machine.flops);
        // Two forward passes (one of the reference) and one backward pass through frozen weights, with
        // 2 operations per element.
        let packed = (prompts * prompt_tokens + learned) as f64;
        let mfu = 3.0 * 2.0 * elements * packed / update / machine.flops;
        println!(
            "{turn} step: rollout {rollout:.2} s ({:.0} tokens/s, {:.0} % of its roofline), \
             update {update:.2} s ({:.0} % of the products' speed), {:.2} s in all",
            decoded as f64 / rollout,
            100.0 * roofline / rollout,
            100.0 * mfu,
            rollout + update
        );
        let gib = |bytes: u64| bytes as f64 / f64::from(1u32 << 30);
        println!(
            "{turn} step: peaks {:.1} GiB (planned {:.1}) and {:.1} GiB (planned {:.1})",
            gib(rollout_peak),
            gib(plan.rollout()),
            gib(update_peak),
            gib(plan.update(plan.micro_batch_tokens))
        );
        report = json!({
            "shape": name,
            "device": format!("{device:?}"),
            "plan": plan,
            "rollout_s": rollout,
            "update_s": update,
            "tokens": decoded,
            "learned_tokens": learned,
            "roofline_share": roofline / rollout,
            "mfu": mfu,
            "rollout_peak": rollout_peak,
            "update_peak": update_peak,
            "rollout_planned": plan.rollout(),
            "update_planned": plan.update(plan.micro_batch_tokens),
            "flops": machine.flops,
            "bytes_per_s": machine.bytes,
        });
    }
    Ok(report)
}

/// Gives the completions of each group different lengths, of which one is far longer than the others.
fn skew(rollouts: &mut [Rollout], step: &Step) {
    for (n, rollout) in rollouts.iter_mut().enumerate() {
        let row = n % step.samples;
        let length = match row {
            0 => step.longest,
            _ => step.tokens / 2 + row * step.tokens / (2 * step.samples),
        };
        rollout.tokens = rollout.tokens.iter().copied().cycle().take(length).collect();
        rollout.log_probs = rollout.log_probs.iter().copied().cycle().take(length).collect();
    }
}

/// Calls a function. Returns its result, seconds and peak memory.
fn timed<T>(device: Device, call: impl FnOnce() -> T) -> Result<(T, f64, u64)> {
    let peak = Peak::begin(device)?;
    let start = Instant::now();
    let result = call();
    wait(device);
    Ok((result, start.elapsed().as_secs_f64(), peak.bytes()?))
}

/// Returns the number of elements of the matrices that every token is multiplied with.
fn elements(config: &ModelConfig) -> f64 {
    let (d, f) = (config.hidden_size, config.intermediate_size);
    let [q, kv] = [config.num_heads, config.num_kv_heads].map(|heads| heads * config.head_dim);
    (config.num_layers * (2 * d * (q + kv) + 3 * d * f) + config.vocab_size * d) as f64
}

/// Returns one of 24 letters, `a` to `x`.
fn letter(n: usize) -> char {
    char::from(b'a' + (n % 24) as u8)
}

/// Compares the log-probabilities of a small model's greedy completions on the GPU, in both
/// precisions, with those on the CPU.
fn compare_samples(gpu: Device) -> Result<()> {
    let (folder, _) = tiny_model()?;
    // All begin with the same 20 tokens, which are run once.
    let token = |p: u32, t: u32| if t < 20 { t } else { (p * 31 + t * 7) % 512 };
    let prompts: Vec<Vec<u32>> =
        (0..6).map(|p| (0..25 + 5 * p).map(|t| token(p, t)).collect()).collect();
    let prompts: Vec<&[u32]> = prompts.iter().map(Vec::as_slice).collect();
    let draw = |device, precision| {
        let model = Model::load(folder.path(), precision, device)?;
        sample(&model, &prompts, &Sampling { num_generations: 5, ..Sampling::greedy(24) }, &[], 1)
    };
    let expected = draw(Device::Cpu, Precision::F32)?;
    for (precision, limit) in [(Precision::F32, 5e-3), (Precision::Bf16, 0.2)] {
        let got = draw(gpu, precision)?;
        let mut worst = 0f32;
        for (got, expected) in got.iter().zip(&expected) {
            // After the first token that differs, the two are of different texts.
            let same = got.tokens.iter().zip(&expected.tokens).take_while(|(a, b)| a == b).count();
            let pairs = got.log_probs.iter().zip(&expected.log_probs).take(same);
            worst = pairs.map(|(a, b)| (a - b).abs()).fold(worst, f32::max);
        }
        println!(
            "{precision:?} on the GPU: log-probabilities differ from the CPU's by at most \
             {worst:.1e} (limit {limit})"
        );
        assert!(f64::from(worst) < limit, "CUDA and CPU disagree");
    }
    Ok(())
}

/// Compares three updates of a small model from the same skewed completions on the GPU, in both
/// precisions, with those on the CPU. In bf16 this covers attention with more keys than queries.
fn compare_updates(gpu: Device) -> Result<()> {
    let (folder, step) = tiny_model()?;
    let questions: Vec<Question> = (1..=step.prompts)
        .map(|n| Question { question: "x".repeat(n * step.prompt_tokens), ..Question::default() })
        .collect();
    let sampling = Sampling {
        num_generations: step.samples,
        max_completion_length: step.tokens,
        ..Sampling::default()
    };
    let settings = LearnSettings {
        lora: LoraSettings { r: step.rank, alpha: 2.0 * step.rank as f64 },
        loss: LossSettings { beta: 0.001, ..LossSettings::default() },
        learning_rate: 1e-3,
        micro_batch_tokens: 256, // several micro-batches
        ..LearnSettings::default()
    };
    let open = |device, precision| {
        let model = Model::load(folder.path(), precision, device)?;
        Policy::new(model, ChatTokenizer::load(folder.path())?, settings, 1)
    };
    let mut rollouts = open(Device::Cpu, Precision::F32)?
        .sample(&questions, &sampling, 7, &mut |_, _| ())
        .expect("a rollout");
    skew(&mut rollouts, &step);
    let mut values = Vec::new();
    for (row, rollout) in rollouts.iter().enumerate() {
        let value = |token| ((row + token) % 5) as f64 - 2.0;
        values.push((0..rollout.tokens.len()).map(value).collect());
    }
    let signal = Signal::Advantages(Advantages { values, ..Advantages::default() });
    let batch = TrainingBatch { questions: &questions, sampling: &sampling, rollouts: &rollouts };
    let learn = |device, precision| -> Result<Vec<UpdateReport>> {
        let mut policy = open(device, precision)?;
        let update = |_| policy.update(&batch, &signal).expect("an update");
        Ok((0..3).map(update).collect())
    };
    let expected = learn(Device::Cpu, Precision::F32)?;
    for (precision, limit, kl_limit) in
        [(Precision::F32, 1e-3, 2e-5), (Precision::Bf16, 1e-2, 1e-4)]
    {
        let (mut worst, mut worst_kl) = (0f64, 0f64);
        for (got, expected) in learn(gpu, precision)?.iter().zip(&expected) {
            for (got, expected) in [
                (got.loss, expected.loss),
                (got.entropy, expected.entropy),
                (got.grad_norm, expected.grad_norm),
            ] {
                assert!(got.is_finite(), "an update on the GPU is not finite");
                worst = worst.max((got - expected).abs() / expected.abs());
            }
            let [got, expected] = [got, expected].map(|report| report.kl.expect("a KL term"));
            assert!(got.is_finite(), "KL on the GPU is not finite");
            worst_kl = worst_kl.max((got - expected).abs());
        }
        println!(
            "{precision:?} on the GPU: loss, entropy and gradient norm of updates differ from the \
             CPU's by at most {worst:.1e} of it (limit {limit}), KL by {worst_kl:.1e} (limit {kl_limit})"
        );
        assert!(worst < limit && worst_kl < kl_limit, "CUDA and CPU disagree");
    }
    Ok(())
}

/// Writes a small model with random weights. Returns its folder and the sizes of a step.
fn tiny_model() -> Result<(tempfile::TempDir, Step)> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (config, step) = shape("tiny").expect("its shape");
    Model::random(config, 3, Device::Cpu)?.save(folder.path())?;
    write_tokenizer(folder.path());
    Ok((folder, step))
}

/// Writes a tokenizer with the letters and a stop token.
fn write_tokenizer(folder: &Path) {
    let mut vocab = json!({"x": 0, "<|im_end|>": 1});
    for n in 0..23 {
        // a to w
        vocab[letter(n).to_string()] = json!(2 + n);
    }
    let mark = json!({"id": 1, "content": "<|im_end|>", "single_word": false, "lstrip": false, "rstrip": false,
                      "normalized": false, "special": true});
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "pre_tokenizer": null,
        "post_processor": null, "decoder": null, "added_tokens": [mark],
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                  "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
                  "vocab": vocab, "merges": []}});
    std::fs::write(folder.join("tokenizer.json"), tokenizer.to_string())
        .expect("a writable temporary folder");
    let config = json!({"chat_template": "{{ messages[-1].content }}"});
    std::fs::write(folder.join("tokenizer_config.json"), config.to_string())
        .expect("a writable temporary folder");
}
