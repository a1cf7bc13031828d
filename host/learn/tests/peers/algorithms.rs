//! Compares one step of RLOO, DPO and SFT with TRL's trainers, which `algorithms.py` runs.

use std::path::{Path, PathBuf};
use std::process::Command;

use corver_core::{
    AdvantageSettings, Algorithm, Demonstration, Estimator, Learner, Sampler, Sampling,
    ScoredCompletion, Signal, TrainingBatch,
};
use corver_learn::{
    AdamWSettings, LearnSettings, LoraSettings, LossSettings, LossType, Model, Policy, Precision,
};
use corver_pretrained::{ChatTokenizer, ModelFamily};
use serde_json::{Value, json};
use tch::Device;

use super::{add_random_b, config, questions, rollouts_json, write_model};

fn settings(algorithm: Algorithm) -> LearnSettings {
    // TRL's RLOO sums over the tokens of a completion, which is dr_grpo times a constant. Its loss has
    // no KL term.
    let rloo = LossSettings { loss_type: LossType::DrGrpo, beta: 0.0, ..LossSettings::default() };
    LearnSettings {
        algorithm,
        lora: LoraSettings { r: 4, alpha: 8.0 },
        loss: if algorithm == Algorithm::Rloo { rloo } else { LossSettings::default() },
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
    }
}

/// Returns a policy whose adapters change the output, and writes them to `before`.
fn policy(folder: &Path, algorithm: Algorithm) -> Policy {
    let mut model = Model::load(folder, Precision::F32, Device::Cpu).unwrap();
    let settings = settings(algorithm);
    model.add_lora(&settings.lora, 1).unwrap();
    add_random_b(&model);
    model.save_adapter(&folder.join("before")).unwrap();
    Policy::new(model, ChatTokenizer::load(folder).unwrap(), settings, 1).unwrap()
}

/// Takes a step on samples. All tokens of a completion have the same reward, as in TRL.
fn on_samples(folder: &Path, algorithm: Algorithm) -> Value {
    let mut policy = policy(folder, algorithm);
    let sampling = Sampling { num_generations: 4, max_completion_length: 9, ..Sampling::default() };
    let rollouts = policy.sample(&questions(), &sampling, 5, &mut |_, _| ()).unwrap();
    let reward = |n: usize| ((n * 5) % 11) as f64 / 4.0 - 1.2;
    let returns: Vec<Vec<f64>> =
        rollouts.iter().enumerate().map(|(n, r)| vec![reward(n); r.tokens.len()]).collect();
    let estimator = Estimator::new(policy.settings(), AdvantageSettings::default());
    let mut completions = Vec::new();
    for returns in returns {
        let token_rewards = vec![0.0; returns.len()];
        completions.push(ScoredCompletion { returns, token_rewards, ..Default::default() });
    }
    let signal = estimator.signal(&completions, None, sampling.num_generations).unwrap();
    let batch = TrainingBatch { questions: &questions(), sampling: &sampling, rollouts: &rollouts };
    let report = policy.update(&batch, &signal).unwrap();
    // The peer's DPO takes the chosen completions from the signs of the advantages.
    let mut advantages: Vec<Vec<f64>> =
        rollouts.iter().map(|rollout| vec![0.0; rollout.tokens.len()]).collect();
    match signal {
        Signal::Advantages(of_tokens) => advantages = of_tokens.values,
        Signal::Pairs(pairs) => {
            for pair in pairs {
                advantages[pair.chosen].fill(1.0);
                advantages[pair.rejected].fill(-1.0);
            }
        }
    }
    policy.model().save_adapter(&folder.join("after")).unwrap();
    let prompt = |question: &corver_core::Question| {
        policy.tokenizer().prompt(None, &question.question).unwrap()
    };
    let prompts: Vec<Vec<u32>> = questions().iter().map(prompt).collect();
    json!({
        "algorithm": algorithm,
        "settings": policy.settings(),
        "prompts": prompts,
        "report": { "loss": report.loss, "grad_norm": report.grad_norm },
        "rollouts": rollouts_json(&rollouts, &advantages),
        "max_completion_length": sampling.max_completion_length,
    })
}

/// Takes a step on demonstrations.
fn on_demonstrations(folder: &Path) -> Value {
    let mut policy = policy(folder, Algorithm::Grpo);
    let demonstrations = [("abcab", "ttab"), ("tsrq", "k"), ("kkkkkkkkl", "abcdefgh")];
    let demonstrations = demonstrations.map(|(question, completion)| Demonstration {
        question: question.into(),
        completion: completion.into(),
    });
    let report = policy.imitate(&demonstrations).unwrap();
    policy.model().save_adapter(&folder.join("after")).unwrap();
    let texts: Vec<[&String; 2]> =
        demonstrations.iter().map(|pair| [&pair.question, &pair.completion]).collect();
    json!({
        "algorithm": "sft",
        "settings": policy.settings(),
        "report": { "loss": report.loss, "grad_norm": report.grad_norm },
        "demonstrations": texts,
    })
}

#[test]
#[ignore = "needs transformers, peft and trl: make test-peers"]
fn rloo_dpo_and_sft_steps_match_trl() {
    let python = PathBuf::from(std::env::var_os("CORVER_PEERS").expect("make test-peers sets it"));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/algorithms.py");
    for name in ["rloo", "dpo", "sft"] {
        let folder = tempfile::tempdir().unwrap();
        write_model(folder.path(), config(ModelFamily::Qwen3, 2, true, None));
        let computed = match name {
            "rloo" => on_samples(folder.path(), Algorithm::Rloo),
            "dpo" => on_samples(folder.path(), Algorithm::Dpo),
            _ => on_demonstrations(folder.path()),
        };
        std::fs::write(folder.path().join("computed.json"), computed.to_string()).unwrap();
        let output = Command::new(&python).arg(&script).arg(folder.path()).output().unwrap();
        let report = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success(),
            "{name}: {report}\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
        eprintln!("{name}: {}", report.trim());
    }
}
