//! Resolution of [`Settings`] into the parts that a command needs.
//!
//! ```text
//! place      a setting's text ─▶ the demo's part, or an absolute path
//! problems   every problem of the settings, reported together
//! algorithm  settings that have no effect, or that contradict the algorithm
//! rules, corpus, extractor, backends, policy   configuration of each part
//! ```
//!
//! A part makes the paths of its own settings absolute, so that a run's configuration means the
//! same in any folder.

mod algorithm;
mod backends;
mod corpus;
mod extractor;
mod place;
mod policy;
mod problems;
mod rules;

use anyhow::Result;
use corver_settings::{Algorithm, OldLogProbs, Settings, schema};

pub use backends::BackendsConfig;
pub use corpus::CorpusConfig;
pub use extractor::{ExtractorConfig, ModelExtractorConfig};
pub use place::{DemoOr, DemoOrPath, absolute, parse_sources, resolve_hub_path};
pub use policy::{EngineConfig, PolicyConfig};
pub use problems::Problems;
pub use rules::{Grader, RulesConfig};

/// Part of a configuration.
pub trait Resolve: Sized {
    /// Makes the paths of the part's settings absolute, and returns the part; `None` if it has a
    /// problem, which is then added to `problems`.
    fn resolve(settings: &mut Settings, problems: &mut Problems) -> Option<Self>;
}

/// Configuration of everything that scores completions.
#[derive(Debug, Clone)]
pub struct RewardConfig {
    /// Extractor of the sentences' triplets.
    pub extractor: ExtractorConfig,
    /// Corpus of the counts.
    pub corpus: CorpusConfig,
    /// Capabilities of rules in addition to counts.
    pub backends: BackendsConfig,
    /// Rules for sentences and for completions.
    pub rules: RulesConfig,
}

impl Resolve for RewardConfig {
    fn resolve(settings: &mut Settings, problems: &mut Problems) -> Option<Self> {
        let extractor = ExtractorConfig::resolve(settings, problems);
        let corpus = CorpusConfig::resolve(settings, problems);
        let backends = BackendsConfig::resolve(settings, problems);
        let rules = RulesConfig::resolve(settings, problems);
        // Only now, so that the problems of all parts are collected.
        let extractor = extractor?;
        let corpus = corpus?;
        extractor.check_corpus(&corpus, problems)?;
        Some(Self { extractor, corpus, backends: backends?, rules: rules? })
    }
}

impl Resolve for () {
    fn resolve(_: &mut Settings, _: &mut Problems) -> Option<Self> {
        Some(())
    }
}

impl<A: Resolve, B: Resolve> Resolve for (A, B) {
    fn resolve(settings: &mut Settings, problems: &mut Problems) -> Option<Self> {
        let a = A::resolve(settings, problems);
        let b = B::resolve(settings, problems);
        Some((a?, b?))
    }
}

/// Resolves the parts of type `T`, and returns the settings, too, with bounds checked and paths
/// absolute.
///
/// # Errors
/// If values are out of bounds, settings have no effect, or parts are not named or do not exist.
/// The error is a [`Problems`] that lists all of them.
pub fn resolve<T: Resolve>(settings: Settings) -> Result<(Settings, T)> {
    resolve_with(settings, T::resolve)
}

/// Resolves the parts that `resolve_parts` selects; see [`resolve`]. For commands that need a part
/// in some cases only.
///
/// # Errors
/// As [`resolve`].
pub fn resolve_with<T>(
    mut settings: Settings,
    resolve_parts: impl FnOnce(&mut Settings, &mut Problems) -> Option<T>,
) -> Result<(Settings, T)> {
    let mut problems = Problems::default();
    for problem in schema::check_all(&settings) {
        problems.add(&problem.key, format!("{}; it must be {}", problem.got, problem.expected));
    }
    settings.update.total_steps = settings.run.steps;
    let is_corrected = settings.update.algorithm != Algorithm::Dpo
        && settings.update.old_log_probs == OldLogProbs::Recomputed;
    if settings.engine.kind.is_some() && is_corrected {
        settings.update.loss.importance_sampling_correction.get_or_insert(true);
    }
    for (key, problem) in algorithm::ignored_settings(&settings) {
        problems.add(key, problem);
    }
    let rollouts = settings.question.prompts_per_step * settings.rollout.num_generations;
    if !rollouts.is_multiple_of(settings.update.num_mini_batches.max(1)) {
        let problem = format!(
            "{}, which does not divide the {rollouts} rollouts of a step",
            settings.update.num_mini_batches
        );
        problems.add("update.num_mini_batches", problem);
    }
    let parts = resolve_parts(&mut settings, &mut problems);
    let parts = problems.into_result(parts)?;
    Ok((settings, parts))
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use corver_settings::{Device, EngineKind, Layers, MomentPrecision};

    use super::*;

    fn settings(change: impl FnOnce(&mut Settings)) -> Settings {
        let mut settings = Layers::default().settings().unwrap();
        change(&mut settings);
        settings
    }

    type All = (RewardConfig, PolicyConfig);

    fn problems(settings: Settings) -> Vec<String> {
        let error = resolve::<All>(settings).unwrap_err();
        error.downcast_ref::<Problems>().unwrap().lines().collect()
    }

    #[test]
    fn demo_settings_resolve_to_demo_parts() {
        let (settings, (reward, policy)) = resolve::<All>(settings(|_| ())).unwrap();
        assert!(policy.model == DemoOr::Demo && reward.extractor.is_demo_model());
        assert_eq!(reward.corpus.sources, [DemoOr::Demo]);
        assert_eq!(reward.corpus.counting.max_diff_tokens, corver_demo::WINDOW);
        assert_eq!(settings.update.total_steps, settings.run.steps);
        assert_eq!(settings.run.device, Device::Auto);
    }

    #[test]
    fn every_shipped_configuration_is_valid() {
        let configs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs");
        let is_toml = |path: &Path| path.extension().is_some_and(|extension| extension == "toml");
        let check = |files: &[PathBuf]| {
            let settings = Layers::new(files, &[]).and_then(|layers| layers.settings());
            let resolved = settings.and_then(resolve::<()>);
            assert!(resolved.is_ok(), "{files:?}: {:#}", resolved.unwrap_err());
        };
        let mut folders = vec![configs.clone()];
        let mut models = Vec::new();
        let mut algorithms = Vec::new();
        let mut seen = 0;
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() && !path.ends_with("judge") {
                    folders.push(path);
                } else if is_toml(&path) {
                    check(std::slice::from_ref(&path));
                    seen += 1;
                    if path.parent() == Some(configs.as_path()) {
                        models.push(path);
                    } else if path.parent().is_some_and(|parent| parent.ends_with("algorithms")) {
                        algorithms.push(path);
                    }
                }
            }
        }
        assert!(seen >= 30, "only {seen} configurations found");
        assert!(models.len() >= 7 && algorithms.len() >= 5, "{models:?} {algorithms:?}");
        for model in &models {
            for algorithm in &algorithms {
                check(&[model.clone(), algorithm.clone()]);
            }
        }
    }

    /// The paper's table of baselines (Tab. baseline-hp), and KnowRL's checkpoints.
    #[test]
    fn baseline_configs_match_paper_rates_and_kl() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs");
        for (model, files, learning_rate, beta) in [
            ("llama-3.2-3b-instruct", &["fspo"][..], 2e-6, 0.04),
            ("llama-3.1-8b-instruct", &["fspo", "fspo-llama-3.1-8b"], 5e-6, 0.04),
            ("qwen3-8b", &["fspo"], 2e-6, 0.04),
            ("llama-3.1-8b-instruct", &["rlfh"], 3e-7, 0.30),
            ("qwen3-4b", &["rlfh", "rlfh-qwen3"], 3e-7, 0.10),
            ("qwen3-8b", &["rlfh", "rlfh-qwen3"], 3e-7, 0.10),
            ("qwen3-8b", &["forag"], 1e-6, 0.05),
            ("qwen3-8b", &["knowrl"], 1e-5, 0.001),
        ] {
            let mut paths = vec![folder.join(format!("{model}.toml"))];
            paths.extend(
                files
                    .iter()
                    .map(|file| folder.join("baselines/paper").join(format!("{file}.toml"))),
            );
            let settings = Layers::new(&paths, &[]).unwrap().settings().unwrap();
            let got = (settings.update.learning_rate, settings.update.loss.beta);
            assert_eq!(got, (learning_rate, beta), "{model} {files:?}");
            let (every, steps) = (settings.checkpoint.every, settings.run.steps);
            let expected = if files == ["knowrl"] { (100, 200) } else { (50, 100) };
            assert_eq!((every, steps), expected, "{model} {files:?}");
        }
    }

    /// The paper's table of models (Tab. per-model-hp) and its anchors (Tab. selffilter).
    #[test]
    fn model_configs_match_paper_settings() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs");
        for (model, learning_rate, beta, moments, anchors) in [
            ("llama-3.2-3b-instruct", 1e-5, 0.001, MomentPrecision::Eight, 1000),
            ("qwen3-4b", 1e-5, 0.001, MomentPrecision::Eight, 800),
            ("llama-3.1-8b-instruct", 1e-5, 0.001, MomentPrecision::Eight, 0),
            ("qwen3-8b", 1e-5, 0.001, MomentPrecision::Eight, 0),
            ("olmo-2-13b-instruct", 3e-6, 0.01, MomentPrecision::F32, 0),
            ("qwen3-14b", 2.5e-5, 0.0, MomentPrecision::Eight, 0),
        ] {
            let path = folder.join(format!("{model}.toml"));
            let settings = Layers::new(&[path], &[]).unwrap().settings().unwrap();
            let update = settings.update;
            let got = (
                update.learning_rate,
                update.loss.beta,
                update.optimizer.moments,
                settings.filter.anchors,
            );
            assert_eq!(got, (learning_rate, beta, moments, anchors), "{model}");
        }
    }

    #[test]
    fn every_missing_part_is_named_with_its_flag() {
        let lines = problems(Settings::default());
        let expected = [
            "`extract.model`: not set; --extractor DIR|NAME names one",
            "`corpus.index`: not set; --index DIR|NAME|URL#NAME names one",
            "`policy.model`: not set; --model DIR|NAME names one",
        ];
        assert_eq!(lines.len(), expected.len(), "{lines:?}");
        for (line, expected) in lines.iter().zip(expected) {
            assert!(line.starts_with(expected), "{line}");
        }
    }

    #[test]
    fn every_problem_is_listed_at_once() {
        let wrong = settings(|settings| {
            settings.update.learning_rate = -1.0;
            settings.rule.plugin = vec!["first.wasm:x".into(), "min.wasm:inf".into()];
            settings.corpus.index = vec!["http://host".into()];
            settings.engine.kind = Some(EngineKind::Sglang);
            settings.engine.model = Some("base".into());
            settings.policy.model = Some("nowhere/at-all".into());
            settings.update.num_mini_batches = 1000;
        });
        let lines = problems(wrong);
        assert_eq!(lines.len(), 7, "{lines:?}");
        for problem in [
            "`update.learning_rate`: -1; it must be from 0 to 1",
            "`update.num_mini_batches`: 1000, which does not divide the 256 rollouts of a step",
            "`rule.plugin`: the weight of first.wasm",
            "`rule.plugin`: the weight of min.wasm",
            "`corpus.index`: http://host names no index",
            "`engine.url`: not set",
            "`policy.model`: there is no ",
        ] {
            assert!(
                lines.iter().any(|line| line.starts_with(problem)),
                "no {problem:?} in {lines:?}"
            );
        }
    }

    #[test]
    fn demo_extractor_rejects_other_corpus() {
        let folder = tempfile::tempdir().unwrap();
        let index = folder.path().display().to_string();
        let lines = problems(settings(|settings| settings.corpus.index = vec![index]));
        assert!(
            lines[0].starts_with(
                "`extract.model`: the demo's extractor reads the demo's sentences alone"
            ),
            "{lines:?}"
        );
    }

    #[test]
    fn resolved_paths_are_absolute() {
        let here = std::env::current_dir().unwrap();
        let own = settings(|settings| {
            settings.corpus.remote.token_file = Some("token".into());
            settings.judge.plugin = Some("./judge.wasm".into());
        });
        let mut found = Problems::default();
        let mut own = own;
        CorpusConfig::resolve(&mut own, &mut found).unwrap();
        assert_eq!(own.corpus.remote.token_file, Some(here.join("token")));
        assert!(RulesConfig::resolve(&mut own, &mut found).is_none(), "there is no judge.wasm");
        assert_eq!(own.judge.plugin, Some(here.join("judge.wasm").display().to_string()));
        assert_eq!(own.rule.plugin, ["first.wasm"], "a shipped rule keeps its name");
    }

    #[test]
    fn engine_enables_importance_sampling_correction() {
        let engine = |settings: &mut Settings| {
            settings.engine.kind = Some(EngineKind::Vllm);
            settings.engine.url = Some("http://localhost:8000".into());
            settings.engine.model = Some("base".into());
        };
        let correction = |change: &dyn Fn(&mut Settings)| {
            let (settings, _) = resolve::<PolicyConfig>(settings(change)).unwrap();
            settings.update.loss.importance_sampling_correction
        };
        assert_eq!(correction(&|_| ()), None);
        assert_eq!(correction(&engine), Some(true));
        let capped = |settings: &mut Settings| {
            engine(settings);
            settings.update.loss.importance_sampling_cap = 3.0;
        };
        assert_eq!(correction(&capped), Some(true), "the cap is in use");
        let off = |settings: &mut Settings| {
            engine(settings);
            settings.update.loss.importance_sampling_correction = Some(false);
        };
        assert_eq!(correction(&off), Some(false));
    }
}
