//! `corver-host sft`: fine-tunes an adapter on demonstrations.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use corver_core::LossSettings;
use corver_core::{Algorithm, LearnSettings, Learner};
use corver_learn::MemoryPlan;
use corver_reward::config::{self, PolicyConfig};
use corver_reward::parts;
use corver_runs::{RunDir, RunDirError, fingerprint, folder, json_fingerprint};
use corver_settings::Settings;
use corver_train::sft::{Demonstrations, SftError, SftPlan, SftSummary, sft};
use serde_json::{Value, json};

use crate::args::SftArgs;
use crate::interrupt::Interrupt;
use crate::output;
use crate::policy;
use crate::resumed;
use crate::settings;

/// Demonstrations to imitate, and the folder of the run.
pub struct FineTuning<'a> {
    pub settings: Settings,
    pub policy: PolicyConfig,
    /// File of the demonstrations.
    pub file: &'a Path,
    /// Folder of the run.
    pub path: &'a Path,
    /// True to resume from the latest checkpoint in `path`.
    pub resume: bool,
    /// True to return the adapter of a run that has taken all its steps, instead of an error.
    pub accepts_finished: bool,
    /// Command that resumes the run.
    pub resume_command: String,
}

/// Run that has taken all its steps.
pub struct FineTuned {
    pub summary: SftSummary,
    /// Folder of the last checkpoint.
    pub adapter: PathBuf,
}

impl FineTuned {
    fn new(summary: SftSummary, run: &RunDir) -> Self {
        let adapter = run.checkpoints().join(format!("step-{:06}", summary.steps));
        Self { summary, adapter }
    }
}

pub fn run(args: &SftArgs, json: bool) -> Result<()> {
    let mut args = args.clone();
    if args.resume {
        resumed::load_saved_config(&mut args.settings, args.out.as_deref());
    }
    let mut layers = settings::layers(&args.settings, &[&args.policy])?;
    layers.add_own_part(); // the demonstrations
    let (settings, policy) = config::resolve::<PolicyConfig>(settings::finish(&layers)?)?;
    let path = args.out.clone().unwrap_or_else(|| folder::next_free(Path::new("runs"), "sft"));
    let tuned = fine_tune(FineTuning {
        settings,
        policy,
        file: &args.file,
        path: &path,
        resume: args.resume,
        accepts_finished: false,
        resume_command: format!(
            "corver-host sft {} --out {} --resume",
            args.file.display(),
            path.display()
        ),
    })?;
    let Some(FineTuned { summary, adapter }) = tuned else { return Ok(()) };
    if json {
        return output::json(&json!({"summary": summary, "adapter": adapter}));
    }
    show(&summary);
    output::line(format_args!(
        "train --set policy.adapter={} continues from it",
        adapter.display()
    ));
    Ok(())
}

/// Trains an adapter; `None` if the run was interrupted and can be resumed.
pub fn fine_tune(tuning: FineTuning<'_>) -> Result<Option<FineTuned>> {
    let FineTuning { mut settings, policy, file, path, resume, accepts_finished, resume_command } =
        tuning;
    let demonstrations = Demonstrations::read(file)?;
    let steps = settings.sft.steps(demonstrations.all.len());
    let model = parts::policy_folder(&policy)?;
    let mut sft_settings = sft_settings(&settings, steps);
    let memory = policy::fit(&mut sft_settings, &policy, &model, resume)?;
    settings.update.micro_batch_tokens = sft_settings.update.micro_batch_tokens;
    settings.run.threads = sft_settings.run.threads;
    let resolved =
        toml::to_string_pretty(&settings).context("writing the resolved configuration")?;

    let mut manifest = resumed::manifest_of(&settings, &[])?;
    manifest.set("model", fingerprint(&model)?);
    if let Some(adapter) = &policy.adapter {
        manifest.set("adapter", fingerprint(adapter)?);
    }
    manifest.set("demonstrations", json_fingerprint(&demonstrations.all)?);
    manifest.set("device", policy::find_device(settings.run.device)?);

    if resume && accepts_finished && path.join(folder::SUMMARY).exists() {
        let run = resumed::open(path, &manifest, &resolved, &[])?;
        if let Some(summary) = run.read_json(folder::SUMMARY)? {
            return Ok(Some(FineTuned::new(summary, &run)));
        }
    }
    let mut learner = policy::load_learner(&sft_settings, &policy, &model)?;
    learner.set_system_prompt(&settings.policy.system_prompt);
    let lengths = learner.demonstration_lengths(&demonstrations.all)?;
    demonstrations.check_lengths(&lengths, settings.sft.max_length)?;
    demonstrations.check_positions(&lengths, learner.model().config().max_positions)?;

    let interrupt = Interrupt::listen()?;
    let (run, steps_done) = if resume {
        let run = resumed::open(path, &manifest, &resolved, &[])?;
        let steps_done = policy::resume(&mut learner, &run.checkpoints())?;
        run.continue_to(&resolved, steps_done, steps)?;
        (run, steps_done)
    } else {
        (RunDir::create(path, &resolved, &manifest)?, 0)
    };
    learner.dump_failed_batches_to(run.path());
    let plan = SftPlan {
        demonstrations: demonstrations.all,
        settings: settings.sft,
        seed: settings.run.seed,
        checkpoint_every: settings.checkpoint.every,
        checkpoints_kept: settings.checkpoint.keep,
    };
    let bar = output::progress(steps as u64, "imitating");
    bar.set_position(steps_done as u64);
    output::notes(&bar, memory.iter().flat_map(MemoryPlan::learning_lines));
    output::note(
        &bar,
        &format!(
            "{} demonstrations, {steps} steps, into {}",
            plan.demonstrations.len(),
            path.display()
        ),
    );
    let trained = sft(&mut learner, &plan, &run, steps_done, &mut |metrics| {
        let number = |name: &str| metrics.get(name).and_then(Value::as_f64).unwrap_or(f64::NAN);
        let [step, loss, seconds] = ["step", "loss", "step_time"].map(number);
        output::note(&bar, &format!("step {step:>3}/{steps}  loss {loss:.4}  {seconds:.2} s"));
        bar.inc(1);
        !interrupt.is_requested()
    });
    bar.finish_and_clear();
    let hint = format!("`{resume_command}` resumes it");
    match trained {
        Err(SftError::Stopped { step }) => {
            output::note(&bar, &format!("stopped after step {step} of {steps}; {hint}"));
            Ok(None)
        }
        // The message says what to do, since resuming alone would fail again.
        Err(error @ SftError::RunDir(RunDirError::Unusable(_))) => Err(error.into()),
        trained => {
            let summary = trained.with_context(|| format!("the run is unfinished; {hint}"))?;
            Ok(Some(FineTuned::new(summary, &run)))
        }
    }
}

/// Returns the settings of SFT: one pass per batch, no decoding, and the defaults for what only
/// rewards use.
fn sft_settings(settings: &Settings, steps: usize) -> Settings {
    let mut changed = settings.clone();
    changed.update = LearnSettings {
        algorithm: Algorithm::Grpo,
        loss: LossSettings::default(),
        num_iterations: 1,
        num_mini_batches: 1,
        learning_rate: settings.sft.learning_rate,
        total_steps: steps,
        ..settings.update
    };
    changed.rollout.num_generations = 1;
    changed.rollout.max_completion_length = settings.sft.max_length;
    changed.question.eval = None;
    changed.policy.max_rows = 1;
    changed
}

/// Prints the number of demonstrations and steps, and the losses.
pub fn show(summary: &SftSummary) {
    let SftSummary { demonstrations, steps, loss_first, loss_last, seconds_total } = summary;
    output::line(format_args!(
        "{demonstrations} demonstrations in {steps} steps, {seconds_total:.0} s: \
         loss {loss_first:.3} → {loss_last:.3} nats per token"
    ));
}
