//! Supervised fine-tuning on demonstrations: the cold start of a policy that `train` continues with
//! (paper, L1).

mod demonstrations;

use std::time::Instant;

use corver_core::{BoxError, Demonstration, Learner};
use corver_settings::SftSettings;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::metrics::{StepMeasurements, step_metrics};
use corver_runs::data_order::questions_of_step;
use corver_runs::folder::METRICS_LOG;
use corver_runs::{RunDir, RunDirError};

pub use demonstrations::{Demonstrations, DemonstrationsError};

/// Inputs and settings of a run.
#[derive(Debug)]
pub struct SftPlan {
    /// Completions to imitate; not empty.
    pub demonstrations: Vec<Demonstration>,
    /// Settings of the fine-tuning.
    pub settings: SftSettings,
    /// Seed of the order of the demonstrations.
    pub seed: u64,
    /// Steps between checkpoints, 1 or more.
    pub checkpoint_every: usize,
    /// Number of newest checkpoints to retain, 1 or more.
    pub checkpoints_kept: usize,
}

/// Results of a run, the contents of `summary.json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SftSummary {
    /// Number of demonstrations in the file.
    pub demonstrations: usize,
    /// Number of steps taken.
    pub steps: usize,
    /// Mean of −log p over the tokens of the first step, nats.
    pub loss_first: f64,
    /// Mean of −log p over the tokens of the last step, nats.
    pub loss_last: f64,
    /// Time of all steps, seconds; includes the processes before a resume.
    pub seconds_total: f64,
}

/// Error of a run, or the request to stop it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SftError {
    /// A step failed, or a checkpoint could not be written.
    #[error("{action}")]
    Failed {
        /// Task of the run at that time.
        action: String,
        /// Error of the policy.
        source: BoxError,
    },
    /// The run's folder could not be read or written.
    #[error(transparent)]
    RunDir(#[from] RunDirError),
    /// The caller requested it. There is a checkpoint of every step that was taken.
    #[error("stopped after step {step}, as requested")]
    Stopped {
        /// Number of the last step taken, counted from 1.
        step: usize,
    },
}

/// Runs `plan` from step `steps_done` on (0 for a new run) and writes `summary.json` at the end.
/// Calls `on_step_end` with the metrics of every step; the run stops if it returns false. Each epoch
/// has its own order, which the seed decides, so that a resumed run sees the same.
///
/// # Errors
/// Fails if a step fails, the folder cannot be written, or `on_step_end` stops the run; the run can
/// be resumed.
pub fn sft(
    policy: &mut dyn Learner,
    plan: &SftPlan,
    run: &RunDir,
    steps_done: usize,
    on_step_end: &mut dyn FnMut(&Map<String, Value>) -> bool,
) -> Result<SftSummary, SftError> {
    run.rewind_logs(steps_done)?;
    let SftPlan { demonstrations, settings, seed, .. } = plan;
    let total = demonstrations.len() * settings.epochs;
    let steps = settings.steps(demonstrations.len());
    for number in steps_done..steps {
        let start = Instant::now();
        let remaining = total - number * settings.per_step;
        let order = questions_of_step(demonstrations.len(), settings.per_step, number, *seed);
        let mut batch = Vec::new();
        for index in order.into_iter().take(remaining) {
            batch.push(demonstrations[index].clone());
        }
        let report = policy.imitate(&batch).map_err(|source| SftError::Failed {
            action: format!("step {}", number + 1),
            source,
        })?;
        let metrics = step_metrics(&StepMeasurements {
            number: number + 1,
            num_tokens: 0,
            seconds: start.elapsed().as_secs_f64(),
            rule: "",
            update: &report,
            report: None,
        });
        run.append_metrics(&metrics)?;
        let is_last = number + 1 == steps;
        let stops = !on_step_end(&metrics) && !is_last;
        if is_last || stops || (number + 1).is_multiple_of(plan.checkpoint_every) {
            run.sync_logs()?;
            let saved = policy.save(&run.checkpoints(), plan.checkpoints_kept);
            saved.map_err(|source| SftError::Failed {
                action: format!("writing the checkpoint of step {}", number + 1),
                source,
            })?;
        }
        if stops {
            return Err(SftError::Stopped { step: number + 1 });
        }
    }
    let log: Vec<Map<String, Value>> = run.read_lines(METRICS_LOG)?;
    let summary = SftSummary {
        demonstrations: demonstrations.len(),
        steps,
        loss_first: log.first().map_or(0.0, |step| metric(step, "loss")),
        loss_last: log.last().map_or(0.0, |step| metric(step, "loss")),
        seconds_total: log.iter().map(|step| metric(step, "step_time")).sum(),
    };
    run.finish(&summary)?;
    Ok(summary)
}

/// Returns a metric of a logged step; 0 if it is missing.
fn metric(step: &Map<String, Value>, name: &str) -> f64 {
    step.get(name).and_then(Value::as_f64).unwrap_or(0.0)
}
