use super::*;
use crate::testing::{tiny, with_random_adapter};
use corver_core::update::PreferenceReport;
use corver_core::{
    AdamWSettings, Advantages, DpoSettings, LoraSettings, LossSettings, LossType, Mismatch,
    OldLogProbs, Rollout,
};

fn rollout(question: usize, tokens: &[u32], log_probs: f32) -> Rollout {
    Rollout {
        question,
        tokens: tokens.into(),
        log_probs: vec![log_probs; tokens.len()],
        text: String::new(),
        token_spans: vec![None; tokens.len()],
        finished: true,
    }
}

/// Prompts, rollouts and advantages.
type Data = (Vec<Vec<u32>>, Vec<Rollout>, Vec<Vec<f64>>);

/// Three rows of different lengths, and one without tokens.
fn data() -> Data {
    let prompts = vec![vec![1, 2, 3], vec![4, 5, 6, 7, 8]];
    let rollouts = vec![
        rollout(0, &[9, 10, 11, 12], -3.0),
        rollout(0, &[13, 2], -3.2),
        rollout(1, &[3, 17, 5], -2.9),
        rollout(1, &[], 0.0),
    ];
    let advantages =
        vec![vec![0.5, -1.0, 2.0, 0.25], vec![-0.5, 1.5], vec![1.0, 1.0, -2.0], vec![]];
    (prompts, rollouts, advantages)
}

fn run(
    model: &mut Model,
    (prompts, rollouts, advantages): &Data,
    settings: &LearnSettings,
) -> Gradient {
    let rows = rows(prompts, rollouts);
    let mut prepared = prepare(model, None, &rows, settings, 0.8, 10).unwrap();
    gradient_of(model, &mut prepared, &rows, advantages, settings)
}

fn gradient_of(
    model: &mut Model,
    prepared: &mut PreparedUpdate,
    rows: &[TrainingRow<'_>],
    values: &[Vec<f64>],
    settings: &LearnSettings,
) -> Gradient {
    let advantages = Advantages { values: values.to_vec(), ..Advantages::default() };
    let signs: Vec<f64> = values.iter().map(|row| row.first().copied().unwrap_or(0.0)).collect();
    let objective = match settings.algorithm {
        Algorithm::Dpo => Objective::Preference(&signs),
        _ => Objective::Clipped(&advantages),
    };
    let context = context(prepared, rows, objective, settings);
    gradient(model, prepared, 0, &context).unwrap()
}

fn context<'a>(
    prepared: &PreparedUpdate,
    rows: &'a [TrainingRow<'a>],
    objective: Objective<'a>,
    settings: &'a LearnSettings,
) -> UpdateContext<'a> {
    let num_questions = prepared.num_questions();
    UpdateContext { rows, objective, settings, temperature: 0.8, critic: None, num_questions }
}

fn rows<'a>(prompts: &'a [Vec<u32>], rollouts: &'a [Rollout]) -> Vec<TrainingRow<'a>> {
    rollouts
        .iter()
        .map(|rollout| TrainingRow { prompt: &prompts[rollout.question], rollout })
        .collect()
}

fn settings(loss_type: LossType, old_log_probs: OldLogProbs) -> LearnSettings {
    // Wide clipping: a kink of the loss would spoil the finite differences.
    let loss = LossSettings {
        loss_type,
        beta: 0.3,
        epsilon_low: 0.9,
        epsilon_high: 9.0,
        ..LossSettings::default()
    };
    LearnSettings {
        loss,
        old_log_probs,
        optimizer: AdamWSettings::with_f32_moments(),
        ..LearnSettings::default()
    }
}

/// Compares the gradient by a weight of every third adapter matrix with finite differences.
fn agrees_with_finite_differences(family: &str, data: &Data, settings: &LearnSettings) {
    let mut model = with_random_adapter(family, &LoraSettings { r: 2, alpha: 4.0 });
    let got = run(&mut model, data, settings).gradients;
    let parameters: Vec<Tensor> =
        model.lora_parameters().into_iter().map(|(_, t)| t.shallow_clone()).collect();
    let h = 4e-3;
    for (parameter, gradient) in parameters.iter().zip(&got).step_by(3) {
        let mut weight = parameter.detach().view(-1).narrow(0, parameter.numel() as i64 / 2, 1);
        let mut losses = [0.0; 2];
        for (loss, shift) in losses.iter_mut().zip([h, -h]) {
            let _ = weight.g_add_scalar_(shift);
            *loss = run(&mut model, data, settings).report.loss;
            let _ = weight.g_add_scalar_(-shift);
        }
        let slope = (losses[0] - losses[1]) / (2.0 * h);
        let got = gradient.view(-1).double_value(&[parameter.numel() as i64 / 2]);
        assert!((slope - got).abs() < 2e-3 + 0.02 * got.abs(), "{family}: {slope} {got}");
    }
}

#[test]
fn gradients_agree_with_finite_differences() {
    for (family, loss_type) in [
        ("llama", LossType::Grpo),
        ("qwen2", LossType::Bnpo),
        ("qwen3", LossType::DrGrpo),
        ("olmo2", LossType::Dapo),
    ] {
        agrees_with_finite_differences(family, &data(), &settings(loss_type, OldLogProbs::Sampled));
    }
}

/// A pair for each of two questions.
fn pairs() -> Data {
    let (prompts, mut rollouts, _) = data();
    rollouts[3] = rollout(1, &[20, 2, 6, 1], -3.1);
    (prompts, rollouts, vec![vec![1.0; 4], vec![-1.0; 2], vec![-1.0; 3], vec![1.0; 4]])
}

fn dpo() -> LearnSettings {
    LearnSettings {
        algorithm: Algorithm::Dpo,
        dpo: DpoSettings { beta: 0.7 },
        optimizer: AdamWSettings::with_f32_moments(),
        ..LearnSettings::default()
    }
}

#[test]
fn dpo_gradients_agree_with_finite_differences() {
    for family in ["llama", "qwen3"] {
        agrees_with_finite_differences(family, &pairs(), &dpo());
    }
}

#[test]
fn dpo_compares_policy_with_reference_per_pair() {
    let mut fresh = tiny("llama", 1);
    fresh.add_lora(&LoraSettings { r: 2, alpha: 4.0 }, 3).unwrap();
    let report = run(&mut fresh, &pairs(), &dpo()).report;
    assert!((report.loss - 2f64.ln()).abs() < 1e-6, "the policy is the reference: {report:?}");
    assert!(
        report.preference.is_some_and(|pairs| pairs.pairs == 2.0 && pairs.margin.abs() < 1e-5),
        "{report:?}"
    );

    let mut model = with_random_adapter("llama", &LoraSettings { r: 2, alpha: 4.0 });
    let whole = run(&mut model, &pairs(), &dpo());
    let split = run(&mut model, &pairs(), &LearnSettings { micro_batch_tokens: 1, ..dpo() });
    assert!((whole.report.loss - split.report.loss).abs() < 1e-5);
    assert_eq!(split.report.preference.unwrap().pairs, 2.0);
    for (a, b) in whole.gradients.iter().zip(&split.gradients) {
        assert!((a - b).abs().max().double_value(&[]) < 1e-5);
    }
}

#[test]
fn dpo_without_pairs_has_zero_gradient() {
    let mut model = with_random_adapter("llama", &LoraSettings { r: 2, alpha: 4.0 });
    let Gradient { gradients, report, .. } =
        run(&mut model, &(vec![vec![1, 2]], vec![], vec![]), &dpo());
    assert_eq!((report.loss, report.preference), (0.0, Some(PreferenceReport::default())));
    assert!(gradients.iter().all(|gradient| gradient.abs().max().double_value(&[]) == 0.0));
}

fn with_critic(
    model: &mut Model,
    critic: &Critic,
    settings: &LearnSettings,
) -> (PreparedUpdate, Gradient) {
    let (prompts, rollouts, values) = data();
    let rows = rows(&prompts, &rollouts);
    let mut prepared = prepare(model, Some(critic), &rows, settings, 0.8, 10).unwrap();
    let targets = vec![vec![1.0, 0.5, 0.0, -1.0], vec![2.0, 2.0], vec![0.5, 1.0, 3.0], vec![]];
    let advantages = &Advantages { values, targets: Some(targets) };
    let objective = Objective::Clipped(advantages);
    let context =
        UpdateContext { critic: Some(critic), ..context(&prepared, &rows, objective, settings) };
    let gradient = gradient(model, &mut prepared, 0, &context).unwrap();
    (prepared, gradient)
}

#[test]
fn critic_does_not_change_policy_gradient() {
    let settings = LearnSettings {
        algorithm: Algorithm::Ppo,
        ..settings(LossType::Bnpo, OldLogProbs::Recomputed)
    };
    let mut model = with_random_adapter("qwen3", &LoraSettings { r: 2, alpha: 4.0 });
    let critic = Critic::new(16, &settings, tch::Device::Cpu).unwrap();
    {
        let _guard = tch::no_grad_guard();
        critic.parameters()[0]
            .shallow_clone()
            .copy_(&(Tensor::arange(16, (Kind::Float, tch::Device::Cpu)) * 0.1).sin());
    }
    let (prepared, whole) = with_critic(&mut model, &critic, &settings);
    let alone = run(&mut model, &data(), &settings);
    for (a, b) in whole.gradients.iter().zip(&alone.gradients) {
        assert_eq!(a, b);
    }
    let (split_prepared, split) =
        with_critic(&mut model, &critic, &LearnSettings { micro_batch_tokens: 1, ..settings });
    let flat = |prepared: &PreparedUpdate| prepared.values.clone().unwrap().concat();
    assert_eq!(
        prepared.values.as_ref().unwrap().iter().map(Vec::len).collect::<Vec<_>>(),
        [4, 2, 3, 0]
    );
    assert!(flat(&prepared).iter().zip(flat(&split_prepared)).all(|(a, b)| (a - b).abs() < 1e-5));
    assert!(flat(&prepared).iter().any(|value| value.abs() > 1e-3));
    let (a, b) = (whole.report.critic.unwrap(), split.report.critic.unwrap());
    assert!(
        (a.loss - b.loss).abs() < 1e-5
            && (a.explained_variance - b.explained_variance).abs() < 1e-5
    );
    for (a, b) in whole.critic_gradients.iter().zip(&split.critic_gradients) {
        assert!((a - b).abs().max().double_value(&[]) < 1e-5);
    }
    // Of the bias, by hand: each of the 9 tokens has weight 1/9.
    let targets = [1.0, 0.5, 0.0, -1.0, 2.0, 2.0, 0.5, 1.0, 3.0];
    let slope: f64 =
        flat(&prepared).iter().zip(targets).map(|(value, target)| (value - target) / 9.0).sum();
    assert!((whole.critic_gradients[1].double_value(&[0]) - slope).abs() < 1e-5);
}

#[test]
fn micro_batches_add_up_to_the_full_batch() {
    for loss_type in [LossType::Grpo, LossType::Bnpo, LossType::DrGrpo, LossType::Dapo] {
        let whole = settings(loss_type, OldLogProbs::Recomputed);
        let split = LearnSettings { micro_batch_tokens: 1, ..whole };
        let mut model = with_random_adapter("qwen3", &LoraSettings { r: 2, alpha: 4.0 });
        let (a, b) = (run(&mut model, &data(), &whole), run(&mut model, &data(), &split));
        assert!((a.report.loss - b.report.loss).abs() < 1e-5);
        assert!((a.report.kl.unwrap() - b.report.kl.unwrap()).abs() < 1e-5);
        assert!((a.report.entropy - b.report.entropy).abs() < 1e-5);
        for (a, b) in a.gradients.iter().zip(&b.gradients) {
            assert!((a - b).abs().max().double_value(&[]) < 1e-5);
        }
    }
}

#[test]
fn later_iterations_use_initial_old_log_probs() {
    let settings = settings(LossType::Grpo, OldLogProbs::Recomputed);
    let mut model = with_random_adapter("llama", &LoraSettings { r: 2, alpha: 4.0 });
    let (prompts, mut rollouts, advantages) = data();
    let sampled_rollouts = rollouts.clone();
    let rows = rows(&prompts, &sampled_rollouts);
    let mut prepared = prepare(&mut model, None, &rows, &settings, 0.8, 10).unwrap();
    gradient_of(&mut model, &mut prepared, &rows, &advantages, &settings);
    // The same log-probabilities, recorded in the rollouts.
    for batch in prepared.micro_batches() {
        let mut old = Vec::<f32>::try_from(batch.old.as_ref().unwrap()).unwrap().into_iter();
        for &member in &batch.members {
            rollouts[member].log_probs = old.by_ref().take(rollouts[member].tokens.len()).collect();
        }
    }
    for (_, parameter) in model.lora_parameters() {
        let _guard = tch::no_grad_guard();
        let _ = parameter.shallow_clone().g_mul_scalar_(1.5);
    }
    let second = gradient_of(&mut model, &mut prepared, &rows, &advantages, &settings);
    let sampled = LearnSettings { old_log_probs: OldLogProbs::Sampled, ..settings };
    let expected = run(&mut model, &(prompts, rollouts, advantages), &sampled);
    assert!((second.report.loss - expected.report.loss).abs() < 1e-6);
    assert!(
        (second.report.loss - run(&mut model, &data(), &settings).report.loss).abs() > 1e-5,
        "a ratio of 1"
    );
    for (got, expected) in second.gradients.iter().zip(&expected.gradients) {
        assert!((got - expected).abs().max().double_value(&[]) < 1e-6);
    }
}

/// Log-probabilities are those before the first update.
#[test]
fn mini_batch_update_uses_only_its_rows() {
    let whole = settings(LossType::Grpo, OldLogProbs::Recomputed);
    let parts = LearnSettings { num_mini_batches: 2, ..whole };
    let mut model = with_random_adapter("llama", &LoraSettings { r: 2, alpha: 4.0 });
    let (prompts, rollouts, values) = data();
    let rows = rows(&prompts, &rollouts);
    let mut prepared = prepare(&mut model, None, &rows, &parts, 0.8, 10).unwrap();
    let tokens: Vec<usize> =
        prepared.mini_batches.iter().map(|mini_batch| mini_batch.num_tokens).collect();
    assert_eq!(tokens, [6, 3]);
    prepared.set_old_log_probs(&mut model, 0.8).unwrap();
    // The same log-probabilities, recorded in the rollouts.
    let mut recorded = rollouts.clone();
    for batch in prepared.micro_batches() {
        let mut old = Vec::<f32>::try_from(batch.old.as_ref().unwrap()).unwrap().into_iter();
        for &member in &batch.members {
            recorded[member].log_probs = old.by_ref().take(recorded[member].tokens.len()).collect();
        }
    }
    let sampled = LearnSettings { old_log_probs: OldLogProbs::Sampled, ..whole };
    let advantages = &Advantages { values: values.clone(), ..Advantages::default() };
    let objective = Objective::Clipped(advantages);
    for (mini_batch, range) in [0..2, 2..4].into_iter().enumerate() {
        let context = context(&prepared, &rows, objective, &parts);
        let part = gradient(&mut model, &mut prepared, mini_batch, &context).unwrap();
        let alone = (prompts.clone(), recorded[range.clone()].to_vec(), values[range].to_vec());
        let expected = run(&mut model, &alone, &sampled);
        assert!((part.report.loss - expected.report.loss).abs() < 1e-6, "{mini_batch}");
        for (got, expected) in part.gradients.iter().zip(&expected.gradients) {
            assert!((got - expected).abs().max().double_value(&[]) < 1e-6, "{mini_batch}");
        }
        // The next mini-batch meets other weights.
        for (_, parameter) in model.lora_parameters() {
            let _guard = tch::no_grad_guard();
            let _ = parameter.shallow_clone().g_mul_scalar_(1.5);
        }
    }
}

#[test]
fn sampler_mismatch_is_measured_and_corrected() {
    let plain = settings(LossType::Grpo, OldLogProbs::Recomputed);
    let plain = LearnSettings { loss: LossSettings { beta: 0.0, ..plain.loss }, ..plain };
    let mut model = with_random_adapter("llama", &LoraSettings { r: 2, alpha: 4.0 });
    let (prompts, mut rollouts, advantages) = data();
    let sampled_rollouts = rollouts.clone();
    let rows = rows(&prompts, &sampled_rollouts);
    let mut prepared = prepare(&mut model, None, &rows, &plain, 0.8, 10).unwrap();
    gradient_of(&mut model, &mut prepared, &rows, &advantages, &plain);
    let gap = 2f32.ln(); // the sampler found every token half as probable
    for batch in prepared.micro_batches() {
        let mut old = Vec::<f32>::try_from(batch.old.as_ref().unwrap()).unwrap().into_iter();
        for &member in &batch.members {
            let tokens = rollouts[member].tokens.len();
            rollouts[member].log_probs = old.by_ref().take(tokens).map(|old| old - gap).collect();
        }
    }
    let data = (prompts, rollouts, advantages);
    let uncorrected = run(&mut model, &data, &plain);
    let split = run(&mut model, &data, &LearnSettings { micro_batch_tokens: 1, ..plain });
    for mismatch in [uncorrected.report.mismatch.unwrap(), split.report.mismatch.unwrap()] {
        let Mismatch { difference_mean, difference_max, ratio_min, ratio_mean, ratio_max } =
            mismatch;
        for (got, expected) in [
            (difference_mean, f64::from(gap)),
            (difference_max, f64::from(gap)),
            (ratio_min, 2.0),
            (ratio_mean, 2.0),
            (ratio_max, 2.0),
        ] {
            assert!((got - expected).abs() < 1e-4, "{mismatch:?}");
        }
    }
    for (correction, cap, weight) in [(false, 1.5, 1.0), (true, 1.5, 1.5), (true, 8.0, 2.0)] {
        let loss = LossSettings {
            importance_sampling_correction: Some(correction),
            importance_sampling_cap: cap,
            ..plain.loss
        };
        let corrected = run(&mut model, &data, &LearnSettings { loss, ..plain });
        for (got, one) in corrected.gradients.iter().zip(&uncorrected.gradients) {
            assert!((got - one * weight).abs().max().double_value(&[]) < 1e-5, "{cap}");
        }
    }
}

#[test]
fn kl_reference_is_model_without_adapters() {
    let settings = settings(LossType::Grpo, OldLogProbs::Recomputed);
    let mut fresh = tiny("llama", 1);
    fresh.add_lora(&LoraSettings { r: 2, alpha: 4.0 }, 3).unwrap();
    assert_eq!(run(&mut fresh, &data(), &settings).report.kl, Some(0.0));
    let mut model = with_random_adapter("llama", &LoraSettings { r: 2, alpha: 4.0 });
    assert!(run(&mut model, &data(), &settings).report.kl.unwrap() > 1e-6);
    let without = LearnSettings { loss: LossSettings { beta: 0.0, ..settings.loss }, ..settings };
    assert_eq!(run(&mut model, &data(), &without).report.kl, None);
}

fn limit(tokens: usize, key_share: f64) -> PassLimit {
    PassLimit { tokens, key_share }
}

#[test]
fn copied_keys_count_in_micro_batches() {
    let (prompts, rollouts, _) = data();
    let rows = rows(&prompts, &rollouts);
    // The first question has 9 tokens and 3 + 7 + 5 keys, the second one 8 tokens and 5 + 8 keys.
    assert_eq!(split_rows(&rows, 0..3, limit(31, 0.5), false), [vec![0, 1, 2]]);
    assert_eq!(split_rows(&rows, 0..3, limit(30, 0.5), false), [vec![0, 1], vec![2]]);
    assert_eq!(split_rows(&rows, 0..3, limit(16, 0.5), false), [vec![0], vec![1], vec![2]]);
    assert_eq!(split_rows(&rows, 0..3, limit(17, 0.5), false), [vec![0, 1], vec![2]]);
}

/// Returns the gradient and report of one mini-batch if memory runs out for micro-batches of more than
/// `most` tokens, after their forward pass.
fn with_little_memory(
    model: &Model,
    prepared: &mut PreparedUpdate,
    context: &UpdateContext<'_>,
    most: i64,
) -> Result<(Vec<Tensor>, UpdateReport)> {
    let mut sums = GradientSums::new(model, context)?;
    let PreparedUpdate { row_weights, mini_batches, .. } = &mut *prepared;
    let whole_questions = needs_whole_questions(context.settings);
    for_each_or_its_halves(
        &mut mini_batches[0].micro_batches,
        |batch| batch.halves(model, context.rows, row_weights, whole_questions),
        |batch| {
            if batch.num_tokens() > most {
                batch.surrogates(model, context, &mut UpdateTotals::default())?;
                let text = "CUDA out of memory. Tried to allocate 1 GiB".to_owned();
                return Err(LearnError::Torch(tch::TchError::Torch(text)));
            }
            sums.add(model, batch, context)
        },
    )?;
    Ok((sums.gradients, report(&sums.totals, 9, None, context)))
}

#[test]
fn update_without_enough_memory_has_the_same_gradient() {
    let recomputed = settings(LossType::Bnpo, OldLogProbs::Recomputed);
    for (data, settings) in [(data(), recomputed), (pairs(), dpo())] {
        let mut model = with_random_adapter("llama", &LoraSettings { r: 2, alpha: 4.0 });
        let expected = run(&mut model, &data, &settings);
        let (prompts, rollouts, values) = data;
        let rows = rows(&prompts, &rollouts);
        let advantages = Advantages { values: values.clone(), ..Advantages::default() };
        let signs: Vec<f64> = values.iter().map(|row| row.first().map_or(0.0, |&a| a)).collect();
        let objective = match settings.algorithm {
            Algorithm::Dpo => Objective::Preference(&signs),
            _ => Objective::Clipped(&advantages),
        };
        let mut prepared = prepare(&mut model, None, &rows, &settings, 0.8, 10).unwrap();
        let context = context(&prepared, &rows, objective, &settings);
        assert_eq!(prepared.micro_batches().count(), 1);
        let (gradients, report) = with_little_memory(&model, &mut prepared, &context, 10).unwrap();
        assert!(prepared.micro_batches().count() > 1);
        for (got, expected) in gradients.iter().zip(&expected.gradients) {
            assert!((got - expected).abs().max().double_value(&[]) < 1e-5);
        }
        assert!((report.loss - expected.report.loss).abs() < 1e-5);
        let mean = |report: &UpdateReport| report.mismatch.unwrap().difference_mean;
        assert!((mean(&report) - mean(&expected.report)).abs() < 1e-5, "reported once");
        // A later iteration runs the halves.
        assert!(with_little_memory(&model, &mut prepared, &context, 10).is_ok());

        let error = with_little_memory(&model, &mut prepared, &context, 0).unwrap_err();
        let message = error.to_string();
        assert!(message.contains("lower rollout.max_completion_length"), "{message}");
    }
}

#[test]
fn micro_batches_respect_token_limit() {
    let (prompts, rollouts, _) = data();
    let rows = rows(&prompts, &rollouts);
    assert_eq!(split_rows(&rows, 0..3, limit(1000, 0.0), false), [vec![0, 1, 2]]);
    assert_eq!(
        split_rows(&rows, 0..3, limit(17, 0.0), false),
        [vec![0, 1, 2]],
        "3 + 4 + 2 of the first question, 5 + 3 of the second"
    );
    assert_eq!(split_rows(&rows, 0..3, limit(16, 0.0), false), [vec![0, 1], vec![2]]);
    assert_eq!(split_rows(&rows, 0..3, limit(8, 0.0), false), [vec![0], vec![1], vec![2]]);
    assert_eq!(split_rows(&rows, 0..3, limit(1, 0.0), false), [vec![0], vec![1], vec![2]]);
    assert_eq!(split_rows(&rows, 0..3, limit(17, 0.0), true), [vec![0, 1, 2]]);
    assert_eq!(
        split_rows(&rows, 0..3, limit(1, 0.0), true),
        [vec![0, 1], vec![2]],
        "questions stay whole"
    );
}
