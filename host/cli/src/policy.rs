//! The policy, with libtorch. A build without it compiles `no_policy.rs` instead.

use std::ops::ControlFlow;
use std::path::Path;

use anyhow::ensure;
use anyhow::{Context, Result};
use corver_core::{Algorithm, Decoding, Device, Learner, Question, Sampler, Sampling};
use corver_learn::{Answers, Model, Workload};
use corver_reward::config::PolicyConfig;
use corver_settings::Settings;

use crate::tokenizer::load_tokenizer;

pub use corver_learn::{MemoryPlan, Policy};

/// Bytes per GiB.
const GIB: f64 = (1u64 << 30) as f64;

/// Returns the name of the device that a setting selects on this machine.
pub fn find_device(wanted: Device) -> Result<String> {
    Ok(corver_learn::device_name(corver_learn::find_device(wanted)?))
}

/// Fits a run into the memory that is free now, and chooses the number of threads. A resumed run
/// retains its batches: others would sum in another order, and end in another adapter.
pub fn fit(
    settings: &mut Settings,
    policy: &PolicyConfig,
    model: &Path,
    is_resumed: bool,
) -> Result<Option<MemoryPlan>> {
    let mut fitted = settings.clone();
    let memory = plan_memory(&mut fitted, policy, model)?;
    if !is_resumed {
        *settings = fitted;
    } else if fitted != *settings {
        tracing::warn!(
            "less memory is free than when the run began; it resumes with the same batches, which \
             may not fit: end other programs"
        );
    }
    choose_threads(settings)?;
    Ok(memory)
}

/// Fits a run into its device's memory: lowers the decoding batch and the micro-batch to what it can
/// hold.
fn plan_memory(
    settings: &mut Settings,
    policy: &PolicyConfig,
    model: &Path,
) -> Result<Option<MemoryPlan>> {
    let samples_here = policy.engine.is_none();
    let rollout = settings.rollout;
    let update = settings.update;
    let answers = &settings.eval.answers;
    let workload = Workload {
        num_generations: if samples_here { rollout.num_generations } else { 1 },
        max_prompt_length: rollout.max_prompt_length,
        max_completion_length: rollout.max_completion_length,
        answers: (samples_here && settings.question.eval.is_some()).then_some(Answers {
            samples: answers.samples,
            max_length: answers.max_completion_length,
        }),
        max_rows: if samples_here { settings.policy.max_rows } else { 1 },
        micro_batch_tokens: update.micro_batch_tokens,
        rank: update.lora.r,
        moments: update.optimizer.moments,
        rows_together: if update.algorithm == Algorithm::Dpo { 2 } else { 1 },
        reference_adapter: policy.adapter.is_some(),
    };
    let memory = settings.run.memory_gib.map(|gib| (gib * GIB) as u64);
    let plan = MemoryPlan::for_folder(
        model,
        settings.policy.precision,
        settings.run.device,
        &workload,
        memory,
    )
    .context("planning the memory of the run")?;
    settings.update.micro_batch_tokens = plan.micro_batch_tokens;
    if samples_here {
        settings.policy.max_rows = plan.rows;
    }
    Ok(Some(plan))
}

/// Measures how many threads are fastest on the processor, unless they are set.
pub fn choose_threads(settings: &mut Settings) -> Result<()> {
    let on_gpu =
        corver_learn::find_device(settings.run.device).is_ok_and(|device| device.is_cuda());
    if settings.run.threads.is_none() && !on_gpu {
        settings.run.threads = Some(corver_learn::measure_threads()?);
    }
    Ok(())
}

/// Loads the policy from a model's folder, with the adapter of a folder or with fresh ones.
fn load_policy(settings: &Settings, model: &Path, adapter: Option<&Path>) -> Result<Policy> {
    let device = corver_learn::find_device(settings.run.device)?;
    if let Some(threads) = settings.run.threads {
        corver_learn::set_num_threads(threads);
    }
    let loading = || format!("loading the policy {}", model.display());
    let tokenizer = load_tokenizer(settings, model).with_context(loading)?;
    let mut weights =
        Model::load(model, settings.policy.precision, device).with_context(loading)?;
    if let Some(adapter) = adapter {
        weights.load_adapter(adapter).with_context(|| {
            format!(
                "loading the adapter {} (a run saves its adapter in checkpoints/step-NNNNNN)",
                adapter.display()
            )
        })?;
    }
    let policy = Policy::new(weights, tokenizer, settings.update, settings.run.seed)
        .with_context(loading)?;
    Ok(policy
        .with_compatibility(settings.reward.compatibility)
        .with_max_rows(settings.policy.max_rows))
}

/// Opens the policy for sampling.
///
/// # Errors
/// Fails if the model or the adapter cannot be loaded, or a prompt of the questions is too long.
pub fn open_sampler(
    settings: &Settings,
    model: &Path,
    adapter: Option<&Path>,
    system_prompt: &str,
    (questions, sampling): (&[Question], &Sampling),
    watch: impl FnMut(Decoding) -> ControlFlow<()> + 'static,
) -> Result<Box<dyn Sampler>> {
    let mut policy = load_policy(settings, model, adapter)?;
    policy.set_system_prompt(system_prompt);
    policy.check_prompts(questions, sampling)?;
    policy.set_watch(watch);
    Ok(Box::new(policy))
}

/// Loads the policy that a run trains: with a new adapter, or with the one of `policy.adapter`,
/// which is then the reference too.
pub fn load_learner(settings: &Settings, policy: &PolicyConfig, model: &Path) -> Result<Policy> {
    let Some(adapter) = &policy.adapter else { return load_policy(settings, model, None) };
    let loaded = load_policy(settings, model, Some(adapter))?;
    let stored = loaded.model().lora().copied().unwrap_or_default();
    let set = settings.update.lora;
    ensure!(
        stored == set,
        "`policy.adapter`: {} has r = {} and alpha = {}, but `update.lora` has r = {} and \
         alpha = {}; set the adapter's values",
        adapter.display(),
        stored.r,
        stored.alpha,
        set.r,
        set.alpha
    );
    Ok(loaded.freeze_as_reference()?)
}

/// Merges an adapter into a model, in a new folder.
pub fn merge(settings: &Settings, model: &Path, adapter: &Path, out: &Path) -> Result<()> {
    let device = corver_learn::find_device(settings.run.device)?;
    corver_learn::merge(model, adapter, out, device)
        .with_context(|| format!("merging {} into {}", adapter.display(), model.display()))
}

/// Resumes from a run's latest checkpoint, and returns its step.
///
/// # Errors
/// Fails if the checkpoint cannot be loaded. If it is damaged, the error names the one before it
/// instead of loading it: the steps in between would silently be repeated.
pub fn resume(policy: &mut Policy, folder: &Path) -> Result<usize> {
    let mut checkpoints = corver_learn::checkpoints(folder)?;
    let Some(newest) = checkpoints.pop() else { return Ok(0) };
    policy.resume(&newest).map_err(|error| {
        let is_damaged = matches!(error, corver_learn::LearnError::Damaged { .. });
        let newest = newest.display();
        let resuming = match checkpoints.last().filter(|_| is_damaged) {
            Some(before) => format!(
                "resuming from {newest}; delete it, and --resume takes {}",
                before.display()
            ),
            None => format!("resuming from {newest}"),
        };
        anyhow::Error::new(error).context(resuming)
    })?;
    Ok(policy.steps())
}
