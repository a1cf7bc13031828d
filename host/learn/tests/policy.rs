//! Tests of the public policy: it samples, learns, stops and resumes.

mod common;

use common::write_folder;
use corver_core::compat::spans_of_pieces;
use corver_core::{
    AdvantageSettings, Advantages, Algorithm, Compatibility, Demonstration, Estimator, Learner,
    PpoSettings, Question, Rollout, Sampler, Sampling, ScoredCompletion, Signal, TrainingBatch,
};
use corver_learn::{
    AdamWSettings, LearnError, LearnSettings, LoraSettings, LossSettings, Model, MomentPrecision,
    Policy, Precision, checkpoints,
};
use corver_pretrained::{ChatTokenizer, ModelConfig, ModelFamily, PretrainedError};
use serde_json::json;
use tch::Device;

const SMALL: ModelConfig = ModelConfig {
    family: ModelFamily::Qwen3,
    vocab_size: 12,
    hidden_size: 256, // wide enough for the small random embedding to tell tokens apart
    intermediate_size: 32,
    num_layers: 2,
    num_heads: 4,
    num_kv_heads: 2,
    head_dim: 8,
    max_positions: 64,
    norm_eps: 1e-6,
    rope_theta: 10_000.0,
    rope_scaling: None,
    tie_embeddings: true,
};

fn policy(settings: LearnSettings) -> Policy {
    let folder = tempfile::tempdir().unwrap();
    write_folder(folder.path(), &SMALL);
    let model = Model::load(folder.path(), Precision::F32, Device::Cpu).unwrap();
    Policy::new(model, ChatTokenizer::load(folder.path()).unwrap(), settings, 1).unwrap()
}

fn base() -> Model {
    let folder = tempfile::tempdir().unwrap();
    write_folder(folder.path(), &SMALL);
    Model::load(folder.path(), Precision::F32, Device::Cpu).unwrap()
}

fn fast() -> LearnSettings {
    LearnSettings {
        lora: LoraSettings { r: 4, alpha: 8.0 },
        loss: LossSettings { beta: 0.01, ..LossSettings::default() },
        learning_rate: 2e-2,
        warmup_ratio: 0.0,
        total_steps: 40,
        optimizer: AdamWSettings::with_f32_moments(),
        ..LearnSettings::default()
    }
}

fn questions() -> Vec<Question> {
    ["Q a", "Q bb b"]
        .map(|q| Question { question: q.into(), golds: vec!["a".into()], ..Question::default() })
        .into()
}

fn sampling() -> Sampling {
    Sampling { num_generations: 8, max_completion_length: 6, ..Sampling::default() }
}

/// Rewards the letter `c`, token by token.
fn returns(rollouts: &[Rollout]) -> Vec<Vec<f64>> {
    let mut returns = Vec::new();
    for rollout in rollouts {
        let values = rollout.tokens.iter().map(|&t| if t == 2 { 1.0 } else { -0.15 });
        returns.push(values.collect());
    }
    returns
}

fn advantages(rollouts: &[Rollout]) -> Advantages {
    Advantages { values: returns(rollouts), ..Advantages::default() }
}

/// Updates the policy on rollouts of [`questions`].
fn update(
    policy: &mut Policy,
    rollouts: &[Rollout],
    advantages: Advantages,
) -> Result<corver_core::UpdateReport, corver_core::BoxError> {
    let batch = TrainingBatch { questions: &questions(), sampling: &sampling(), rollouts };
    policy.update(&batch, &Signal::Advantages(advantages))
}

/// Takes a training step. GRPO's advantages are the returns themselves.
fn step(policy: &mut Policy, n: u64) -> corver_core::UpdateReport {
    let rollouts = policy.sample(&questions(), &sampling(), n, &mut |_, _| ()).unwrap();
    let batch =
        TrainingBatch { questions: &questions(), sampling: &sampling(), rollouts: &rollouts };
    let values = Learner::prepare(policy, &batch).unwrap();
    let signal = match Estimator::new(policy.settings(), AdvantageSettings::default()) {
        Estimator::Grpo(_) => Signal::Advantages(advantages(&rollouts)),
        estimator => {
            let mut completions = Vec::new();
            for returns in returns(&rollouts) {
                let token_rewards = vec![0.0; returns.len()];
                let completion = ScoredCompletion { returns, token_rewards, ..Default::default() };
                completions.push(completion);
            }
            estimator.signal(&completions, values.as_deref(), sampling().num_generations).unwrap()
        }
    };
    policy.update(&batch, &signal).unwrap()
}

fn weights(policy: &Policy) -> Vec<f32> {
    let mut weights = Vec::new();
    for (_, tensor) in policy.model().lora_parameters() {
        let flat = tensor.detach().contiguous().view(-1);
        weights.extend(Vec::<f32>::try_from(flat).unwrap());
    }
    weights
}

#[test]
fn rollouts_have_consistent_tokens_spans_and_text() {
    let mut policy = policy(fast());
    policy.set_system_prompt("e");
    let rollouts = policy.sample(&questions(), &sampling(), 3, &mut |_, _| ()).unwrap();
    assert_eq!(rollouts.iter().map(|r| r.question).collect::<Vec<_>>(), [[0; 8], [1; 8]].concat());
    for rollout in &rollouts {
        assert_eq!(rollout.tokens.len(), rollout.log_probs.len());
        assert_eq!(rollout.tokens.len(), rollout.token_spans.len());
        assert_eq!(
            rollout.finished,
            [8, 9].contains(rollout.tokens.last().unwrap()) && *rollout.tokens.last().unwrap() == 9
        );
        assert!(rollout.finished || rollout.tokens.len() == 6);
        let visible: usize = rollout.token_spans.iter().flatten().map(|s| s.len()).sum();
        assert_eq!(visible, rollout.text.chars().count());
    }
    assert_eq!(rollouts, policy.sample(&questions(), &sampling(), 3, &mut |_, _| ()).unwrap());
}

#[test]
fn policy_learns_rewarded_token() {
    for algorithm in
        [Algorithm::Grpo, Algorithm::Reinforce, Algorithm::Rloo, Algorithm::Ppo, Algorithm::Dpo]
    {
        let ppo = PpoSettings { value_learning_rate: 1e-2, ..PpoSettings::default() };
        let mut policy = policy(LearnSettings { algorithm, ppo, ..fast() });
        let share = |policy: &mut Policy| {
            let rollouts = policy.sample(&questions(), &sampling(), 1000, &mut |_, _| ()).unwrap();
            let tokens: Vec<u32> = rollouts.into_iter().flat_map(|r| r.tokens).collect();
            tokens.iter().filter(|&&t| t == 2).count() as f64 / tokens.len() as f64
        };
        let before = share(&mut policy);
        let mut last = None;
        for n in 0..25 {
            last = Some(step(&mut policy, n));
        }
        let after = share(&mut policy);
        let report = last.unwrap();
        assert!(before < 0.3 && after > 0.7, "{algorithm:?}: {before} {after}");
        assert!(report.kl.unwrap() > 0.0 && report.entropy < 2.0, "{algorithm:?}: {report:?}");
        assert_eq!(report.critic.is_some(), algorithm == Algorithm::Ppo);
        assert_eq!(report.preference.is_some(), algorithm == Algorithm::Dpo);
        policy.set_adapters(false);
        assert!(
            (share(&mut policy) - before).abs() < 1e-9,
            "without adapters it is the base model again"
        );
    }
}

#[test]
fn resume_matches_uninterrupted_run() {
    check_resume(LearnSettings { total_steps: 4, warmup_ratio: 0.25, ..fast() });
}

#[test]
fn extended_run_follows_longer_schedule() {
    let settings = |total_steps| LearnSettings { total_steps, ..fast() };
    let root = tempfile::tempdir().unwrap();
    let mut finished = policy(settings(4));
    let rates: Vec<f64> = (0..4).map(|n| step(&mut finished, n).learning_rate / 2e-2).collect();
    // Half a cosine without warm-up: (1 + cos(π · done / 4)) / 2.
    let expected = [1.0, 0.853_553, 0.5, 0.146_447];
    assert!(
        rates.iter().zip(expected).all(|(rate, expected)| (rate - expected).abs() < 1e-6),
        "{rates:?}"
    );
    let checkpoint = finished.save_checkpoint(root.path(), 1).unwrap();

    let mut extended = policy(settings(12));
    extended.resume(&checkpoint).unwrap();
    assert_eq!((extended.steps(), weights(&extended)), (4, weights(&finished)));
    // A third of twelve steps is done: (1 + cos(π / 3)) / 2.
    let rate = step(&mut extended, 4).learning_rate / 2e-2;
    assert!((rate - 0.75).abs() < 1e-9, "{rate}");
}

#[test]
fn resume_with_eight_bit_moments_matches_uninterrupted_run() {
    // The rank is large enough for some adapters to have 8-bit moments.
    let lora = LoraSettings { r: 32, alpha: 64.0 };
    let optimizer = AdamWSettings { moments: MomentPrecision::Eight, ..AdamWSettings::default() };
    let settings = LearnSettings { total_steps: 4, lora, optimizer, ..fast() };
    let eight = check_resume(settings);
    let full =
        check_resume(LearnSettings { optimizer: AdamWSettings::with_f32_moments(), ..settings });
    assert_ne!(eight, full);
    let difference: f32 = eight.iter().zip(&full).map(|(a, b)| (a - b).abs()).sum();
    assert!(difference < 0.2 * full.iter().map(|x| x.abs()).sum::<f32>(), "{difference}");
}

#[test]
fn resume_with_critic_matches_uninterrupted_run() {
    let ppo = PpoSettings { value_learning_rate: 1e-2, ..PpoSettings::default() };
    let settings = LearnSettings {
        total_steps: 4,
        algorithm: Algorithm::Ppo,
        ppo,
        num_iterations: 2,
        ..fast()
    };
    check_resume(settings);

    let root = tempfile::tempdir().unwrap();
    let mut policy = policy(settings);
    let report = step(&mut policy, 0);
    assert!(report.critic.unwrap().loss > 0.0, "{report:?}");
    let checkpoint = policy.save_checkpoint(root.path(), 1).unwrap();
    std::fs::remove_file(checkpoint.join("critic.safetensors")).unwrap();
    let error = self::policy(settings).resume(&checkpoint).unwrap_err();
    assert!(error.to_string().contains("critic.safetensors"), "{error}");
}

#[test]
fn resume_with_pairs_matches_uninterrupted_run() {
    check_resume(LearnSettings { total_steps: 4, algorithm: Algorithm::Dpo, ..fast() });
}

/// Compares four steps of one policy with two steps of a policy and two of another one that resumes.
/// Returns the adapters.
fn check_resume(settings: LearnSettings) -> Vec<f32> {
    let mut uninterrupted = policy(settings);
    for n in 0..4 {
        step(&mut uninterrupted, n);
    }

    let root = tempfile::tempdir().unwrap();
    let mut first = policy(settings);
    for n in 0..2 {
        step(&mut first, n);
        first.save_checkpoint(root.path(), 1).unwrap();
    }
    drop(first);
    let mut second = policy(settings);
    let newest = checkpoints(root.path()).unwrap().pop().unwrap();
    assert_eq!(newest.file_name().unwrap(), "step-000002");
    second.resume(&newest).unwrap();
    assert_eq!(second.steps(), 2);
    for n in 2..4 {
        step(&mut second, n);
    }
    assert_eq!(weights(&uninterrupted), weights(&second));
    weights(&uninterrupted)
}

fn demonstrations() -> Vec<Demonstration> {
    let mut demonstrations = Vec::new();
    for (question, completion) in [("Q a", "cab"), ("Q bb b", "ccc a"), ("Q c", "b")] {
        demonstrations
            .push(Demonstration { question: question.into(), completion: completion.into() });
    }
    demonstrations
}

#[test]
fn imitation_memorises_demonstrations() {
    // At twice this rate the last loss depends on the processor's rounding.
    let mut policy = policy(LearnSettings { learning_rate: 1e-2, ..fast() });
    let first = policy.imitate(&demonstrations()).unwrap();
    let mut last = first;
    for _ in 0..39 {
        last = policy.imitate(&demonstrations()).unwrap();
    }
    assert!(first.loss > 1.5 && last.loss < 0.2, "{first:?} {last:?}");
    assert_eq!((policy.steps(), last.kl, last.mismatch), (40, None, None));
    let question = Question { question: "Q a".into(), golds: Vec::new(), ..Question::default() };
    let answer =
        policy.sample(&[question], &Sampling::greedy(8), 0, &mut |_, _| ()).unwrap().remove(0);
    assert_eq!(
        (answer.text.as_str(), answer.finished),
        ("cab", true),
        "the stop token is learned too"
    );
    assert_eq!(policy.demonstration_lengths(&demonstrations()).unwrap().len(), 3);
}

#[test]
fn resumed_cold_start_matches_uninterrupted_run() {
    let root = tempfile::tempdir().unwrap();
    let mut uninterrupted = policy(fast());
    for _ in 0..3 {
        uninterrupted.imitate(&demonstrations()).unwrap();
    }
    let mut first = policy(fast());
    first.imitate(&demonstrations()).unwrap();
    let checkpoint = first.save_checkpoint(root.path(), 1).unwrap();
    let mut second = policy(fast());
    second.resume(&checkpoint).unwrap();
    for _ in 0..2 {
        second.imitate(&demonstrations()).unwrap();
    }
    assert_eq!(weights(&uninterrupted), weights(&second));
}

#[test]
fn policy_from_adapter_uses_adapter_as_reference() {
    let root = tempfile::tempdir().unwrap();
    let mut cold = policy(fast());
    for _ in 0..5 {
        cold.imitate(&demonstrations()).unwrap();
    }
    let adapter = cold.save_checkpoint(root.path(), 1).unwrap();
    let warm = || {
        let folder = tempfile::tempdir().unwrap();
        write_folder(folder.path(), &SMALL);
        let mut model = Model::load(folder.path(), Precision::F32, Device::Cpu).unwrap();
        model.load_adapter(&adapter).unwrap();
        Policy::new(model, ChatTokenizer::load(folder.path()).unwrap(), fast(), 9).unwrap()
    };
    let mut policy = warm().freeze_as_reference().unwrap();
    assert_eq!(weights(&policy), weights(&cold));
    assert!(step(&mut policy, 0).kl.unwrap().abs() < 1e-6, "it is its own reference");
    assert!(step(&mut warm(), 0).kl.unwrap() > 1e-3, "the base model differs");
    assert!(step(&mut policy, 1).kl.unwrap() > 1e-6, "the reference does not change");
}

#[test]
fn old_checkpoints_are_removed_and_adapter_loads() {
    let root = tempfile::tempdir().unwrap();
    let mut trained = policy(fast());
    for n in 0..4 {
        step(&mut trained, n);
        trained.save_checkpoint(root.path(), 2).unwrap();
    }
    trained.save_checkpoint(root.path(), 2).unwrap(); // replaces itself
    let mut names: Vec<_> =
        std::fs::read_dir(root.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["step-000003", "step-000004"]);

    let folder = tempfile::tempdir().unwrap();
    write_folder(folder.path(), &SMALL);
    let mut model = Model::load(folder.path(), Precision::F32, Device::Cpu).unwrap();
    model.load_adapter(&root.path().join("step-000004")).unwrap();
    let loaded =
        Policy::new(model, ChatTokenizer::load(folder.path()).unwrap(), fast(), 9).unwrap();
    assert_eq!(weights(&loaded), weights(&trained));
}

#[test]
fn unfinished_checkpoints_of_killed_processes_are_removed() {
    let root = tempfile::tempdir().unwrap();
    let own = [".notes.tmp", ".step-000002.bak", ".step-2.tmp", "step-000002.tmp"];
    for name in [".step-000002.tmp", ".step-000009.old"].iter().chain(&own) {
        std::fs::create_dir(root.path().join(name)).unwrap();
        std::fs::write(root.path().join(name).join("state.json"), "").unwrap();
    }
    policy(fast()).save_checkpoint(root.path(), 1).unwrap();
    let mut names: Vec<_> =
        std::fs::read_dir(root.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    let expected =
        [".notes.tmp", ".step-000002.bak", ".step-2.tmp", "step-000000", "step-000002.tmp"];
    assert_eq!(names, expected);
}

#[test]
fn flipped_checkpoint_bit_is_detected_and_named() {
    let root = tempfile::tempdir().unwrap();
    let mut trained = policy(fast());
    step(&mut trained, 0);
    let checkpoint = trained.save_checkpoint(root.path(), 1).unwrap();
    for name in [
        "adapter_model.safetensors",
        "adapter_config.json",
        "optimizer.safetensors",
        "state.json",
        "checksums.b3",
    ] {
        let path = checkpoint.join(name);
        let whole = std::fs::read(&path).unwrap();
        let mut flipped = whole.clone();
        let middle = whole.len() / 2;
        flipped[middle] ^= 1;
        std::fs::write(&path, &flipped).unwrap();
        let mut resumed = policy(fast());
        let before = weights(&resumed);
        let error = resumed.resume(&checkpoint).unwrap_err();
        let message = error.to_string();
        assert!(
            name == "checksums.b3" || message.contains(&format!("{name} is damaged")),
            "{message}"
        );
        assert_eq!((weights(&resumed), resumed.steps()), (before, 0));
        if name.starts_with("adapter") {
            let error = base().load_adapter(&checkpoint).unwrap_err();
            assert!(matches!(error, LearnError::Damaged { .. }), "{error}");
        }
        std::fs::write(&path, &whole).unwrap();
    }
    policy(fast()).resume(&checkpoint).unwrap();
    // A truncated or missing list is an error.
    let list = checkpoint.join("checksums.b3");
    std::fs::write(&list, "").unwrap();
    assert!(matches!(policy(fast()).resume(&checkpoint).unwrap_err(), LearnError::Damaged { .. }));
    std::fs::remove_file(&list).unwrap();
    for error in [
        policy(fast()).resume(&checkpoint).unwrap_err(),
        base().load_adapter(&checkpoint).unwrap_err(),
    ] {
        assert!(matches!(error, LearnError::Pretrained(PretrainedError::Io { .. })), "{error}");
    }
}

#[test]
fn non_finite_weights_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    write_folder(folder.path(), &SMALL);
    let path = folder.path().join("model.safetensors");
    let whole = std::fs::read(&path).unwrap();
    for wrong in [f32::NAN, f32::NEG_INFINITY] {
        let mut bytes = whole.clone();
        let last = bytes.len() - 4;
        bytes[last..].copy_from_slice(&wrong.to_le_bytes());
        std::fs::write(&path, bytes).unwrap();
        let error = Model::load(folder.path(), Precision::F32, Device::Cpu).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("weight`: expected finite numbers, got NaN or infinite ones"),
            "{error}"
        );
    }
    std::fs::write(&path, whole).unwrap();
    let config = folder.path().join("config.json");
    let good = std::fs::read_to_string(&config).unwrap();
    let mut wrong: serde_json::Value = serde_json::from_str(&good).unwrap();
    for (key, value) in [
        ("rope_theta", json!(0)),
        ("rope_theta", json!(-1.0)),
        ("rms_norm_eps", json!(0)),
        ("hidden_size", json!(1u64 << 40)),
    ] {
        let before = std::mem::replace(&mut wrong[key], value);
        std::fs::write(&config, wrong.to_string()).unwrap();
        let error = Model::load(folder.path(), Precision::F32, Device::Cpu).unwrap_err();
        assert!(
            matches!(error, LearnError::Pretrained(PretrainedError::InvalidModel(_))),
            "{error}"
        );
        wrong[key] = before;
    }
}

/// Loads and samples from damaged folders. Errors are fine, and so is success, because a flipped bit
/// may be harmless; only a crash fails the test.
#[test]
fn damaged_model_folders_never_crash() {
    let folder = tempfile::tempdir().unwrap();
    write_folder(folder.path(), &SMALL);
    let mut adapted = base();
    adapted.add_lora(&fast().lora, 1).unwrap();
    adapted.save_adapter(folder.path()).unwrap();
    let read = || {
        let mut model = Model::load(folder.path(), Precision::F32, Device::Cpu).ok();
        let tokenizer = ChatTokenizer::load(folder.path()).ok();
        let _ = model.as_mut().map(|model| model.load_adapter(folder.path()));
        if let (Some(model), Some(tokenizer)) = (model, tokenizer)
            && let Ok(mut policy) = Policy::new(model, tokenizer, fast(), 1)
        {
            let _ = policy.sample(&questions()[..1], &sampling(), 0, &mut |_, _| ());
        }
    };
    for entry in std::fs::read_dir(folder.path()).unwrap().collect::<Vec<_>>() {
        let path = entry.unwrap().path();
        let whole = std::fs::read(&path).unwrap();
        // Offsets in the header of a tensor file, and some in its data.
        let offsets = (0..whole.len().min(2_000))
            .step_by(41)
            .chain((2_000..whole.len()).step_by(whole.len() / 8 + 1));
        for offset in offsets {
            let mut flipped = whole.clone();
            flipped[offset] ^= 1 << (offset % 8);
            std::fs::write(&path, &flipped).unwrap();
            read();
            std::fs::write(&path, &whole[..offset]).unwrap();
            read();
        }
        std::fs::write(&path, &whole).unwrap();
    }
}

#[test]
fn more_iterations_move_policy_further() {
    let update_with = |num_iterations| {
        let mut policy =
            policy(LearnSettings { num_iterations, loss: LossSettings::default(), ..fast() });
        let rollouts = policy.sample(&questions(), &sampling(), 1, &mut |_, _| ()).unwrap();
        let before = weights(&policy);
        let report = update(&mut policy, &rollouts, advantages(&rollouts)).unwrap();
        assert_eq!(policy.steps(), 1);
        let moved: f32 = weights(&policy).iter().zip(&before).map(|(a, b)| (a - b).abs()).sum();
        (moved, report)
    };
    let (moved_once, once) = update_with(1);
    let (moved_thrice, thrice) = update_with(3);
    assert!(moved_thrice > 1.5 * moved_once, "{moved_once} {moved_thrice}");
    assert_eq!(once.clip_ratio_low + once.clip_ratio_high, 0.0, "a ratio of 1");
    assert!(thrice.clip_ratio_low + thrice.clip_ratio_high > 0.0, "{thrice:?}");
}

#[test]
fn mini_batches_are_separate_optimiser_steps() {
    let update_with = |num_mini_batches| {
        let mut policy =
            policy(LearnSettings { num_mini_batches, loss: LossSettings::default(), ..fast() });
        let rollouts = policy.sample(&questions(), &sampling(), 1, &mut |_, _| ()).unwrap();
        let report = update(&mut policy, &rollouts, advantages(&rollouts)).unwrap();
        assert_eq!(policy.steps(), 1, "one step of the run");
        (report, weights(&policy))
    };
    let (single, single_weights) = update_with(1);
    let (several, several_weights) = update_with(4);
    assert_eq!(single.clip_ratio_low + single.clip_ratio_high, 0.0, "a ratio of 1");
    assert!(several.clip_ratio_low + several.clip_ratio_high > 0.0, "{several:?}");
    assert_ne!(single_weights, several_weights);
    assert_eq!(single.mismatch.map(|mismatch| mismatch.ratio_max > 0.0), Some(true));
    assert!(several.mismatch.is_some());
    let settings = LearnSettings { total_steps: 4, num_mini_batches: 2, ..fast() };
    check_resume(settings);
}

/// The weights are finite, but their products are not.
#[test]
fn non_finite_logits_stop_sampling() {
    let mut model = base();
    model.add_lora(&fast().lora, 1).unwrap();
    for (_, tensor) in model.lora_parameters() {
        let _ = tensor.set_requires_grad(false).fill_(1e30);
    }
    let folder = tempfile::tempdir().unwrap();
    write_folder(folder.path(), &SMALL);
    let mut policy =
        Policy::new(model, ChatTokenizer::load(folder.path()).unwrap(), fast(), 1).unwrap();
    let error = policy.sample(&questions(), &sampling(), 0, &mut |_, _| ()).unwrap_err();
    assert!(matches!(error.downcast_ref(), Some(LearnError::Logits)), "{error}");
}

#[test]
fn non_finite_loss_leaves_policy_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let mut policy = policy(fast());
    policy.dump_failed_batches_to(folder.path());
    let rollouts = policy.sample(&questions(), &sampling(), 0, &mut |_, _| ()).unwrap();
    let mut bad = advantages(&rollouts);
    bad.values[3][0] = f64::NAN;
    let before = weights(&policy);
    let error = update(&mut policy, &rollouts, bad.clone()).unwrap_err();
    assert!(
        matches!(error.downcast_ref(), Some(LearnError::NotFinite { what: "loss", step: 0, .. })),
        "{error}"
    );
    assert_eq!((weights(&policy), policy.steps()), (before, 0));
    assert!(update(&mut policy, &rollouts, advantages(&rollouts)).is_ok(), "later updates work");
    // The batch is written for inspection.
    assert!(error.to_string().ends_with("not-finite-000000.json"), "{error}");
    let text = std::fs::read_to_string(folder.path().join("not-finite-000000.json")).unwrap();
    let dump: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(dump["rollouts"].as_array().unwrap().len(), rollouts.len());
    assert_eq!(dump["advantages"][3][0], json!(null));
    assert_eq!(dump["advantages"][0][0], json!(bad.values[0][0]));
}

#[test]
fn mismatching_rollouts_and_advantages_are_rejected() {
    let mut policy = policy(fast());
    let rollouts = policy.sample(&questions(), &sampling(), 0, &mut |_, _| ()).unwrap();
    let good = advantages(&rollouts);
    assert!(update(&mut policy, &rollouts[1..], good.clone()).is_err(), "row count");
    let mut strange = rollouts.clone();
    strange[0].question = 7;
    assert!(
        update(&mut policy, &strange, good.clone())
            .unwrap_err()
            .to_string()
            .contains("rollout.question")
    );
    let mut short = good.clone();
    short.values[0].pop();
    assert!(update(&mut policy, &rollouts, short).is_err(), "token count");
}

#[test]
fn checkpoint_of_other_settings_is_rejected() {
    let root = tempfile::tempdir().unwrap();
    let folder = policy(fast()).save_checkpoint(root.path(), 1).unwrap();
    let error = policy(LearnSettings { warmup_ratio: 0.5, ..fast() }).resume(&folder).unwrap_err();
    assert!(error.to_string().contains("settings"), "{error}");
    let longer = LearnSettings { total_steps: fast().total_steps + 7, ..fast() };
    assert!(policy(longer).resume(&folder).is_ok(), "a run may be made longer");
    std::fs::remove_file(folder.join("optimizer.safetensors")).unwrap();
    assert!(
        policy(fast()).resume(&folder).unwrap_err().to_string().contains("optimizer.safetensors")
    );
}

#[test]
fn reference_compatibility_uses_single_token_spans() {
    let folder = tempfile::tempdir().unwrap();
    write_folder(folder.path(), &SMALL);
    let tokenizer = ChatTokenizer::load(folder.path()).unwrap();
    let mut policy = policy(fast()).with_compatibility(Compatibility::Reference);
    let sampling =
        Sampling { num_generations: 4, max_completion_length: 12, ..Sampling::default() };
    let question =
        Question { question: "a b".into(), golds: vec!["c".into()], ..Question::default() };
    for rollout in policy.sample(&[question], &sampling, 3, &mut |_, _| ()).unwrap() {
        let pieces = tokenizer.token_texts(&rollout.tokens).unwrap();
        assert_eq!(rollout.token_spans, spans_of_pieces(&pieces));
    }
}

#[test]
fn stop_text_ends_completion() {
    let free = policy(fast()).sample(&questions(), &sampling(), 5, &mut |_, _| ()).unwrap();
    let long = free.iter().position(|rollout| rollout.text.len() > 3).unwrap();
    let stop = free[long].text[1..3].to_owned();
    let folder = tempfile::tempdir().unwrap();
    write_folder(folder.path(), &SMALL);
    let tokenizer = || ChatTokenizer::load(folder.path()).unwrap();
    let stopping = tokenizer().with_stop_texts(vec!["never".into(), stop.clone()]).unwrap();
    let model = Model::load(folder.path(), Precision::F32, Device::Cpu).unwrap();
    let mut policy = Policy::new(model, stopping, fast(), 1).unwrap();
    let stopped = policy.sample(&questions(), &sampling(), 5, &mut |_, _| ()).unwrap();
    assert!(stopped[long].finished && stopped[long].text.ends_with(&stop));
    for (free, stopped) in free.iter().zip(&stopped) {
        let end = free.text.find(&stop).map_or(free.text.len(), |at| at + stop.len());
        assert_eq!(stopped.text, free.text[..end]);
        assert_eq!(stopped.tokens, free.tokens[..stopped.tokens.len()]);
        assert_eq!(stopped.finished, free.finished || free.text.contains(&stop));
    }
    let error = tokenizer().with_stop_texts(vec![String::new()]).unwrap_err();
    assert!(error.to_string().contains("policy.stop"), "{error}");
}
