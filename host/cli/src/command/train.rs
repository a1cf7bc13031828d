//! `corver-host train`: trains a policy with a reward rule.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use corver_core::response::{StringMatch, ThinkThenAnswer};
use corver_core::{
    Backends, CreditKind, Estimator, Graders, Granularity, ImportanceLevel, Learner, Scorers,
    SentenceScorer as _, StepSettings,
};
use corver_data::Curriculum;
use corver_eval::{OF_AN_ANSWER, View, figures};
use corver_reward::config::{self, Grader, PolicyConfig, Problems, Resolve};
use corver_reward::parts::{self, Loader, OpenedExtractor, SentenceRules};
use corver_runs::{RunDir, RunDirError, RunManifest, fingerprint, folder, json_fingerprint};
use corver_settings::Settings;
use corver_train::{RewardNames, RunSummary, SystemPrompts, TrainError, TrainPlan, train};
use serde_json::json;

use super::report;
use crate::args::{RecordingArgs, TrainArgs};
use crate::engine;
use crate::engine_policy::EnginePolicy;
use crate::interrupt::Interrupt;
use crate::output;
use crate::policy::{self, MemoryPlan, Policy};
use crate::questions::{EvalSet, TrainSets};
use crate::recording;
use crate::resumed;
use crate::scoring::{ScoringConfig, extractor_fingerprint, grader_fingerprint};
use crate::screen::Screen;
use crate::settings;

/// Settings that may change when a run is resumed: the server of the same model, the endpoint and
/// budget of the chat model, and `check`, which is not about training.
const FREE: [&str; 18] = [
    "engine.url",
    "engine.model",
    "engine.adapters",
    "engine.adapters_on_server",
    "engine.token_file",
    "engine.concurrency",
    "engine.timeout_s",
    "engine.retry_timeout_s",
    "backends.chat.key_file",
    "backends.chat.key_variable",
    "backends.chat.connections",
    "backends.chat.requests_per_second",
    "backends.chat.timeout_s",
    "backends.chat.retry_timeout_s",
    "backends.chat.prices",
    "backends.chat.max_cost",
    "backends.price",
    "check",
];

/// Returns the settings that may change when a run is resumed: also its length, unless that decides
/// which questions a step has.
fn free_settings(questions: &Curriculum) -> Vec<&'static str> {
    let mut free = FREE.to_vec();
    if questions.num_phases() == 1 {
        free.push("run.steps");
    }
    free
}

/// Manifest entry with the seed, which the configuration has too.
const SEED: &str = "seed";

pub fn run(args: &TrainArgs, json: bool) -> Result<()> {
    if args.dry_run {
        let mut prepared = PreparedRun::of(args)?;
        prepared.plan_memory(args.resume)?;
        check_parts(&prepared.config, &prepared.settings)?;
        return show_plan(&prepared, json);
    }
    let Some((summary, run)) = train_once(args, &SweepContext::default())? else { return Ok(()) };
    if json {
        output::json(&summary)?;
    } else {
        show(&summary, &run);
    }
    let report = report::write(std::slice::from_ref(&run), None).with_context(|| {
        format!(
            "the run is finished, but not its report; `corver-host report {}` writes it",
            run.display()
        )
    })?;
    if !json {
        output::line(format_args!("the report is in {}", report.display()));
    }
    Ok(())
}

/// Parts of a training run.
pub struct TrainConfig {
    /// Model, adapter and engine.
    pub policy: PolicyConfig,
    /// Questions to train on.
    pub train: TrainSets,
    /// Questions to evaluate with.
    pub eval: EvalSet,
    /// Extractor, rules, and the corpus and capabilities that answer them.
    pub scoring: ScoringConfig,
}

impl TrainConfig {
    /// Resolves every part; with --replay neither corpus nor backends are needed.
    pub fn resolve(
        recording: &RecordingArgs,
        settings: &mut Settings,
        problems: &mut Problems,
    ) -> Option<Self> {
        let policy = PolicyConfig::resolve(settings, problems);
        let train = TrainSets::resolve(settings, problems);
        let eval = EvalSet::resolve(settings, problems);
        let scoring = ScoringConfig::resolve(recording, settings, problems);
        Some(Self { policy: policy?, train: train?, eval: eval?, scoring: scoring? })
    }
}

/// A run with resolved settings, before anything large is loaded.
struct PreparedRun {
    config: TrainConfig,
    /// Settings that the run saves in its folder.
    settings: Settings,
    model: PathBuf,
    /// `None` until [`PreparedRun::plan_memory`].
    memory: Option<MemoryPlan>,
}

impl PreparedRun {
    fn of(args: &TrainArgs) -> Result<Self> {
        let (settings, config) = resolve(args)?;
        let model = parts::policy_folder(&config.policy)?;
        Ok(Self { config, settings, model, memory: None })
    }

    /// Fits the policy into the memory that is free now ([`policy::fit`]).
    fn plan_memory(&mut self, is_resumed: bool) -> Result<()> {
        self.memory =
            policy::fit(&mut self.settings, &self.config.policy, &self.model, is_resumed)?;
        Ok(())
    }

    /// Returns the fingerprints of settings, models, graders and questions.
    fn manifest(&self, plan: &TrainPlan, extractor: &OpenedExtractor) -> Result<RunManifest> {
        let Self { config, settings, model, .. } = self;
        let mut manifest = resumed::manifest_of(settings, &free_settings(&plan.train))?;
        manifest.set("judge", grader_fingerprint(config.scoring.rules.judge.as_ref())?);
        manifest.set("format", grader_fingerprint(config.scoring.rules.format.as_ref())?);
        manifest.set("extractor", extractor_fingerprint(extractor)?);
        if let Some(prompt) = config.scoring.extractor.prompt() {
            manifest.set("extractor's prompt", fingerprint(prompt)?);
        }
        manifest.set("model", fingerprint(model)?);
        if let Some(adapter) = &config.policy.adapter {
            manifest.set("adapter", fingerprint(adapter)?);
        }
        manifest.set("questions", json_fingerprint(&(&plan.train.questions, &plan.eval))?);
        manifest.set(SEED, settings.run.seed.to_string());
        Ok(manifest)
    }

    fn as_toml(&self) -> Result<String> {
        toml::to_string_pretty(&self.settings).context("writing the resolved configuration")
    }
}

fn show_plan(prepared: &PreparedRun, json: bool) -> Result<()> {
    let PreparedRun { settings, memory, .. } = prepared;
    if json {
        return output::json(&json!({ "settings": settings, "memory": memory }));
    }
    output::lines(&prepared.as_toml()?);
    let plan = memory.iter().map(ToString::to_string).collect::<String>();
    plan.lines().for_each(|line| output::line(format_args!("# {line}")));
    Ok(())
}

/// Shared state of a sweep over arms and seeds.
#[derive(Default)]
pub struct SweepContext<'a> {
    /// Interrupt of the whole sweep. `None`: the run listens for its own.
    pub interrupt: Option<&'a Interrupt>,
    /// Folder of an earlier run of the same arm: model, data, rule and index must be the same, and
    /// only the seed may differ. `None`: this is the arm's first run.
    pub like: Option<&'a Path>,
}

/// A run with every part open except the policy, so that errors surface before it is loaded.
struct OpenedRun {
    prepared: PreparedRun,
    plan: TrainPlan,
    rules: SentenceRules,
    graders: Graders,
    /// Backends without a recorder, which is added once the run's folder exists.
    backends: Backends<'static>,
    extractor: OpenedExtractor,
    /// Fingerprints of everything that decides the run's result.
    manifest: RunManifest,
}

impl OpenedRun {
    fn of(args: &TrainArgs) -> Result<Self> {
        let mut prepared = PreparedRun::of(args)?;
        let PreparedRun { config, settings, .. } = &prepared;
        let device = policy::find_device(settings.run.device)?;
        let loader = Loader::new(&config.scoring.rules)?;
        let rules = loader.sentence_rules()?;
        let graders = loader.graders()?;
        let plan = checked_plan(config, settings, &rules)?;
        recording::check(&args.recording, args.resume)?;
        let (origin, backends) = recording::open(&config.scoring.answers, &args.recording)?;
        parts::check_granted(&backends, &rules, &graders)?;
        let extractor = parts::open_extractor(&config.scoring.extractor)?;
        // The extractor's memory is not free for the policy.
        prepared.plan_memory(args.resume)?;
        let mut manifest = prepared.manifest(&plan, &extractor)?;
        manifest.set("plugin", &rules.hash);
        origin.record_in(&mut manifest)?;
        manifest.set("device", device);
        Ok(Self { prepared, plan, rules, graders, backends, extractor, manifest })
    }

    /// Fails if the run in `like` has another manifest, apart from its seed.
    fn check_like(&self, like: &Path) -> Result<()> {
        self.manifest
            .check(like, &[SEED, resumed::CONFIGURATION])
            .with_context(|| format!("the run in {} cannot be repeated", like.display()))
    }
}

/// Fails if a run with these arguments would have another model, data, rule or index than the one in
/// `like`.
pub fn check_like(args: &TrainArgs, like: &Path) -> Result<()> {
    OpenedRun::of(args)?.check_like(like)
}

/// Trains one run, and returns its summary and folder; `None` if it was interrupted, after a note on
/// how to resume.
pub fn train_once(
    args: &TrainArgs,
    sweep: &SweepContext<'_>,
) -> Result<Option<(RunSummary, PathBuf)>> {
    let opened = OpenedRun::of(args)?;
    if let Some(like) = sweep.like {
        opened.check_like(like)?;
    }
    let OpenedRun { prepared, plan, mut rules, mut graders, backends, mut extractor, manifest } =
        opened;
    let resolved = prepared.as_toml()?;
    let PreparedRun { config, settings, model, memory } = prepared;

    let mut engine = engine::open(&settings, &config.policy, &model)?;
    if let Some(engine) = &mut engine {
        engine.check_log_probs(settings.rollout.temperature)?;
        engine.set_system_prompt(&plan.prompts.train);
        engine.check_prompts(&plan.train.questions, &plan.step.sampling)?;
    }
    let mut policy = policy::load_learner(&settings, &config.policy, &model)?;
    if let Some(memory) = &memory {
        policy = policy.with_max_prompts(memory.prompts);
    }
    policy.set_system_prompt(&plan.prompts.train);
    policy.check_prompts(&plan.train.questions, &plan.step.sampling)?;
    // Listens only now: before, there is no run to resume, so Ctrl-C may simply exit.
    let interrupt = match sweep.interrupt {
        Some(interrupt) => interrupt.clone(),
        None => Interrupt::listen()?,
    };
    let (run, steps_done) = open_run(args, &plan, &resolved, &manifest, &mut policy)?;
    let mut backends = recording::recorded(&args.recording, args.resume, backends)?;
    policy.dump_failed_batches_to(run.path());
    let mut scorers = Scorers {
        extractor: &mut extractor,
        backends: &mut backends,
        sentence_scorer: &mut rules,
        graders: &mut graders,
    };
    let mut screen = Screen::new(plan.steps, steps_done, interrupt);
    let mut policy: Box<dyn Learner> = match engine {
        None => {
            policy.set_watch(screen.watch());
            Box::new(policy)
        }
        Some(engine) => {
            let mut policy = EnginePolicy::new(engine, policy, &settings, run.path())?;
            policy.set_watch(screen.watch());
            Box::new(policy)
        }
    };
    output::notes(&screen.bar, memory);
    output::note(
        &screen.bar,
        &format!("rule {}, {} steps, into {}", plan.rewards.rule, plan.steps, run.path().display()),
    );
    let questions = &plan.train.questions;
    let num_without = questions.iter().filter(|question| question.golds.is_empty()).count();
    if num_without > 0 {
        let total = questions.len();
        output::note(
            &screen.bar,
            &format!("{num_without} of {total} questions have no gold: their answer reward is 0"),
        );
    }
    let trained = train(policy.as_mut(), &mut scorers, &plan, &run, steps_done, &mut screen);
    screen.bar.finish_and_clear();
    let resume = format!(
        "`corver-host train --out {} --resume{}` resumes it",
        run.path().display(),
        args.recording.shown()
    );
    match trained {
        Err(TrainError::Stopped { step }) => {
            output::note(
                &screen.bar,
                &format!("stopped after step {step} of {}; {resume}", plan.steps),
            );
            Ok(None)
        }
        // The message says what to do, since resuming alone would fail again.
        Err(error @ TrainError::RunDir(RunDirError::Unusable(_))) => Err(error.into()),
        trained => {
            let summary = trained.with_context(|| format!("the run is unfinished; {resume}"))?;
            Ok(Some((summary, run.path().to_owned())))
        }
    }
}

/// Returns the settings of a run, those that it saved if it is resumed, and the parts they name.
fn resolve(args: &TrainArgs) -> Result<(Settings, TrainConfig)> {
    let mut args = args.clone();
    if args.resume {
        resumed::load_saved_config(&mut args.settings, args.out.as_deref());
    }
    let settings = settings::load(&args.settings, &args.flags())?;
    config::resolve_with(settings, |settings, problems| {
        TrainConfig::resolve(&args.recording, settings, problems)
    })
}

/// Fails if the rules or questions of a run cannot be loaded, or do not fit its settings.
pub fn check_inputs(args: &TrainArgs) -> Result<()> {
    let (settings, config) = resolve(args)?;
    check_parts(&config, &settings)
}

fn check_parts(config: &TrainConfig, settings: &Settings) -> Result<()> {
    let loader = Loader::new(&config.scoring.rules)?;
    loader.graders()?;
    checked_plan(config, settings, &loader.sentence_rules()?).map(drop)
}

/// Returns the plan of a run.
///
/// # Errors
/// Fails if a question set cannot be read or is too small, or the algorithm cannot use the rules'
/// credit.
fn checked_plan(
    config: &TrainConfig,
    settings: &Settings,
    rules: &SentenceRules,
) -> Result<TrainPlan> {
    let plan = plan(config, settings, &rules.name)?;
    check_credit(&plan.step, settings.update.loss.importance_sampling_level, rules)?;
    plan.check()?;
    Ok(plan)
}

/// Fails if the algorithm cannot use the rules' credit. A mean over the completion has no token
/// rewards, and with a weight of 0 no sentence is scored.
fn check_credit(step: &StepSettings, level: ImportanceLevel, rules: &SentenceRules) -> Result<()> {
    let credit = rules.credit();
    let has_one_reward = step.rewards.granularity == Granularity::Response;
    if !step.rewards.sentence_rewards_enabled()
        || (credit == CreditKind::TokenRewards && has_one_reward)
    {
        return Ok(());
    }
    ensure!(
        credit != CreditKind::AdvantageSign || level == ImportanceLevel::Token,
        "{} sets signs of advantages, but GSPO's tokens all get the mean advantage of their \
         completion: set `update.loss.importance_sampling_level = \"token\"`",
        rules.name
    );
    step.estimator.check_credit(credit).map_err(anyhow::Error::from_boxed)
}

fn plan(config: &TrainConfig, settings: &Settings, rule: &str) -> Result<TrainPlan> {
    let rules = &config.scoring.rules;
    let prompt_with_adapter =
        format!("{}{}", settings.eval.system_prompt, settings.eval.trained_suffix);
    Ok(TrainPlan {
        train: config.train.read(settings.run.seed)?,
        eval: config.eval.read()?,
        steps: settings.run.steps,
        prompts_per_step: settings.question.prompts_per_step,
        seed: settings.run.seed,
        step: StepSettings {
            sampling: settings.rollout,
            rewards: settings.reward,
            estimator: Estimator::new(&settings.update, settings.advantage),
        },
        evaluate: settings.eval.answers,
        facts: config.eval.truth(),
        prompts: SystemPrompts {
            train: settings.policy.system_prompt.clone(),
            eval_before: match &config.policy.adapter {
                None => settings.eval.system_prompt.clone(),
                Some(_) => prompt_with_adapter.clone(),
            },
            eval_after: prompt_with_adapter,
        },
        checkpoint_every: settings.checkpoint.every,
        checkpoints_kept: settings.checkpoint.keep,
        rewards: RewardNames {
            rule: rule.to_owned(),
            weights: rules.plugins.iter().map(|plugin| plugin.weight).collect(),
            judge: rules.judge.as_ref().map_or_else(|| StringMatch::NAME.to_owned(), Grader::name),
            format: rules
                .format
                .as_ref()
                .map_or_else(|| ThinkThenAnswer::NAME.to_owned(), Grader::name),
        },
        prices: settings.backends.price,
        chat_prices: settings.backends.chat.prices,
    })
}

fn open_run(
    args: &TrainArgs,
    plan: &TrainPlan,
    resolved: &str,
    manifest: &RunManifest,
    policy: &mut Policy,
) -> Result<(RunDir, usize)> {
    let path = args
        .out
        .clone()
        .unwrap_or_else(|| folder::next_free(Path::new("runs"), &plan.rewards.rule));
    if !args.resume {
        return Ok((RunDir::create(&path, resolved, manifest)?, 0));
    }
    let run = resumed::open(&path, manifest, resolved, &free_settings(&plan.train))?;
    let steps_done = policy::resume(policy, &run.checkpoints())?;
    match run.continue_to(resolved, steps_done, plan.steps) {
        // The length of a curriculum is fixed.
        Err(error @ RunDirError::Finished { .. }) if plan.train.num_phases() == 1 => {
            bail!("{error}; --steps with a larger number extends it")
        }
        continued => continued?,
    }
    Ok((run, steps_done))
}

fn show(summary: &RunSummary, run: &Path) {
    let [before, after] = [&summary.before, &summary.after].map(Option::as_ref);
    let mut rows = Vec::new();
    for figure in
        figures(View::Training, &[before, after].into_iter().flatten().collect::<Vec<_>>())
    {
        rows.push([figure.title.to_owned(), figure.written(before), figure.written(after)]);
    }
    if !rows.is_empty() {
        output::table(["held-out questions, greedy", "before", "after"], rows);
        output::line(OF_AN_ANSWER);
    }
    let lambdas = [summary.lambda_corver, summary.lambda_judge, summary.lambda_format];
    let channels = summary.rewards.with_weights(lambdas);
    output::line(format_args!("{channels}, seed {}", summary.seed));
    output::line(format_args!(
        "{} steps of {:.2} s ({:.0} ms of it reward), {:.0} s in all; everything is in {}",
        summary.steps,
        summary.seconds_per_step,
        1000.0 * summary.reward_seconds_per_step,
        summary.seconds_total,
        run.display()
    ));
}
