//! Compares the policy with `transformers`, `peft` and `trl`, on a small random model of every
//! architecture: `make test-peers`. This side writes its results, and `peers.py` reads them and
//! computes the same.

mod algorithms;

use std::path::{Path, PathBuf};
use std::process::Command;

use corver_core::{
    Advantages, Learner, Question, Rollout, Sampler, Sampling, Signal, TrainingBatch,
};
use corver_learn::{
    AdamWSettings, ImportanceLevel, LearnSettings, LoraSettings, LossSettings, LossType, Model,
    Policy, Precision,
};
use corver_pretrained::{ChatTokenizer, Llama3Scaling, ModelConfig, ModelFamily};
use serde_json::{Value, json};
use tch::{Device, Kind, Tensor};

const LETTERS: &str = "abcdefghijklmnopqrst";
const END: &str = "<|im_end|>";

fn write_tokenizer(folder: &Path) {
    let mut vocab: serde_json::Map<_, _> =
        LETTERS.chars().enumerate().map(|(id, c)| (c.into(), json!(id))).collect();
    vocab.insert(END.into(), json!(LETTERS.len()));
    let end = json!({"id": LETTERS.len(), "content": END, "single_word": false, "lstrip": false, "rstrip": false,
                     "normalized": false, "special": true});
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "pre_tokenizer": null,
        "post_processor": null, "decoder": null, "added_tokens": [end],
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                  "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": vocab, "merges": []}
    });
    let config =
        json!({"chat_template": "{{ messages[-1].content }}", "eos_token": END, "pad_token": END});
    std::fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    std::fs::write(folder.join("tokenizer_config.json"), config.to_string()).unwrap();
}

fn config(
    family: ModelFamily,
    num_kv_heads: usize,
    tie_embeddings: bool,
    rope_scaling: Option<Llama3Scaling>,
) -> ModelConfig {
    ModelConfig {
        family,
        vocab_size: LETTERS.len() + 4, // padded, as published ones are
        hidden_size: 64,
        intermediate_size: 96,
        num_layers: 3,
        num_heads: 4,
        num_kv_heads,
        head_dim: 16,
        max_positions: 128,
        norm_eps: 1e-6,
        rope_theta: 10_000.0,
        rope_scaling,
        tie_embeddings,
    }
}

/// Fills B of the adapters with non-zero numbers, so that they change the output.
fn add_random_b(model: &Model) {
    let _guard = tch::no_grad_guard();
    for (n, (_, tensor)) in
        model.lora_parameters().into_iter().filter(|(name, _)| name.contains("lora_B")).enumerate()
    {
        let values: Vec<f32> =
            (0..tensor.numel()).map(|i| ((i * 7 + n * 13) % 19) as f32 / 190.0 - 0.05).collect();
        tensor.shallow_clone().copy_(&Tensor::from_slice(&values).view_as(tensor));
    }
}

fn questions() -> Vec<Question> {
    let question = |text: &str| Question {
        question: text.into(),
        golds: vec!["a".into()],
        ..Question::default()
    };
    ["abcab", "tsrq", "kkkkkkkkl"].map(question).into()
}

fn rollouts_json(rollouts: &[Rollout], advantages: &[Vec<f64>]) -> Value {
    let mut rows = Vec::with_capacity(rollouts.len());
    for (rollout, advantages) in rollouts.iter().zip(advantages) {
        rows.push(json!({
            "question": rollout.question,
            "tokens": rollout.tokens,
            "log_probs": rollout.log_probs,
            "advantages": advantages,
        }));
    }
    Value::Array(rows)
}

/// Writes a random model and a tokenizer.
fn write_model(folder: &Path, config: ModelConfig) {
    let mut model = Model::random(config, 3, Device::Cpu).unwrap();
    model.scale_weights(3.0, |name| name.contains("proj") || name.contains("embed")).unwrap();
    model.save(folder).unwrap();
    write_tokenizer(folder);
}

type Loss = (LossType, ImportanceLevel);

/// Samples and updates with the model in `folder`, and writes the results.
fn compute(folder: &Path, (loss_type, importance_sampling_level): Loss, precision: Precision) {
    let mut model = Model::load(folder, precision, Device::Cpu).unwrap();
    let settings = LearnSettings {
        lora: LoraSettings { r: 4, alpha: 8.0 },
        loss: LossSettings {
            loss_type,
            importance_sampling_level,
            beta: 0.05,
            ..LossSettings::default()
        },
        learning_rate: 1e-3,
        warmup_ratio: 0.0,
        // With the usual eps, a gradient of 1e-8, which is rounding, would move a weight as far as
        // any other one.
        optimizer: AdamWSettings {
            weight_decay: 0.01,
            eps: 1e-3,
            ..AdamWSettings::with_f32_moments()
        },
        ..LearnSettings::default()
    };
    model.add_lora(&settings.lora, 1).unwrap();
    add_random_b(&model);
    model.save_adapter(&folder.join("before")).unwrap();
    let mut policy = Policy::new(model, ChatTokenizer::load(folder).unwrap(), settings, 1).unwrap();
    let greedy = policy.sample(&questions(), &Sampling::greedy(12), 0, &mut |_, _| ()).unwrap();
    let sampling = Sampling { num_generations: 4, max_completion_length: 9, ..Sampling::default() };
    let rollouts = policy.sample(&questions(), &sampling, 5, &mut |_, _| ()).unwrap();
    let advantage = |n: usize, t: usize| ((n * 5 + t * 3) % 11) as f64 / 4.0 - 1.2;
    let values: Vec<Vec<f64>> = rollouts
        .iter()
        .enumerate()
        .map(|(n, r)| (0..r.tokens.len()).map(|t| advantage(n, t)).collect())
        .collect();
    let advantages = Advantages { values: values.clone(), ..Advantages::default() };
    let batch = TrainingBatch { questions: &questions(), sampling: &sampling, rollouts: &rollouts };
    let report = policy.update(&batch, &Signal::Advantages(advantages)).unwrap();
    policy.model().save_adapter(&folder.join("after")).unwrap();
    let prompts: Vec<Vec<u32>> = questions()
        .iter()
        .map(|question| policy.tokenizer().prompt(None, &question.question).unwrap())
        .collect();
    let none = vec![Vec::new(); greedy.len()];
    let computed = json!({
        "precision": precision,
        "prompts": prompts,
        "greedy": rollouts_json(&greedy, &none),
        "rollouts": rollouts_json(&rollouts, &values),
        "report": { "loss": report.loss, "grad_norm": report.grad_norm },
        "settings": settings,
        "max_completion_length": sampling.max_completion_length,
    });
    std::fs::write(folder.join("computed.json"), computed.to_string()).unwrap();
}

/// Runs both sides, and loads the peer's adapter.
fn compare(name: &str, folder: &Path, loss: Loss) {
    let python = PathBuf::from(std::env::var_os("CORVER_PEERS").expect("make test-peers sets it"));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/peers.py");
    for precision in [Precision::F32, Precision::Bf16] {
        compute(folder, loss, precision);
        let output = Command::new(&python).arg(&script).arg(folder).output().unwrap();
        let report = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success(),
            "{name}: {report}\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
        eprintln!("{name}, {precision:?}: {}", report.trim());
    }
    // The adapter that peft has written is loaded here.
    let [theirs, ours] = ["peft", "before"].map(|adapter| {
        let mut model = Model::load(folder, Precision::F32, Device::Cpu).unwrap();
        model.load_adapter(&folder.join(adapter)).unwrap();
        model
    });
    for ((their_name, a), (our_name, b)) in
        theirs.lora_parameters().into_iter().zip(ours.lora_parameters())
    {
        assert_eq!(their_name, our_name);
        assert_eq!((a - b).abs().sum(Kind::Float).double_value(&[]), 0.0, "{name}: {our_name}");
    }
}

#[test]
#[ignore = "needs transformers, peft and trl: make test-peers"]
fn architectures_match_transformers_peft_and_trl() {
    let scaling = Llama3Scaling {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_max_position_embeddings: 32.0,
    };
    let (token, gspo) = (ImportanceLevel::Token, ImportanceLevel::Sequence);
    for (name, config, loss_type, level) in [
        ("llama-3.1", config(ModelFamily::Llama, 2, false, Some(scaling)), LossType::Grpo, token),
        ("llama-3.2", config(ModelFamily::Llama, 1, true, None), LossType::DrGrpo, token),
        ("qwen2.5", config(ModelFamily::Qwen2, 2, true, None), LossType::Bnpo, token),
        ("qwen3-4b", config(ModelFamily::Qwen3, 2, true, None), LossType::Grpo, token),
        ("qwen3-8b", config(ModelFamily::Qwen3, 2, false, None), LossType::Dapo, token),
        ("olmo-2", config(ModelFamily::Olmo2, 4, false, None), LossType::Grpo, token),
        ("qwen3-4b, gspo", config(ModelFamily::Qwen3, 2, true, None), LossType::Grpo, gspo),
    ] {
        let folder = tempfile::tempdir().unwrap();
        write_model(folder.path(), config);
        compare(name, folder.path(), (loss_type, level));
    }
}

#[test]
#[ignore = "needs a model and the peers: make test-peers MODEL=DIR"]
fn real_model_matches_transformers_peft_and_trl() {
    let Some(model) = std::env::var_os("CORVER_MODEL").filter(|model| !model.is_empty()) else {
        eprintln!("no real model: make test-peers MODEL=DIR names one");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(&model).unwrap().map(Result::unwrap) {
        let file = std::fs::canonicalize(entry.path()).unwrap();
        std::os::unix::fs::symlink(file, folder.path().join(entry.file_name())).unwrap();
    }
    compare(&model.to_string_lossy(), folder.path(), (LossType::Grpo, ImportanceLevel::Token));
}
