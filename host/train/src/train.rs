//! A training run: evaluation, optimiser steps, evaluation again. Its results are in the run's folder.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use corver_core::{
    BoxError, Learner, Question, Scorers, StepError, StepReport, StepSettings, Usage, step,
};
use corver_settings::{ChatPrices, EvaluateSettings, PriceSection};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use corver_data::Curriculum;

use super::cost::QueryCounts;
use super::metrics::{StepMeasurements, step_metrics};
use super::warnings::Warnings;
use corver_eval::{EvaluatePlan, Evaluation, FactChecker, evaluate};
use corver_runs::data_order::{questions_of_step, seed_of_step};
use corver_runs::folder::{
    ANSWERS_AFTER, ANSWERS_BEFORE, EVALUATION_AFTER, EVALUATION_BEFORE, METRICS_LOG, RunDir,
    RunDirError, TRACES,
};

/// Inputs and settings of a run.
#[derive(Debug, Clone)]
pub struct TrainPlan {
    /// Questions to train on.
    pub train: Curriculum,
    /// Questions to evaluate on. If empty, nothing is evaluated.
    pub eval: Vec<Question>,
    /// Number of steps, 1 or more.
    pub steps: usize,
    /// Questions per step, 1 or more.
    pub prompts_per_step: usize,
    /// Seed of every draw.
    pub seed: u64,
    /// Settings of rollouts, rewards and advantages.
    pub step: StepSettings,
    /// Settings of the evaluations.
    pub evaluate: EvaluateSettings,
    /// Facts of the evaluation's world. `None`: they are not known.
    pub facts: Option<Arc<dyn FactChecker>>,
    /// System prompts of training and evaluation.
    pub prompts: SystemPrompts,
    /// Steps between checkpoints, 1 or more.
    pub checkpoint_every: usize,
    /// Number of newest checkpoints to retain, 1 or more.
    pub checkpoints_kept: usize,
    /// Names of the rules that score the completions.
    pub rewards: RewardNames,
    /// Prices of the requests of rules for counts, NLI and passages.
    pub prices: PriceSection,
    /// Prices of the tokens of their prompts to the chat model, and of its replies.
    pub chat_prices: ChatPrices,
}

/// Names of the rules that score the completions of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RewardNames {
    /// Name of the sentence rule, or of several: `first`, `first+min`.
    pub rule: String,
    /// Weight of each sentence rule.
    pub weights: Vec<f64>,
    /// Name of the answer judge.
    pub judge: String,
    /// Name of the format check.
    pub format: String,
}

impl RewardNames {
    /// Returns each rule's name with its weight: of rules (λ_c), judge (λ_j) and format check (λ_f).
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

/// System prompts of a run. The evaluations have their own: the paper reminds a trained policy not
/// to repeat itself.
#[derive(Debug, Clone, Default)]
pub struct SystemPrompts {
    /// System prompt of the training rollouts.
    pub train: String,
    /// System prompt of the evaluation before training.
    pub eval_before: String,
    /// System prompt of the evaluation after training.
    pub eval_after: String,
}

/// Receiver of a run's progress events.
pub trait Observer {
    /// Reports that `done` of `total` evaluation questions are answered.
    fn on_eval_progress(&mut self, done: usize, total: usize);
    /// Reports an evaluation; `when` is `before` or `after` training.
    fn on_eval_end(&mut self, when: &'static str, evaluation: &Evaluation);
    /// Reports a problem of the run, with its remedy.
    fn on_warning(&mut self, warning: &str);
    /// Reports the metrics of a step, named as in [`step_metrics`], and the number of steps.
    fn on_step_end(&mut self, metrics: &Map<String, Value>, total: usize);
    /// Returns true if the run is to write a checkpoint and stop. Called after every step, and if a
    /// step or an evaluation is interrupted.
    fn should_stop(&self) -> bool {
        false
    }
}

/// Results of a run, the contents of `summary.json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RunSummary {
    /// Names of the rules that scored the completions.
    #[serde(flatten)]
    pub rewards: RewardNames,
    /// λ_c, weight of the sentence rules together.
    pub lambda_corver: f64,
    /// λ_j, weight of the answer judge.
    pub lambda_judge: f64,
    /// λ_f, weight of the format check.
    pub lambda_format: f64,
    /// Seed of the run.
    pub seed: u64,
    /// Number of steps taken.
    pub steps: usize,
    /// Evaluation before training. `None`: there were no evaluation questions.
    pub before: Option<Evaluation>,
    /// Evaluation after training. `None`: there were no evaluation questions.
    pub after: Option<Evaluation>,
    /// Time of evaluations and steps without start-up, seconds; includes the processes before a
    /// resume.
    pub seconds_total: f64,
    /// Mean wall-clock time of a step, seconds.
    pub seconds_per_step: f64,
    /// Mean time of the reward in a step, seconds.
    pub reward_seconds_per_step: f64,
    /// Completions per second of the steps. `None`: no step was taken.
    pub samples_per_second: Option<f64>,
    /// Mean number of requests of the rules in a step.
    pub queries_per_step: QueryCounts,
    /// Mean cost of these requests in a step, in the currency of the prices.
    pub cost_per_step: f64,
}

/// Error of a run, or the request to stop it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainError {
    /// The plan cannot be run; the message says what to change.
    #[error("{0}")]
    InvalidPlan(String),
    /// A stage of a step failed.
    #[error("step {step}")]
    Step {
        /// Number of the step, counted from 1.
        step: usize,
        /// Stage that failed, with its cause.
        source: StepError,
    },
    /// An evaluation failed, or a checkpoint could not be written.
    #[error("{action}")]
    Failed {
        /// Task of the run at that time.
        action: String,
        /// Error of the policy or the evaluation.
        source: BoxError,
    },
    /// The run's folder could not be read or written.
    #[error(transparent)]
    RunDir(#[from] RunDirError),
    /// The observer requested it. There is a checkpoint of every step that was taken.
    #[error("stopped after step {step}, as requested")]
    Stopped {
        /// Number of the last step taken, counted from 1; 0 before the first.
        step: usize,
    },
}

/// An evaluation as the run's folder has it.
#[derive(Serialize, Deserialize)]
struct SavedEvaluation {
    #[serde(flatten)]
    evaluation: Evaluation,
    seconds: f64,
}

/// Runs `plan` from step `steps_done` on (0 for a new run) and writes `summary.json` at the end.
///
/// # Errors
/// Fails if a step or an evaluation fails, the folder cannot be written, or `observer` stops the
/// run. All that was written remains; the run can be resumed.
pub fn train(
    policy: &mut dyn Learner,
    scorers: &mut Scorers<'_, '_>,
    plan: &TrainPlan,
    run: &RunDir,
    steps_done: usize,
    observer: &mut dyn Observer,
) -> Result<RunSummary, TrainError> {
    plan.check()?;
    run.rewind_logs(steps_done)?;
    let log = StepLog::read(run)?;
    // Without the steps that are taken again: their replies are cached, and charged when used.
    scorers.backends.add_prior_usage(log.usage());
    let mut trainer = Trainer { policy, scorers, plan, run, steps_done, observer, log };

    let before = match run.read_json(EvaluatedPolicy::Before.file())? {
        Some(saved) => Some(saved),
        None if steps_done > 0 && !plan.eval.is_empty() => {
            trainer.observer.on_warning(&format!(
                "{} is missing, and the policy before training is gone: the run has only the \
                 evaluation after training",
                EvaluatedPolicy::Before.file()
            ));
            None
        }
        None => trainer.evaluate(EvaluatedPolicy::Before, steps_done)?,
    };
    trainer.policy.set_system_prompt(&plan.prompts.train);
    for number in steps_done..plan.steps {
        trainer.take_step(number)?;
    }
    let after = trainer.evaluate(EvaluatedPolicy::After, plan.steps)?;
    let summary = trainer.summary(before, after);
    run.finish(&summary)?;
    Ok(summary)
}

/// Policy of an evaluation.
#[derive(Debug, Clone, Copy)]
enum EvaluatedPolicy {
    /// The policy before the first step.
    Before,
    /// The policy after the last step.
    After,
}

impl EvaluatedPolicy {
    /// Returns the name in messages.
    fn name(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::After => "after",
        }
    }

    /// Returns the file of the evaluation in the run's folder.
    fn file(self) -> &'static str {
        match self {
            Self::Before => EVALUATION_BEFORE,
            Self::After => EVALUATION_AFTER,
        }
    }

    /// Returns the log of the answers in the run's folder.
    fn answers_log(self) -> &'static str {
        match self {
            Self::Before => ANSWERS_BEFORE,
            Self::After => ANSWERS_AFTER,
        }
    }
}

impl TrainPlan {
    /// Returns the number of completions of a step.
    fn samples_per_step(&self) -> usize {
        self.prompts_per_step * self.step.sampling.num_generations
    }

    /// Checks that the plan can be run. [`train`] does this too, but only once the run has a folder.
    ///
    /// # Errors
    /// Fails without questions, or with a setting below its smallest value.
    pub fn check(&self) -> Result<(), TrainError> {
        if self.train.has_empty_phase() {
            return Err(TrainError::InvalidPlan("there are no training questions".to_owned()));
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
        for (key, value, least) in settings {
            if value < least {
                let problem = format!("`{key}` is {value}; it must be at least {least}");
                return Err(TrainError::InvalidPlan(problem));
            }
        }
        Ok(())
    }
}

/// A run in progress.
struct Trainer<'a, 'b, 'c> {
    policy: &'a mut dyn Learner,
    scorers: &'a mut Scorers<'b, 'c>,
    plan: &'a TrainPlan,
    run: &'a RunDir,
    /// Number of steps before this process.
    steps_done: usize,
    observer: &'a mut dyn Observer,
    log: StepLog,
}

impl Trainer<'_, '_, '_> {
    /// Takes the step of this number, counted from 0, and logs it.
    fn take_step(&mut self, number: usize) -> Result<(), TrainError> {
        let start = Instant::now();
        let questions = self.questions(number);
        let seed = seed_of_step(self.plan.seed, number);
        let result = step(self.policy, self.scorers, &questions, &self.plan.step, seed);
        let report = match result {
            Ok(report) => report,
            Err(error) => return Err(self.abort_step(number, error)),
        };
        let metrics = self.log_step(number, start, &report)?;
        self.observer.on_step_end(&metrics, self.plan.steps);
        for warning in self.log.warnings.after(&metrics) {
            self.observer.on_warning(&warning);
        }

        let is_last = number + 1 == self.plan.steps;
        let stops = !is_last && self.observer.should_stop();
        if is_last || stops || (number + 1).is_multiple_of(self.plan.checkpoint_every) {
            self.save(number + 1)?;
        }
        if stops {
            return Err(TrainError::Stopped { step: number + 1 });
        }
        Ok(())
    }

    /// Returns the questions of a step.
    fn questions(&self, number: usize) -> Vec<Question> {
        let plan = self.plan;
        let phase = plan.train.phase(number, plan.steps);
        let indices = questions_of_step(
            phase.questions.len(),
            plan.prompts_per_step,
            number - phase.steps.start,
            plan.seed,
        );
        let mut questions = Vec::with_capacity(indices.len());
        for index in indices {
            questions.push(plan.train.questions[phase.questions.start + index].clone());
        }
        questions
    }

    /// Writes a checkpoint of the steps before a failed one, and returns the error of the run.
    fn abort_step(&mut self, number: usize, source: StepError) -> TrainError {
        // A failed update may have changed the policy, which is then not that of the last step.
        if matches!(source, StepError::Update(_)) {
            return TrainError::Step { step: number + 1, source };
        }
        let has_new_steps = number > self.steps_done;
        let saved = if has_new_steps { self.save(number) } else { Ok(()) };
        // An interrupted step is as if it had not begun.
        if self.observer.should_stop() {
            return saved.err().unwrap_or(TrainError::Stopped { step: number });
        }
        // A checkpoint that cannot be written must not hide the error of the step.
        if let Err(error) = saved {
            self.observer.on_warning(&format!("step {number} has no checkpoint: {error}"));
        }
        TrainError::Step { step: number + 1, source }
    }

    /// Appends the traces and the metrics of a step to the logs, and returns the metrics.
    fn log_step(
        &mut self,
        number: usize,
        start: Instant,
        report: &StepReport,
    ) -> Result<Map<String, Value>, TrainError> {
        for rollout in &report.rollouts {
            self.log.num_tokens += rollout.tokens.len() as u64;
        }
        let metrics = step_metrics(&StepMeasurements {
            number: number + 1,
            num_tokens: self.log.num_tokens,
            seconds: start.elapsed().as_secs_f64(),
            rule: &self.plan.rewards.rule,
            update: &report.update,
            report: Some(report),
        });
        self.log.add(&metrics);

        let mut traces = Vec::with_capacity(report.completions.len());
        for completion in &report.completions {
            traces.push(json!({"step": number + 1, "trace": completion.trace}));
        }
        self.run.append(TRACES, traces)?;
        self.run.append_metrics(&metrics)?;
        Ok(metrics)
    }

    /// Writes the checkpoint of a step, counted from 1.
    fn save(&mut self, step: usize) -> Result<(), TrainError> {
        self.run.sync_logs()?;
        let saved = self.policy.save(&self.run.checkpoints(), self.plan.checkpoints_kept);
        saved.map_err(|source| TrainError::Failed {
            action: format!("writing the checkpoint of step {step}"),
            source,
        })
    }

    /// Evaluates the policy and saves the evaluation with its answers. Returns `None` if there are no
    /// evaluation questions. `step` is the number of steps taken.
    fn evaluate(
        &mut self,
        which: EvaluatedPolicy,
        step: usize,
    ) -> Result<Option<SavedEvaluation>, TrainError> {
        let plan = self.plan;
        if plan.eval.is_empty() {
            return Ok(None);
        }
        let start = Instant::now();
        self.policy.set_system_prompt(match which {
            EvaluatedPolicy::Before => &plan.prompts.eval_before,
            EvaluatedPolicy::After => &plan.prompts.eval_after,
        });
        let evaluate_plan = EvaluatePlan {
            settings: plan.evaluate,
            text: plan.step.rewards.text(),
            facts: plan.facts.as_deref(),
            seed: plan.seed,
        };
        let result =
            evaluate(self.policy, Some(self.scorers), &plan.eval, &evaluate_plan, &mut |done| {
                self.observer.on_eval_progress(done, plan.eval.len());
            });
        let (evaluation, answers) = match result {
            Ok(graded) => graded,
            Err(_) if self.observer.should_stop() => return Err(TrainError::Stopped { step }),
            Err(source) => {
                return Err(TrainError::Failed {
                    action: format!("evaluating {} training", which.name()),
                    source: source.into(),
                });
            }
        };
        self.run.write_lines(which.answers_log(), &answers)?;
        let saved = SavedEvaluation { evaluation, seconds: start.elapsed().as_secs_f64() };
        self.run.write_json(which.file(), &saved)?;
        self.observer.on_eval_end(which.name(), &saved.evaluation);
        Ok(Some(saved))
    }

    /// Returns the contents of `summary.json`.
    fn summary(
        &self,
        before: Option<SavedEvaluation>,
        after: Option<SavedEvaluation>,
    ) -> RunSummary {
        let Self { plan, log, .. } = self;
        let steps = log.steps.max(1) as f64;
        let queries = QueryCounts::from_metrics(|name| log.sum(name) / steps);
        let seconds = log.sum("step_time");
        let evaluations: f64 =
            [&before, &after].into_iter().flatten().map(|saved| saved.seconds).sum();
        RunSummary {
            rewards: plan.rewards.clone(),
            lambda_corver: plan.step.rewards.lambda_corver,
            lambda_judge: plan.step.rewards.lambda_judge,
            lambda_format: plan.step.rewards.lambda_format,
            seed: plan.seed,
            steps: log.steps,
            before: before.map(|saved| saved.evaluation),
            after: after.map(|saved| saved.evaluation),
            seconds_total: seconds + evaluations,
            seconds_per_step: seconds / steps,
            samples_per_second: (seconds > 0.0)
                .then(|| steps * plan.samples_per_step() as f64 / seconds),
            reward_seconds_per_step: log.sum("seconds/reward") / steps,
            queries_per_step: queries,
            cost_per_step: queries.cost(&plan.prices, &plan.chat_prices),
        }
    }
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
            // The process that took the step reported its warnings.
            log.warnings.after(&metrics);
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
            prompt_tokens: self.sum("backends/prompt_tokens") as u64,
            completion_tokens: self.sum("backends/completion_tokens") as u64,
        }
    }
}
