//! A policy from the outside: it samples, learns, stops, and resumes.

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
use corver_pretrained::{ChatTokenizer, Family, ModelConfig, PretrainedError};
use serde_json::json;
use tch::Device;

const SMALL: ModelConfig = ModelConfig {
    family: Family::Qwen3,
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
    let value = |rollout: &Rollout| {
        rollout.tokens.iter().map(|&t| if t == 2 { 1.0 } else { -0.15 }).collect()
    };
    rollouts.iter().map(value).collect()
}

fn advantages(rollouts: &[Rollout]) -> Advantages {
    Advantages { values: returns(rollouts), ..Advantages::default() }
}

/// Takes an update on rollouts of [`questions`].
fn update(
    policy: &mut Policy,
    rollouts: &[Rollout],
    advantages: Advantages,
) -> Result<corver_core::UpdateReport, corver_core::BoxError> {
    let batch = TrainingBatch { questions: &questions(), sampling: &sampling(), rollouts };
    policy.update(&batch, &Signal::Advantages(advantages))
}

/// As the step of a run does it; GRPO's advantages are the returns themselves.
fn step(policy: &mut Policy, n: u64) -> corver_core::UpdateReport {
    let rollouts = policy.sample(&questions(), &sampling(), n, &mut |_, _| ()).unwrap();
    let batch =
        TrainingBatch { questions: &questions(), sampling: &sampling(), rollouts: &rollouts };
    let values = Learner::prepare(policy, &batch).unwrap();
    let signal = match Estimator::of(policy.settings(), AdvantageSettings::default()) {
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
    let all = policy.model().lora_parameters().into_iter();
    all.flat_map(|(_, t)| Vec::<f32>::try_from(t.detach().contiguous().view(-1)).unwrap()).collect()
}

#[test]
fn rollouts_have_consistent_tokens_spans_and_text() {
    let mut policy = policy(fast()).with_system_prompt(Some("e".into()));
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
        let (after, report) = (share(&mut policy), last.unwrap());
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
    resumed_is_straight(LearnSettings { total_steps: 4, warmup_ratio: 0.25, ..fast() });
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
    // Wide enough for the adapters of the hidden states to have such moments.
    let lora = LoraSettings { r: 32, alpha: 64.0 };
    let optimizer = AdamWSettings { moments: MomentPrecision::Eight, ..AdamWSettings::default() };
    let settings = LearnSettings { total_steps: 4, lora, optimizer, ..fast() };
    let eight = resumed_is_straight(settings);
    let full = resumed_is_straight(LearnSettings {
        optimizer: AdamWSettings::with_f32_moments(),
        ..settings
    });
    assert_ne!(eight, full);
    let apart: f32 = eight.iter().zip(&full).map(|(a, b)| (a - b).abs()).sum();
    assert!(apart < 0.2 * full.iter().map(|x| x.abs()).sum::<f32>(), "{apart}");
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
    resumed_is_straight(settings);

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
    resumed_is_straight(LearnSettings { total_steps: 4, algorithm: Algorithm::Dpo, ..fast() });
}

/// Four steps in a row, and with another process after two of them; returns the adapters.
fn resumed_is_straight(settings: LearnSettings) -> Vec<f32> {
    let mut straight = policy(settings);
    for n in 0..4 {
        step(&mut straight, n);
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
    assert_eq!(weights(&straight), weights(&second));
    weights(&straight)
}

fn demonstrations() -> Vec<Demonstration> {
    let one = |(question, completion): (&str, &str)| Demonstration {
        question: question.into(),
        completion: completion.into(),
    };
    [("Q a", "cab"), ("Q bb b", "ccc a"), ("Q c", "b")].map(one).into()
}

#[test]
fn imitation_memorises_demonstrations() {
    let mut policy = policy(fast());
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
        "the end of an answer is learned too"
    );
    assert_eq!(policy.lengths(&demonstrations()).unwrap().len(), 3);
}

#[test]
fn resumed_cold_start_matches_uninterrupted_run() {
    let (mut straight, mut first, root) =
        (policy(fast()), policy(fast()), tempfile::tempdir().unwrap());
    for _ in 0..3 {
        straight.imitate(&demonstrations()).unwrap();
    }
    first.imitate(&demonstrations()).unwrap();
    let checkpoint = first.save_checkpoint(root.path(), 1).unwrap();
    let mut second = policy(fast());
    second.resume(&checkpoint).unwrap();
    for _ in 0..2 {
        second.imitate(&demonstrations()).unwrap();
    }
    assert_eq!(weights(&straight), weights(&second));
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
    let mut policy = warm().with_itself_as_reference().unwrap();
    assert_eq!(weights(&policy), weights(&cold));
    assert!(step(&mut policy, 0).kl.unwrap().abs() < 1e-6, "it is its own reference");
    assert!(step(&mut warm(), 0).kl.unwrap() > 1e-3, "the base model is far away");
    assert!(step(&mut policy, 1).kl.unwrap() > 1e-6, "and the reference stays behind");
}

#[test]
fn old_checkpoints_are_removed_and_adapter_loads() {
    let root = tempfile::tempdir().unwrap();
    let mut trained = policy(fast());
    for n in 0..4 {
        step(&mut trained, n);
        trained.save_checkpoint(root.path(), 2).unwrap();
    }
    trained.save_checkpoint(root.path(), 2).unwrap(); // again, over itself
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
        let named = error.to_string();
        assert!(name == "checksums.b3" || named.contains(&format!("{name} is damaged")), "{named}");
        assert_eq!((weights(&resumed), resumed.steps()), (before, 0));
        if name.starts_with("adapter") {
            let error = base().load_adapter(&checkpoint).unwrap_err();
            assert!(matches!(error, LearnError::Damaged { .. }), "{error}");
        }
        std::fs::write(&path, &whole).unwrap();
    }
    policy(fast()).resume(&checkpoint).unwrap();
    // A list that is cut off, or gone, protects nothing.
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

/// Any error or none: a flipped bit may be harmless. What must not happen is a crash.
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
        // The header of a tensor file, and some of what follows.
        let places = (0..whole.len().min(2_000))
            .step_by(41)
            .chain((2_000..whole.len()).step_by(whole.len() / 8 + 1));
        for place in places {
            let mut flipped = whole.clone();
            flipped[place] ^= 1 << (place % 8);
            std::fs::write(&path, &flipped).unwrap();
            read();
            std::fs::write(&path, &whole[..place]).unwrap();
            read();
        }
        std::fs::write(&path, &whole).unwrap();
    }
}

#[test]
fn more_iterations_move_policy_further() {
    let move_of = |num_iterations| {
        let mut policy =
            policy(LearnSettings { num_iterations, loss: LossSettings::default(), ..fast() });
        let (rollouts, before) = (
            policy.sample(&questions(), &sampling(), 1, &mut |_, _| ()).unwrap(),
            weights(&policy),
        );
        let report = update(&mut policy, &rollouts, advantages(&rollouts)).unwrap();
        assert_eq!(policy.steps(), 1);
        let moved: f32 = weights(&policy).iter().zip(&before).map(|(a, b)| (a - b).abs()).sum();
        (moved, report)
    };
    let ((once, first), (thrice, third)) = (move_of(1), move_of(3));
    assert!(thrice > 1.5 * once, "{once} {thrice}");
    assert_eq!(first.clip_ratio_low + first.clip_ratio_high, 0.0, "a ratio of 1");
    assert!(third.clip_ratio_low + third.clip_ratio_high > 0.0, "{third:?}");
}

#[test]
fn mini_batches_are_separate_optimiser_steps() {
    let report_of = |num_mini_batches| {
        let mut policy =
            policy(LearnSettings { num_mini_batches, loss: LossSettings::default(), ..fast() });
        let rollouts = policy.sample(&questions(), &sampling(), 1, &mut |_, _| ()).unwrap();
        let report = update(&mut policy, &rollouts, advantages(&rollouts)).unwrap();
        assert_eq!(policy.steps(), 1, "one step of the run");
        (report, weights(&policy))
    };
    let ((whole, once), (cut, often)) = (report_of(1), report_of(4));
    assert_eq!(whole.clip_ratio_low + whole.clip_ratio_high, 0.0, "a ratio of 1");
    assert!(cut.clip_ratio_low + cut.clip_ratio_high > 0.0, "{cut:?}");
    assert_ne!(once, often);
    assert_eq!(whole.mismatch.map(|mismatch| mismatch.ratio_max > 0.0), Some(true));
    assert!(cut.mismatch.is_some());
    let settings = LearnSettings { total_steps: 4, num_mini_batches: 2, ..fast() };
    resumed_is_straight(settings);
}

/// Finite weights whose products are not.
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
    let (mut policy, folder) = (policy(fast()), tempfile::tempdir().unwrap());
    policy.keep_failures(folder.path());
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
    assert!(
        update(&mut policy, &rollouts, advantages(&rollouts)).is_ok(),
        "and the policy can go on"
    );
    // The batch is there to be looked at.
    assert!(error.to_string().ends_with("not-finite-000000.json"), "{error}");
    let kept = std::fs::read_to_string(folder.path().join("not-finite-000000.json")).unwrap();
    let kept: serde_json::Value = serde_json::from_str(&kept).unwrap();
    assert_eq!(kept["rollouts"].as_array().unwrap().len(), rollouts.len());
    assert_eq!(
        (&kept["advantages"][3][0], &kept["advantages"][0][0]),
        (&json!(null), &json!(bad.values[0][0]))
    );
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
