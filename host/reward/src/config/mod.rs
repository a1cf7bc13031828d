//! What the settings mean: absolute paths, rules with their weights, known devices and sources. One pass over [`Settings`],
//! which tells every problem at once.
//!
//! ```text
//! place     what a setting names ─▶ absolute paths, sources, rules
//! problems  what is wrong, all of it
//! verification  what rules may ask, and of whom
//! written   back to the settings, for a run to keep
//! ```

mod place;
mod problems;
mod verification;
mod written;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use corver_core::{AdvantageSettings, Algorithm, Device, LearnSettings, Precision, RewardSettings, Sampling, unused};
use corver_corpus::CnfOptions;
use corver_counts::{RemoteSettings, Source};
use corver_rules::Limits;
use corver_study::data::QuestionPlace;
use corver_study::eval::FilterSettings;
use corver_study::sft::SftSettings;
use serde_json::{Map, Value};

use crate::check::CheckSettings;
use crate::hub;
use crate::plugin::{self, Plugin};
use crate::settings::{
    self, CheckpointSection, EngineKind, EngineSection, EvalSection, ExtractSection, GraderSection, Settings,
    ShareSection,
};

pub use place::{DemoOr, Place, model, questions, sources};
use place::{absolute, file, plugin_path, source, weighted};
pub use problems::Problems;
pub use verification::Verification;

/// What is said of a setting that a command needs.
pub const UNSET: &str = "not set; give a path, or \"demo\"";

/// C of the truncated importance sampling where an engine samples and no other is set. (TRL 1.16 takes 3.)
const IMPORTANCE_CAP: f64 = 2.0;

/// Bytes.
const GIB: f64 = (1u64 << 30) as f64;

/// Resolved settings. What no setting names is `None` or empty: each command needs only some of it.
#[derive(Debug, Clone)]
pub struct Config {
    /// Of every random draw.
    pub seed: u64,
    /// Optimiser steps.
    pub steps: usize,
    /// Where the policy runs.
    pub device: Device,
    /// Of libtorch, on the processor; 0 measures.
    pub threads: usize,
    /// Bytes; `None` where it is what the device has free.
    pub memory: Option<u64>,
    /// Questions to learn from.
    pub train_questions: Option<Place>,
    /// Phases of a curriculum, in their place: files, and how many questions each phase takes of them.
    pub train_phases: Vec<Vec<(Place, usize)>>,
    /// Questions to evaluate with.
    pub eval_questions: Option<Place>,
    /// 0 takes all.
    pub eval_limit: usize,
    /// Questions of a step.
    pub prompts_per_step: usize,
    /// The policy.
    pub model: Option<Place>,
    /// What training goes on from.
    pub adapter: Option<PathBuf>,
    /// Switches of the chat template.
    pub chat: Map<String, Value>,
    /// Texts that end an answer.
    pub stop: Vec<String>,
    /// Of training rollouts; empty sends none.
    pub system_prompt: String,
    /// Of the policy's weights.
    pub precision: Precision,
    /// Completions decoded at once, at most.
    pub max_rows: usize,
    /// How completions are drawn.
    pub rollout: Sampling,
    /// What draws them in place of the policy, where there is one. Its paths are absolute.
    pub engine: EngineSection,
    /// The triplet model.
    pub extractor: Option<Place>,
    /// How it is asked.
    pub extraction: Extraction,
    /// Their counts are added.
    pub sources: Vec<DemoOr<Source>>,
    /// How occurrences are counted.
    pub counting: CnfOptions,
    /// Memory for the positions of frequent words, in MiB.
    pub cache_mib: u64,
    /// For the look-ups of one round.
    pub count_time: Duration,
    /// How servers of counts are treated.
    pub remote: RemoteSettings,
    /// What rules may ask beside counts.
    pub verification: Verification,
    /// Their rewards are added.
    pub plugins: Vec<Plugin>,
    /// As the rules take them.
    pub rule_settings: Map<String, Value>,
    /// On what a rule may use and answer.
    pub limits: Limits,
    /// `None`: the paper's, which is built in.
    pub judge: Option<Grader>,
    /// `None`: the paper's, which is built in.
    pub format: Option<Grader>,
    /// Weights and switches of the reward.
    pub reward: RewardSettings,
    /// How returns become advantages.
    pub advantage: AdvantageSettings,
    /// How the policy learns.
    pub update: LearnSettings,
    /// How demonstrations are imitated.
    pub sft: SftSettings,
    /// When checkpoints are written.
    pub checkpoint: CheckpointSection,
    /// Which questions are kept.
    pub filter: FilterSettings,
    /// How answers are drawn for evaluation.
    pub eval: EvalSection,
    /// What `check` calls unsupported.
    pub check: CheckSettings,
}

/// How the extractor is asked.
#[derive(Debug, Clone, Default)]
pub struct Extraction {
    /// `None`: the folder's own.
    pub prompt: Option<PathBuf>,
    /// Whether the prompt goes through the model's chat template.
    pub chat: bool,
    /// What overrides the folder's own.
    pub settings: corver_extract::Settings,
    /// Where it runs.
    pub device: corver_extract::Device,
}

/// A response rule.
#[derive(Debug, Clone)]
pub struct Grader {
    /// Its file.
    pub plugin: PathBuf,
    /// As it takes them.
    pub settings: Map<String, Value>,
}

impl Config {
    /// # Errors
    /// Every setting that cannot be understood.
    pub fn resolve(settings: Settings) -> Result<Self> {
        let mut problems = Problems::default();
        let config = Self::understand(settings, &mut problems);
        problems.none().map(|()| config)
    }

    /// [`Self::resolve`] for a training run, which needs everything.
    ///
    /// # Errors
    /// Every setting that cannot be understood, and everything that is not named or not there.
    pub fn resolve_for_training(settings: Settings) -> Result<Self> {
        let mut problems = Problems::default();
        let config = Self::understand(settings, &mut problems);
        config.find_what_trains(&mut problems);
        config.find_verifiers(&mut problems);
        problems.none().map(|()| config)
    }

    /// The same for a run whose rules are answered from a recording: corpus and verifiers need not be there.
    ///
    /// # Errors
    /// As [`Self::resolve_for_training`].
    pub fn resolve_for_replay(settings: Settings) -> Result<Self> {
        let mut problems = Problems::default();
        let config = Self::understand(settings, &mut problems);
        config.find_what_trains(&mut problems);
        problems.none().map(|()| config)
    }

    fn understand(settings: Settings, problems: &mut Problems) -> Self {
        let out_of_bounds = problems.take("settings", settings::out_of_bounds(&settings));
        out_of_bounds.into_iter().flatten().for_each(|(key, problem)| problems.add(key, problem));
        let Settings { run, question, policy, rollout, extract, corpus, rule, judge, format, .. } = settings;
        let sources = corpus.index.texts().map(|text| source(text));
        let sources: Vec<_> = sources.filter_map(|source| problems.take("corpus.index", source)).collect();
        let plugins = rule.plugin.texts().map(|text| weighted(text));
        let plugins: Vec<_> = plugins.filter_map(|plugin| problems.take("rule.plugin", plugin)).collect();
        if plugins.is_empty() {
            problems.add_first("rule.plugin", "not set; name a rule, such as \"first.wasm\"");
        }
        let mut update = LearnSettings { total_steps: run.steps, ..settings.update };
        for (key, problem) in unused(&update, &settings.advantage) {
            problems.add(key, problem);
        }
        if settings.engine.kind != EngineKind::None && update.algorithm != Algorithm::Dpo {
            update.loss.importance_cap.get_or_insert(IMPORTANCE_CAP);
        }
        let max_diff_tokens = corpus.max_diff_tokens.unwrap_or_else(|| window(&sources));
        let token_file = corpus.remote.token_file.as_deref().map(absolute);
        let token_file = token_file.and_then(|path| problems.take("corpus.remote.token_file", path));
        Self {
            seed: run.seed,
            steps: run.steps,
            device: problems.take("run.device", run.device.parse()).unwrap_or_default(),
            threads: run.threads,
            memory: (run.memory_gib > 0.0).then_some((run.memory_gib * GIB) as u64),
            train_questions: problems.take("question.train", questions(&question.train)).flatten(),
            train_phases: question.phases.into_iter().map(|phase| shares(phase, problems)).collect(),
            eval_questions: problems.take("question.eval", questions(&question.eval)).flatten(),
            eval_limit: question.eval_limit,
            prompts_per_step: question.prompts_per_step,
            model: problems.take("policy.model", model(&policy.model)).flatten(),
            adapter: problems.take("policy.adapter", file(&policy.adapter)).flatten(),
            chat: policy.chat,
            stop: policy.stop,
            system_prompt: policy.system_prompt,
            precision: policy.precision,
            max_rows: policy.max_rows,
            rollout,
            engine: engine(settings.engine, problems),
            extractor: problems.take("extract.model", model(&extract.model)).flatten(),
            extraction: Extraction::understand(&extract, problems),
            sources,
            counting: CnfOptions { mode: corpus.mode, max_clause_freq: corpus.max_clause_freq, max_diff_tokens },
            cache_mib: corpus.cache_mib,
            count_time: Duration::from_millis(corpus.count_ms),
            remote: RemoteSettings { token_file, ..corpus.remote },
            verification: Verification::understand(settings.verify, problems),
            plugins,
            rule_settings: rule.settings,
            limits: rule.limits,
            judge: problems.take("judge.plugin", grader("judge", judge)).flatten(),
            format: problems.take("format.plugin", grader("format", format)).flatten(),
            reward: settings.reward,
            advantage: settings.advantage,
            update,
            sft: settings.sft,
            checkpoint: settings.checkpoint,
            filter: settings.filter,
            eval: settings.eval,
            check: settings.check,
        }
    }

    /// Adds what is not named or not there.
    fn find_what_trains(&self, problems: &mut Problems) {
        let needed = [("policy.model", self.model.as_ref()), ("extract.model", self.extractor.as_ref())];
        for (key, _) in needed.into_iter().filter(|(_, place)| place.is_none()) {
            problems.add_first(key, UNSET);
        }
        match (&self.train_questions, self.train_phases.as_slice()) {
            (None, []) => problems.add_first("question.train", UNSET),
            (Some(_), [_, ..]) => {
                problems.add("question.phases", "they take the place of `question.train`: set one of the two")
            }
            _ => {}
        }
        let train = self.train_questions.iter().map(|place| ("question.train", place));
        let phases = self.train_phases.iter().flatten().map(|(place, _)| ("question.phases", place));
        let eval = self.eval_questions.iter().map(|place| ("question.eval", place));
        for (key, place) in train.chain(phases).chain(eval) {
            if let DemoOr::Own(path) = place {
                let folder = QuestionPlace::parse(&path.to_string_lossy()).path;
                if !folder.exists() {
                    problems.add(key, hub::missing(hub::Kind::Dataset, &folder));
                }
            }
        }
        if let Some(path) = &self.adapter {
            problems.look_for("policy.adapter", &path.join("adapter_config.json"));
        }
        if let Some(path) = &self.extraction.prompt {
            problems.look_for("extract.prompt", path);
        }
        for (key, model) in [("policy.model", &self.model), ("extract.model", &self.extractor)] {
            if let Some(DemoOr::Own(folder)) = model
                && !folder.exists()
            {
                problems.add(key, hub::missing(hub::Kind::Model, folder));
            }
        }
        for plugin in &self.plugins {
            problems.take("rule.plugin", plugin::find(&plugin.path));
        }
        for (key, grader) in [("judge.plugin", &self.judge), ("format.plugin", &self.format)] {
            grader.iter().for_each(|grader| drop(problems.take(key, plugin::find(&grader.plugin))));
        }
    }

    fn find_verifiers(&self, problems: &mut Problems) {
        if self.sources.is_empty() {
            problems.add_first("corpus.index", UNSET);
        }
        for source in &self.sources {
            if let DemoOr::Own(Source::Folder(path)) = source {
                problems.look_for("corpus.index", path);
            }
        }
        if let Some(DemoOr::Own(folder)) = &self.verification.nli
            && !folder.exists()
        {
            problems.add("verify.nli.model", hub::missing(hub::Kind::Model, folder));
        }
    }
}

impl Extraction {
    fn understand(section: &ExtractSection, problems: &mut Problems) -> Self {
        let set = |size: usize| Some(size).filter(|&size| size > 0);
        Self {
            prompt: problems.take("extract.prompt", file(&section.prompt)).flatten(),
            chat: section.chat,
            settings: corver_extract::Settings {
                stop: Some(section.stop.clone()).filter(|stop| !stop.is_empty()),
                max_new_tokens: set(section.max_new_tokens),
                batch_size: set(section.batch_size),
                max_sentence_tokens: set(section.max_sentence_tokens),
                ..corver_extract::Settings::default()
            },
            device: problems.take("extract.device", section.device.parse()).unwrap_or_default(),
        }
    }
}

/// The window in tokens where none is set: the paper's, or the demo's. The demo's articles are short, and a window that
/// reaches the neighbouring article loses matches at the border between them.
pub fn window(sources: &[DemoOr<Source>]) -> u64 {
    if sources == [DemoOr::Demo] { corver_demo::WINDOW } else { 1_000 }
}

/// With absolute paths; what an engine needs is asked for.
fn engine(section: EngineSection, problems: &mut Problems) -> EngineSection {
    if section.kind != EngineKind::None {
        if section.url.is_empty() {
            problems.add("engine.url", "not set; the root of the server, such as http://localhost:8000");
        }
        if section.model.is_empty() {
            problems.add("engine.model", "not set; the server's name for the model (--served-model-name)");
        }
    }
    let adapters = problems.take("engine.adapters", file(&section.adapters)).flatten();
    let token_file = section.token_file.as_deref().map(absolute);
    EngineSection {
        adapters: adapters.map_or_else(String::new, |path| path.display().to_string()),
        token_file: token_file.and_then(|path| problems.take("engine.token_file", path)),
        ..section
    }
}

fn shares(phase: Vec<ShareSection>, problems: &mut Problems) -> Vec<(Place, usize)> {
    let share = |ShareSection { file, take }: ShareSection| {
        let place = problems.take("question.phases", questions(&file))?;
        if place.is_none() {
            problems.add("question.phases", "a share names no `file`");
        }
        Some((place?, take))
    };
    phase.into_iter().filter_map(share).collect()
}

fn grader(name: &str, GraderSection { plugin, settings }: GraderSection) -> Result<Option<Grader>> {
    if !plugin.is_empty() {
        return Ok(Some(Grader { plugin: plugin_path(Path::new(&plugin))?, settings }));
    }
    if !settings.is_empty() {
        bail!("not set, but there are `{name}.settings`: the built-in one takes none");
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{DEMO, OneOrMany};

    fn settings(change: impl Fn(&mut Settings)) -> Settings {
        let mut settings = Settings::default();
        change(&mut settings);
        settings
    }

    #[test]
    fn resolved_settings_mean_the_same_in_any_folder() {
        let config = Config::resolve(settings(|settings| {
            settings.question.eval = "e.json".into();
            settings.policy.model = DEMO.into();
            settings.rule.plugin = vec!["mine/r.wasm:0.5".into(), "min.wasm".into()].into();
            settings.policy.adapter = "runs/sft-001/checkpoints/step-000010".into();
            settings.judge.plugin = "mine/judge.wasm".into();
            settings.corpus.index = vec!["wiki".into(), "http://host/#books".into()].into();
            settings.run.device = "cuda".into();
            settings.update.loss.delta = Some(2.0);
            settings.engine.kind = EngineKind::Vllm;
            settings.engine.url = "http://host:8000".into();
            settings.engine.model = "base".into();
            settings.engine.adapters = "shared/adapters".into();
            settings.verify.nli.model = Some("models/nli".into());
            settings.verify.chat.endpoint = "http://localhost:8000/v1".into();
            settings.verify.chat.model = "judge".into();
            settings.verify.chat.prices.prompt = 0.15;
            settings.verify.passages.index = vec!["wiki".into(), DEMO.into()];
            settings.verify.price.nli = 0.5;
            settings.verify.demo.error_rate = 0.25;
            settings.question.phases = vec![vec![ShareSection { file: "easy.jsonl".into(), take: 3 }]];
        }))
        .unwrap();
        assert!(Path::new(&config.engine.adapters).is_absolute());
        assert!(matches!(&config.verification.nli, Some(DemoOr::Own(path)) if path.is_absolute()));
        assert!(matches!(&config.train_phases[0][0], (DemoOr::Own(path), 3) if path.is_absolute()));
        assert_eq!(config.update.loss.importance_cap, Some(IMPORTANCE_CAP));
        assert!(config.adapter.as_ref().is_some_and(|path| path.is_absolute()));
        assert!(matches!(&config.eval_questions, Some(DemoOr::Own(path)) if path.is_absolute()));
        assert_eq!((&config.train_questions, &config.model), (&None, &Some(DemoOr::Demo)));
        assert!(config.plugins[0].path.is_absolute() && config.plugins[0].weight == 0.5, "{:?}", config.plugins);
        assert_eq!(config.plugins[1].path, Path::new("min.wasm"));

        let written = toml::to_string(&config.to_settings()).unwrap();
        let again = Config::resolve(toml::from_str(&written).unwrap()).unwrap();
        assert_eq!(toml::to_string(&again.to_settings()).unwrap(), written);
        assert_eq!((again.sources, again.update), (config.sources, config.update));
    }

    #[test]
    fn settings_that_the_algorithm_does_not_use_are_refused() {
        let told = |change: fn(&mut Settings)| Config::resolve(settings(change)).unwrap_err().to_string();
        let both = told(|settings| {
            settings.update.algorithm = Algorithm::Rloo;
            settings.advantage.min_spread = 0.1;
            settings.update.dpo.beta = 0.3;
        });
        assert!(both.contains("`advantage.min_spread`: not used by `update.algorithm = \"rloo\"`"), "{both}");
        assert!(both.contains("`update.dpo`: not used"), "{both}");
        let dpo = told(|settings| {
            settings.update.algorithm = Algorithm::Dpo;
            settings.update.loss.beta = 0.04;
        });
        assert!(dpo.contains("`update.loss.beta`: 0.04, which DPO does not use"), "{dpo}");
        let engine = settings(|settings| {
            settings.update.algorithm = Algorithm::Dpo;
            settings.engine.kind = EngineKind::Vllm;
            (settings.engine.url, settings.engine.model) = ("http://host:8000".into(), "base".into());
        });
        assert_eq!(Config::resolve(engine).unwrap().update.loss.importance_cap, None);
    }

    #[test]
    fn the_window_is_the_papers_unless_the_index_is_the_demos() {
        let of = |index: &[&str], set: Option<u64>| {
            let index: Vec<String> = index.iter().map(ToString::to_string).collect();
            let settings = settings(|settings| {
                settings.corpus.index = index.clone().into();
                settings.corpus.max_diff_tokens = set;
            });
            Config::resolve(settings).unwrap().counting.max_diff_tokens
        };
        assert_eq!(of(&["demo"], None), corver_demo::WINDOW);
        assert_eq!(of(&["demo", "elsewhere"], None), 1_000);
        assert_eq!(of(&[], None), 1_000);
        assert_eq!(of(&["demo"], Some(7)), 7);
    }

    #[test]
    fn every_problem_is_told_at_once() {
        let wrong = settings(|settings| {
            settings.run.device = "gpu".into();
            settings.update.learning_rate = -1.0;
            settings.rule.plugin = vec!["first.wasm:x".into(), "min.wasm:inf".into()].into();
            settings.corpus.index = OneOrMany::One("http://host".into());
            settings.judge.settings.insert("x".into(), 1.into());
            settings.engine.kind = EngineKind::Sglang;
            settings.engine.model = "base".into();
        });
        let told = Config::resolve(wrong.clone()).unwrap_err();
        let lines: Vec<String> = told.downcast_ref().map(Problems::lines).unwrap().collect();
        assert_eq!(lines.len(), 7, "{told}");
        for problem in [
            "`run.device`: ",
            "`engine.url`: not set",
            "`update.learning_rate`: -1 is out",
            "`corpus.index`: http://host names no index",
        ] {
            assert!(lines.iter().any(|line| line.starts_with(problem)), "no {problem:?} in\n{told}");
        }
        let told = Config::resolve_for_training(wrong).unwrap_err().to_string();
        assert!(told.contains("`policy.model`: not set"), "{told}");
        assert_eq!(told.matches("corpus.index").count(), 1, "{told}");
    }
}
