//! A training run: evaluate, step by step update, evaluate again; everything lands in the run's
//! folder.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use corver_core::{BoxError, Learner, Question, Scorers, StepError, StepSettings, Usage, step};
use corver_settings::EvaluateSettings;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use corver_data::Curriculum;

use super::cost::{Prices, QueryCounts};
use super::metrics::{Step, step_metrics};
use super::warnings::Warnings;
use corver_eval::{EvaluateError, EvaluatePlan, Evaluation, GradedAnswer, Truth, evaluate};
use corver_runs::data_order::{questions_of_step, seed_of_step};
use corver_runs::folder::{METRICS_LOG, RunDir, RunDirError, TRACES};

/// What a run does.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Questions to train on.
    pub train: Curriculum,
    /// Questions to evaluate on; none evaluates nothing.
    pub eval: Vec<Question>,
    /// Optimiser steps.
    pub steps: usize,
    /// Questions per step.
    pub prompts_per_step: usize,
    /// Decides every draw.
    pub seed: u64,
    /// Rollouts, rewards, advantages.
    pub step: StepSettings,
    /// How evaluation questions are answered.
    pub evaluate: EvaluateSettings,
    /// What is true of the evaluation's world, where somebody knows.
    pub truth: Option<Arc<dyn Truth>>,
    /// System prompts.
    pub prompts: SystemPrompts,
    /// Steps between checkpoints.
    pub checkpoint_every: usize,
    /// Newest checkpoints kept.
    pub checkpoints_kept: usize,
    /// What pays the completions.
    pub rewards: RewardNames,
    /// What verifiers cost.
    pub prices: Prices,
}

/// What pays the completions of a run, by name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RewardNames {
    /// The sentence rule, or several: `first`, `first+min`.
    pub rule: String,
    /// Of each of them.
    pub weights: Vec<f64>,
    /// The judge.
    pub judge: String,
    /// The format check.
    pub format: String,
}

impl RewardNames {
    /// Returns each part's name with its weight: of rules (λ_c), judge (λ_j) and format check (λ_f).
    #[must_use]
    pub fn with_weights(&self, lambdas: [f64; 3]) -> String {
        let Self { rule, weights, judge, format } = self;
        let [corver, of_judge, of_format] = lambdas;
        let of_rules: Vec<String> =
            weights.iter().map(|weight| (weight * corver).to_string()).collect();
        format!(
            "rule {rule} ({}), judge {judge} ({of_judge}), format {format} ({of_format})",
            of_rules.join(", ")
        )
    }
}

/// The system prompts of a run. Those of evaluation differ: the paper reminds a trained policy not
/// to repeat itself.
#[derive(Debug, Clone, Default)]
pub struct SystemPrompts {
    /// Training rollouts.
    pub train: String,
    /// Evaluation of the raw policy.
    pub eval_raw: String,
    /// Evaluation of the trained policy.
    pub eval_trained: String,
}

/// Who wants to know how a run goes.
pub trait Observer {
    /// `done` of `total` evaluation questions are answered.
    fn on_eval_progress(&mut self, done: usize, total: usize);
    /// The `which` policy, raw or trained, has been evaluated.
    fn on_eval_end(&mut self, which: &'static str, evaluation: &Evaluation);
    /// Something is wrong with the run; what to change is said too.
    fn on_warning(&mut self, warning: &str);
    /// A step ended; see [`step_metrics`] for the names.
    fn on_step_end(&mut self, metrics: &Map<String, Value>, total: usize);
    /// QueryCounts after every step, and when one or an evaluation is broken off: whether to write a
    /// checkpoint and stop.
    fn should_stop(&self) -> bool {
        false
    }
}

/// Contents of `summary.json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// What paid the completions.
    #[serde(flatten)]
    pub rewards: RewardNames,
    /// λ_c, weight of the rules together.
    pub lambda_corver: f64,
    /// λ_j, weight of the judge.
    pub lambda_judge: f64,
    /// λ_f, weight of the format check.
    pub lambda_format: f64,
    /// Of the run.
    pub seed: u64,
    /// Optimiser steps taken.
    pub steps: usize,
    /// Evaluation of the raw policy. `None`: there were no evaluation questions.
    pub before: Option<Evaluation>,
    /// Evaluation of the trained policy. `None`: there were no evaluation questions.
    pub after: Option<Evaluation>,
    /// Evaluations and steps, without start-up; over all processes where the run was resumed.
    pub seconds_total: f64,
    /// Mean wall-clock of a step.
    pub seconds_per_step: f64,
    /// Reward's part of it.
    pub reward_seconds_per_step: f64,
    /// Completions of a second of the steps. `None` before the first step.
    pub samples_per_second: Option<f64>,
    /// Questions of the rules.
    pub asked_per_step: QueryCounts,
    /// Money for them, at the prices that were set.
    pub cost_per_step: f64,
}

/// Why a run stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainError {
    /// There is nothing to train on, or in one of its phases.
    #[error("there are no training questions")]
    NoQuestions,
    /// A setting is too small.
    #[error("`{key}` is {got}; it must be at least {least}")]
    Setting {
        /// Which setting.
        key: &'static str,
        /// Its value.
        got: usize,
        /// The least value that makes sense.
        least: usize,
    },
    /// A step failed.
    #[error("step {step}")]
    Step {
        /// Counted from 1.
        step: usize,
        /// Where in the step.
        source: StepError,
    },
    /// An evaluation failed.
    #[error("evaluating the {which} policy")]
    Evaluate {
        /// Raw or trained.
        which: &'static str,
        /// Why.
        source: EvaluateError,
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
    /// The observer wanted it. There is a checkpoint of every step that was taken.
    #[error("stopped after step {step}, as asked")]
    Stopped {
        /// The last step taken, counted from 1; 0 before the first.
        step: usize,
    },
}

/// An evaluation as it is kept in the run's folder.
#[derive(Serialize, Deserialize)]
struct SavedEvaluation {
    #[serde(flatten)]
    evaluation: Evaluation,
    seconds: f64,
}

/// Runs `plan` from step `steps_done` on (0 for a new run) and writes `summary.json` at the end.
///
/// # Errors
/// Where a part fails, the folder cannot be written, or `observer` stops the run. What was written
/// until then stays; the run can be resumed.
pub fn train(
    policy: &mut dyn Learner,
    scorers: &mut Scorers<'_, '_>,
    plan: &Plan,
    run: &RunDir,
    steps_done: usize,
    observer: &mut dyn Observer,
) -> Result<Summary, TrainError> {
    plan.check()?;
    // Steps that are taken again were paid for too.
    scorers.backends.add_prior_usage(StepLog::read(run)?.usage());
    run.rewind_logs(steps_done)?;
    let mut log = StepLog::read(run)?;
    let before = match run.read_json::<SavedEvaluation>(BEFORE)? {
        Some(kept) => Some(kept),
        None => evaluated(policy, scorers, plan, ("raw", BEFORE), run, steps_done, observer)?,
    };

    policy.set_system_prompt(&plan.prompts.train);
    for number in steps_done..plan.steps {
        let start = Instant::now();
        let (steps, phase) = plan.train.phase(number, plan.steps);
        let chosen =
            questions_of_step(phase.len(), plan.prompts_per_step, number - steps.start, plan.seed);
        let questions: Vec<Question> = chosen
            .into_iter()
            .map(|index| plan.train.questions[phase.start + index].clone())
            .collect();
        let report =
            match step(policy, scorers, &questions, &plan.step, seed_of_step(plan.seed, number)) {
                // The step is left as if it had not begun.
                Err(_) if observer.should_stop() => {
                    if number > steps_done {
                        save(policy, plan, run, number)?;
                    }
                    return Err(TrainError::Stopped { step: number });
                }
                Err(source) => {
                    // A stage before the update failed (an engine or a server of counts that is
                    // away, say): the policy is as the last step left it, and is kept. A checkpoint
                    // that cannot be written does not hide why the step failed.
                    if number > steps_done
                        && !matches!(source, StepError::Update(_))
                        && let Err(error) = save(policy, plan, run, number)
                    {
                        observer.on_warning(&format!("step {number} has no checkpoint: {error}"));
                    }
                    return Err(TrainError::Step { step: number + 1, source });
                }
                Ok(report) => report,
            };
        log.num_tokens +=
            report.rollouts.iter().map(|rollout| rollout.tokens.len() as u64).sum::<u64>();
        let metrics = step_metrics(&Step {
            number: number + 1,
            num_tokens: log.num_tokens,
            seconds: start.elapsed().as_secs_f64(),
            rule: &plan.rewards.rule,
            update: &report.update,
            report: Some(&report),
        });
        log.add(&metrics);

        let mut traces = Vec::with_capacity(report.completions.len());
        for completion in &report.completions {
            traces.push(json!({"step": number + 1, "trace": completion.trace}));
        }
        run.append(TRACES, traces)?;
        run.append_metrics(&metrics)?;
        observer.on_step_end(&metrics, plan.steps);
        log.warnings.after(&metrics).iter().for_each(|warning| observer.on_warning(warning));
        let last = number + 1 == plan.steps;
        let stop = !last && observer.should_stop();
        if last || stop || (number + 1).is_multiple_of(plan.checkpoint_every) {
            save(policy, plan, run, number + 1)?;
        }
        if stop {
            return Err(TrainError::Stopped { step: number + 1 });
        }
    }

    let after = evaluated(policy, scorers, plan, ("trained", AFTER), run, plan.steps, observer)?;
    let steps = log.steps.max(1) as f64;
    let asked = QueryCounts::of(|name| log.sum(name) / steps);
    let seconds = log.sum("step_time");
    let evaluations: f64 = [&before, &after].into_iter().flatten().map(|kept| kept.seconds).sum();
    let summary = Summary {
        rewards: plan.rewards.clone(),
        lambda_corver: plan.step.rewards.lambda_corver,
        lambda_judge: plan.step.rewards.lambda_judge,
        lambda_format: plan.step.rewards.lambda_format,
        seed: plan.seed,
        steps: log.steps,
        before: before.map(|kept| kept.evaluation),
        after: after.map(|kept| kept.evaluation),
        seconds_total: seconds + evaluations,
        seconds_per_step: seconds / steps,
        samples_per_second: (seconds > 0.0)
            .then(|| steps * plan.samples_per_step() as f64 / seconds),
        reward_seconds_per_step: log.sum("seconds/reward") / steps,
        asked_per_step: asked,
        cost_per_step: asked.cost(&plan.prices),
    };
    run.finish(&summary)?;
    Ok(summary)
}

fn save(
    policy: &mut dyn Learner,
    plan: &Plan,
    run: &RunDir,
    step: usize,
) -> Result<(), TrainError> {
    let saved = policy.save(&run.checkpoints(), plan.checkpoints_kept);
    saved.map_err(|source| TrainError::Checkpoint { step, source })
}

const BEFORE: &str = "evaluation_before.json";
const AFTER: &str = "evaluation_after.json";

impl Plan {
    /// Returns the number of completions of a step.
    fn samples_per_step(&self) -> usize {
        self.prompts_per_step * self.step.sampling.num_generations
    }

    /// Whether this can be run at all; [`train`] asks too, but by then the run has a folder.
    ///
    /// # Errors
    /// Without questions, or with a setting below its least value.
    pub fn check(&self) -> Result<(), TrainError> {
        if self.train.has_empty_phase() {
            return Err(TrainError::NoQuestions);
        }
        let settings = [
            ("run.steps", self.steps, 1),
            ("question.prompts_per_step", self.prompts_per_step, 1),
            (
                "rollout.num_generations",
                self.step.sampling.num_generations,
                self.step.estimator.min_group_size(),
            ),
            ("rollout.max_completion_length", self.step.sampling.max_completion_length, 1),
            ("checkpoint.every", self.checkpoint_every, 1),
            ("checkpoint.keep", self.checkpoints_kept, 1),
        ];
        match settings.into_iter().find(|(_, value, least)| value < least) {
            Some((key, got, least)) => Err(TrainError::Setting { key, got, least }),
            None => Ok(()),
        }
    }
}

fn evaluated(
    policy: &mut dyn Learner,
    scorers: &mut Scorers<'_, '_>,
    plan: &Plan,
    (which, name): (&'static str, &str),
    run: &RunDir,
    steps_done: usize,
    observer: &mut dyn Observer,
) -> Result<Option<SavedEvaluation>, TrainError> {
    if plan.eval.is_empty() {
        return Ok(None);
    }
    let start = Instant::now();
    policy.set_system_prompt(if name == BEFORE {
        &plan.prompts.eval_raw
    } else {
        &plan.prompts.eval_trained
    });
    let total = plan.eval.len();
    let mut progress = |done| observer.on_eval_progress(done, total);
    let how = EvaluatePlan {
        settings: plan.evaluate,
        compatibility: plan.step.rewards.compatibility,
        truth: plan.truth.as_deref(),
        seed: plan.seed,
    };
    let graded = evaluate(policy, Some(scorers), &plan.eval, &how, &mut progress);
    let (evaluation, answers): (Evaluation, Vec<GradedAnswer>) = match graded {
        Err(_) if observer.should_stop() => return Err(TrainError::Stopped { step: steps_done }),
        graded => graded.map_err(|source| TrainError::Evaluate { which, source })?,
    };
    run.write_lines(&format!("answers_{which}.jsonl"), &answers)?;
    let kept = SavedEvaluation { evaluation, seconds: start.elapsed().as_secs_f64() };
    run.write_json(name, &kept)?;
    observer.on_eval_end(which, &kept.evaluation);
    Ok(Some(kept))
}

/// Sums over the steps of a run, those before a resume included.
#[derive(Default)]
struct StepLog {
    steps: usize,
    num_tokens: u64,
    /// Sum of each metric over the steps.
    sums: BTreeMap<String, f64>,
    warnings: Warnings,
}

impl StepLog {
    fn read(run: &RunDir) -> Result<Self, TrainError> {
        let mut log = Self::default();
        for metrics in run.read_lines::<Map<String, Value>>(METRICS_LOG)? {
            log.num_tokens =
                metrics.get("num_tokens").and_then(Value::as_f64).unwrap_or(0.0) as u64;
            log.add(&metrics);
            log.warnings.after(&metrics); // they were told when they were new
        }
        Ok(log)
    }

    fn add(&mut self, metrics: &Map<String, Value>) {
        self.steps += 1;
        for (name, value) in metrics {
            *self.sums.entry(name.clone()).or_default() += value.as_f64().unwrap_or(0.0);
        }
    }

    fn sum(&self, name: &str) -> f64 {
        self.sums.get(name).copied().unwrap_or(0.0)
    }

    /// Returns the tokens of all chats.
    fn usage(&self) -> Usage {
        Usage {
            prompt_tokens: self.sum("verify/prompt_tokens") as u64,
            completion_tokens: self.sum("verify/completion_tokens") as u64,
        }
    }
}
