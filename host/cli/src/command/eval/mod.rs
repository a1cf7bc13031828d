//! `corver-host eval`: answers and grades question sets.

mod diff;

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use corver_core::{Backends, Graders, Question, Sampler, Scorers, SentenceScorer as _};
use corver_eval::{
    EvaluatePlan, Evaluation, FactChecker, GradedAnswer, OF_AN_ANSWER, View, evaluate, figures,
    summarize,
};
use corver_reward::config::{self, PolicyConfig, Problems, Resolve};
use corver_reward::parts::{self, Loader, OpenedExtractor, SentenceRules};
use corver_runs::{RunDir, RunManifest, fingerprint, json_fingerprint, text_fingerprint};
use corver_settings::{DEMO, Settings};
use indicatif::ProgressBar;
use serde::Serialize;

use crate::args::{EvalArgs, EvalCommand, PartArgs, RewardArgs};
use crate::engine::{self, Answering};
use crate::output;
use crate::policy;
use crate::questions::{EvalSet, graded_questions, truth_of};
use crate::recording::{self, Origin};
use crate::resumed;
use crate::scoring::{ScoringConfig, extractor_fingerprint};
use crate::settings;

/// Name of a policy without an adapter.
pub const RAW: &str = "raw";

/// A question set, with the name of its file.
struct Set {
    name: String,
    questions: Vec<Question>,
    truth: Option<Arc<dyn FactChecker>>,
}

/// Evaluation of one policy on one set.
#[derive(Debug, Serialize)]
pub struct Evaluated {
    /// Name of the policy.
    pub policy: String,
    /// Name of the set.
    pub questions: String,
    /// Figures of its answers.
    #[serde(flatten)]
    pub evaluation: Evaluation,
}

pub fn run(args: &EvalArgs, json: bool) -> Result<()> {
    if let Some(EvalCommand::Diff { first, second }) = &args.command {
        return diff::run(first, second, json);
    }
    let all = answer(args)?;
    if json {
        return output::json(&all);
    }
    show(&all);
    Ok(())
}

/// Answers every set with every policy, and grades the answers.
pub fn answer(args: &EvalArgs) -> Result<Vec<Evaluated>> {
    check_flags(args)?;
    let (mut settings, config) = config::resolve_with(settings_of(args)?, |settings, problems| {
        EvalConfig::resolve(args, settings, problems)
    })?;
    let device = engine::device(&settings, &config.policy)?;
    let sets = sets(args, config.questions.as_ref(), settings.question.eval_limit)?;
    let policies = policies(args);
    check_names("policies", policies.iter().map(|(name, _)| name))?;
    check_names("question files", sets.iter().map(|set| &set.name))?;
    let model = parts::policy_folder(&config.policy)?;
    let scoring_parts =
        config.scoring.as_ref().map(|config| Scoring::open(args, config)).transpose()?;
    let folder = match &args.out {
        Some(out) => {
            let manifest =
                manifest(args, &settings, device, &model, &sets, scoring_parts.as_ref())?;
            Some(open_folder(args, out, &settings, &manifest)?)
        }
        None => None,
    };
    // Only now, so that a refused folder leaves no recording.
    let mut scoring = scoring_parts.map(|scoring| scoring.recorded(args)).transpose()?;
    policy::choose_threads(&mut settings)?;
    let mut scorers = scoring.as_mut().map(Scoring::scorers);
    let mut questions = Vec::new();
    for set in &sets {
        questions.extend_from_slice(&set.questions);
    }
    let total = policies.len() * questions.len();
    let evaluation = OpenedEval {
        settings: &settings,
        policy: &config.policy,
        model: &model,
        questions,
        folder,
        scratch: tempfile::tempdir().context("making a folder for adapters")?,
        bar: output::progress(total as u64, "answering"),
    };
    let mut all = Vec::new();
    for (name, adapter) in &policies {
        let mut sampler = None;
        for set in &sets {
            all.push(Evaluated {
                policy: name.clone(),
                questions: set.name.clone(),
                evaluation: evaluation.answer_set(
                    set,
                    name,
                    *adapter,
                    &mut sampler,
                    scorers.as_mut(),
                )?,
            });
        }
    }
    evaluation.bar.finish_and_clear();
    Ok(all)
}

/// Fails if a flag has no effect without --supported.
fn check_flags(args: &EvalArgs) -> Result<()> {
    let records = args.recording.record.is_some() || args.recording.replay.is_some();
    ensure!(
        args.supported || !records,
        "--record and --replay are for the requests of --supported"
    );
    let RewardArgs { plugin, parts: reward_parts } = &args.reward;
    let names_reward = !plugin.is_empty() || *reward_parts != PartArgs::default();
    ensure!(
        args.supported || !names_reward,
        "--plugin, --extractor and --index are for --supported"
    );
    Ok(())
}

/// An evaluation with every part open except the policies.
struct OpenedEval<'a> {
    settings: &'a Settings,
    policy: &'a PolicyConfig,
    /// Folder of the model.
    model: &'a Path,
    /// Questions of all sets.
    questions: Vec<Question>,
    /// Folder of the answers. `None`: they are not saved.
    folder: Option<RunDir>,
    /// Folder that adapters are published in for an engine.
    scratch: tempfile::TempDir,
    bar: ProgressBar,
}

impl OpenedEval<'_> {
    /// Answers a set with a policy, and grades the answers. Saved answers are only summarized.
    /// `sampler` is opened for the first set that has none.
    fn answer_set(
        &self,
        set: &Set,
        policy_name: &str,
        adapter: Option<&Path>,
        sampler: &mut Option<Box<dyn Sampler>>,
        scorers: Option<&mut Scorers<'_, '_>>,
    ) -> Result<Evaluation> {
        let Self { settings, folder, bar, .. } = self;
        let file = file_name(policy_name, &set.name);
        let saved_answers: Vec<GradedAnswer> = match folder {
            Some(folder) => folder.read_lines(&file)?,
            None => Vec::new(),
        };
        if !saved_answers.is_empty() {
            bar.inc(set.questions.len() as u64);
            let samples = settings.eval.answers.samples;
            return Ok(summarize(&saved_answers, samples, settings.reward.compatibility));
        }
        let policy = match sampler {
            Some(policy) => policy,
            none => none.insert(self.open_sampler(adapter)?),
        };
        let before = bar.position();
        let mut progress = |done: usize| bar.set_position(before + done as u64);
        let plan = EvaluatePlan {
            settings: settings.eval.answers,
            text: settings.reward.text(),
            facts: set.truth.as_deref(),
            seed: settings.run.seed,
        };
        let (evaluation, answers) =
            evaluate(policy.as_mut(), scorers, &set.questions, &plan, &mut progress)?;
        if let Some(folder) = folder {
            folder.write_lines(&file, &answers)?;
        }
        Ok(evaluation)
    }

    fn open_sampler(&self, adapter: Option<&Path>) -> Result<Box<dyn Sampler>> {
        let Self { settings, policy, model, questions, scratch, bar, .. } = self;
        let suffix = if adapter.is_some() { settings.eval.trained_suffix.as_str() } else { "" };
        let system_prompt = format!("{}{suffix}", settings.eval.system_prompt);
        let answering =
            Answering { adapter, system_prompt: &system_prompt, scratch: scratch.path() };
        let sampling = settings.eval.answers.sampling();
        engine::open_sampler(
            settings,
            policy,
            model,
            answering,
            (questions, &sampling),
            output::decoding(bar, None),
        )
    }
}

/// Parts of an evaluation.
struct EvalConfig {
    policy: PolicyConfig,
    /// Configured questions. `None`: the command line names the question sets.
    questions: Option<EvalSet>,
    /// Parts that --supported needs. `None` without it.
    scoring: Option<ScoringConfig>,
}

impl EvalConfig {
    fn resolve(args: &EvalArgs, settings: &mut Settings, problems: &mut Problems) -> Option<Self> {
        let policy = PolicyConfig::resolve(settings, problems);
        let questions = match args.questions.is_empty() {
            true => EvalSet::resolve(settings, problems).map(Some),
            false => Some(None),
        };
        if args.questions.is_empty() {
            problems.required("question.eval", settings.question.eval.as_ref(), "--questions FILE");
        }
        if args.adapter.is_empty() && !args.raw && settings.policy.adapter.is_some() {
            problems
                .add("policy.adapter", "an evaluation needs --adapter for it, or --raw without it");
        }
        let scoring = match args.supported {
            false => Some(None),
            true => ScoringConfig::resolve(&args.recording, settings, problems).map(Some),
        };
        Some(Self { policy: policy?, questions: questions?, scoring: scoring? })
    }
}

fn settings_of(args: &EvalArgs) -> Result<Settings> {
    let mut layers = settings::layers(&args.settings, &[&args.policy, &args.reward])?;
    if let Some(limit) = args.limit {
        layers.set("question.eval_limit", limit);
    }
    if let Some(samples) = args.samples {
        layers.set("eval.answers.samples", samples);
    }
    let is_own = |path: &PathBuf| path.as_os_str() != DEMO;
    if !args.adapter.is_empty() || args.questions.iter().any(is_own) {
        layers.add_own_part();
    }
    settings::finish(&layers)
}

/// Returns the configured question set, or those that the command line names, with up to `limit`
/// questions of each.
fn sets(args: &EvalArgs, configured: Option<&EvalSet>, limit: Option<usize>) -> Result<Vec<Set>> {
    if let Some(configured) = configured {
        let questions = configured.read()?;
        return Ok(vec![Set { name: "eval".to_owned(), questions, truth: configured.truth() }]);
    }
    let mut sets = Vec::new();
    for path in &args.questions {
        let (name, mut questions) = graded_questions(path)?;
        if let Some(limit) = limit.filter(|_| !args.all_questions) {
            questions.truncate(limit);
        }
        sets.push(Set { name, questions, truth: truth_of(path) });
    }
    Ok(sets)
}

/// Returns the raw model and the adapters with their names: the last folder of the path, and for a
/// checkpoint also the run's.
fn policies(args: &EvalArgs) -> Vec<(String, Option<&Path>)> {
    let named = |adapter: &'_ PathBuf| {
        let parts: Vec<_> =
            adapter.components().map(|part| part.as_os_str().to_string_lossy()).collect();
        match parts.as_slice() {
            [.., run, folder, step] if folder == "checkpoints" => format!("{run}-{step}"),
            [.., last] => last.to_string(),
            [] => String::new(),
        }
    };
    let raw = (args.raw || args.adapter.is_empty()).then(|| (RAW.to_owned(), None));
    raw.into_iter()
        .chain(args.adapter.iter().map(|adapter| (named(adapter), Some(adapter.as_path()))))
        .collect()
}

/// Fails if two names are the same: their answers would be in the same file.
pub fn check_names<'a>(what: &str, names: impl Iterator<Item = &'a String>) -> Result<()> {
    let mut seen = HashSet::new();
    for name in names {
        ensure!(seen.insert(name), "two of the {what} are called {name}");
    }
    Ok(())
}

/// Open parts that measure the support of sentences.
struct Scoring {
    rules: SentenceRules,
    graders: Graders,
    origin: Origin,
    backends: Backends<'static>,
    extractor: OpenedExtractor,
}

impl Scoring {
    fn open(args: &EvalArgs, config: &ScoringConfig) -> Result<Self> {
        let rules = Loader::new(&config.rules)?.sentence_rules()?;
        check_counts_alone(&rules)?;
        recording::check(&args.recording, args.resume)?;
        let (origin, backends) = recording::open(&config.answers, &args.recording)?;
        let extractor = parts::open_extractor(&config.extractor)?;
        Ok(Self { rules, graders: Graders::default(), origin, backends, extractor })
    }

    /// Adds a recorder if --record is given.
    fn recorded(mut self, args: &EvalArgs) -> Result<Self> {
        self.backends = recording::recorded(&args.recording, args.resume, self.backends)?;
        Ok(self)
    }

    fn scorers(&mut self) -> Scorers<'_, 'static> {
        Scorers {
            extractor: &mut self.extractor,
            backends: &mut self.backends,
            sentence_scorer: &mut self.rules,
            graders: &mut self.graders,
        }
    }
}

/// Fails if a rule needs more than counts: an evaluation has nothing else.
fn check_counts_alone(rules: &SentenceRules) -> Result<()> {
    let names: Vec<&str> = rules.loaded.iter().map(|rule| rule.name.as_str()).collect();
    if let Some(capability) = rules.required_capabilities().first() {
        bail!(
            "`rule.plugin`: {} requires {capability}, but --supported only counts; name a rule \
             that needs counts alone, such as first.wasm",
            names.join("+")
        );
    }
    Ok(())
}

fn file_name(policy: &str, questions: &str) -> String {
    format!("{policy}.{questions}.jsonl")
}

/// Returns the fingerprints of everything that decides answers and their sentences' support.
fn manifest(
    args: &EvalArgs,
    settings: &Settings,
    device: String,
    model: &Path,
    sets: &[Set],
    scoring: Option<&Scoring>,
) -> Result<RunManifest> {
    let mut manifest = resumed::manifest();
    manifest.set(resumed::CONFIGURATION, text_fingerprint(&toml::to_string(settings)?));
    manifest.set("device", device);
    manifest.set("model", fingerprint(model)?);
    if let Some(Scoring { rules, origin, extractor, .. }) = scoring {
        manifest.set("plugin", &rules.hash);
        origin.record_in(&mut manifest)?;
        manifest.set("extractor", extractor_fingerprint(extractor)?);
    }
    for (name, adapter) in policies(args) {
        if let Some(adapter) = adapter {
            manifest.set(&format!("adapter {name}"), fingerprint(adapter)?);
        }
    }
    for Set { name, questions, .. } in sets {
        manifest.set(&format!("questions {name}"), json_fingerprint(questions)?);
    }
    Ok(manifest)
}

fn open_folder(
    args: &EvalArgs,
    out: &Path,
    settings: &Settings,
    manifest: &RunManifest,
) -> Result<RunDir> {
    let resolved = toml::to_string_pretty(settings)?;
    if args.resume {
        resumed::open(out, manifest, &resolved, &[])
    } else {
        Ok(RunDir::create(out, &resolved, manifest)?)
    }
}

fn show(all: &[Evaluated]) {
    let evaluations: Vec<&Evaluation> = all.iter().map(|one| &one.evaluation).collect();
    let shown = figures(View::Evaluation, &evaluations);
    let ks: BTreeSet<usize> =
        evaluations.iter().flat_map(|one| one.pass_at.keys().copied()).collect();
    let pass: Vec<String> = ks.iter().map(|k| format!("pass@{k}")).collect();
    let mut header = vec!["policy", "questions", "number"];
    header.extend(shown.iter().map(|figure| figure.title));
    header.extend(pass.iter().map(String::as_str));
    let mut rows = Vec::new();
    for Evaluated { policy, questions, evaluation } in all {
        let number = evaluation.grades.total().to_string();
        let mut row = vec![policy.clone(), questions.clone(), number];
        row.extend(shown.iter().map(|figure| figure.written(Some(evaluation))));
        row.extend(ks.iter().map(|k| {
            evaluation.pass_at.get(k).map_or("–".to_owned(), |&share| output::percent(share))
        }));
        rows.push(row);
    }
    output::table(header, rows);
    output::line(OF_AN_ANSWER);
}
