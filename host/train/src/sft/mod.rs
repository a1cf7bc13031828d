//! Supervised fine-tuning on demonstrations: the cold start of a policy that `train` then goes on
//! with (paper, L1).

mod demonstrations;

use std::time::Instant;

use corver_core::{BoxError, Demonstration, Learner};
use corver_settings::SftSettings;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::metrics::{Step, step_metrics};
use corver_runs::data_order::questions_of_step;
use corver_runs::folder::METRICS_LOG;
use corver_runs::{RunDir, RunDirError};

pub use demonstrations::{Demonstrations, DemonstrationsError};

/// What a run does.
#[derive(Debug)]
pub struct SftPlan {
    /// What is imitated; not empty.
    pub demonstrations: Vec<Demonstration>,
    /// How.
    pub settings: SftSettings,
    /// Decides their order.
    pub seed: u64,
    /// Steps between checkpoints.
    pub checkpoint_every: usize,
    /// Newest checkpoints kept.
    pub checkpoints_kept: usize,
}

/// What `summary.json` says.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SftSummary {
    /// Demonstrations.
    pub demonstrations: usize,
    /// Optimiser steps taken.
    pub steps: usize,
    /// Mean of −log p over the tokens of the first step, nats.
    pub loss_first: f64,
    /// The same of the last step.
    pub loss_last: f64,
    /// Of all steps, over all processes where the run was resumed.
    pub seconds_total: f64,
}

/// Why a run stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SftError {
    /// A step failed.
    #[error("step {step}")]
    Step {
        /// Counted from 1.
        step: usize,
        /// Why.
        source: BoxError,
    },
    /// A checkpoint could not be written.
    #[error("writing the checkpoint of step {step}")]
    Checkpoint {
        /// Counted from 1.
        step: usize,
        /// Why.
        source: BoxError,
    },
    /// The run's folder could not be written.
    #[error(transparent)]
    RunDir(#[from] RunDirError),
    /// It was asked for. There is a checkpoint of every step that was taken.
    #[error("stopped after step {step}, as asked")]
    Stopped {
        /// The last step taken, counted from 1.
        step: usize,
    },
}

/// Runs `plan` from step `steps_done` on (0 for a new run) and writes `summary.json` at the end.
/// `go_on` is called with the metrics of every step and decides whether to take the next one. Each
/// epoch has an order of its own, which the seed decides, so that a resumed run sees the same.
///
/// # Errors
/// Where a step fails, the folder cannot be written, or `go_on` stops the run; the run can be
/// resumed.
pub fn sft(
    student: &mut dyn Learner,
    plan: &SftPlan,
    run: &RunDir,
    steps_done: usize,
    go_on: &mut dyn FnMut(&Map<String, Value>) -> bool,
) -> Result<SftSummary, SftError> {
    run.rewind_logs(steps_done)?;
    let SftPlan { demonstrations, settings, seed, .. } = plan;
    let (total, steps) =
        (demonstrations.len() * settings.epochs, settings.steps(demonstrations.len()));
    for number in steps_done..steps {
        let start = Instant::now();
        let left = total - number * settings.per_step;
        let order = questions_of_step(demonstrations.len(), settings.per_step, number, *seed);
        let batch: Vec<Demonstration> =
            order.into_iter().take(left).map(|place| demonstrations[place].clone()).collect();
        let report = student
            .imitate(&batch)
            .map_err(|source| SftError::Step { step: number + 1, source })?;
        let metrics = step_metrics(&Step {
            number: number + 1,
            num_tokens: 0,
            seconds: start.elapsed().as_secs_f64(),
            rule: "",
            update: &report,
            report: None,
        });
        run.append_metrics(&metrics)?;
        let last = number + 1 == steps;
        let stop = !go_on(&metrics) && !last;
        if last || stop || (number + 1).is_multiple_of(plan.checkpoint_every) {
            let saved = student.save(&run.checkpoints(), plan.checkpoints_kept);
            saved.map_err(|source| SftError::Checkpoint { step: number + 1, source })?;
        }
        if stop {
            return Err(SftError::Stopped { step: number + 1 });
        }
    }
    let log: Vec<Map<String, Value>> = run.read_lines(METRICS_LOG)?;
    let of = |step: Option<&Map<String, Value>>, name| {
        step.and_then(|step| step.get(name)?.as_f64()).unwrap_or(0.0)
    };
    let summary = SftSummary {
        demonstrations: demonstrations.len(),
        steps,
        loss_first: of(log.first(), "loss"),
        loss_last: of(log.last(), "loss"),
        seconds_total: log.iter().map(|step| of(Some(step), "step_time")).sum(),
    };
    run.finish(&summary)?;
    Ok(summary)
}
