//! From a configuration to the parts of a step, each opened once.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use corver_core::{Counter, Extractor, Question};
use corver_corpus::{BuildOptions, CnfOptions, Tokenizer};
use corver_demo::DemoPaths;
use corver_extract::RuntimeLibrary;
use corver_study::{IndexCounter, Recorder, Recording, run_dir};

use crate::args::{ConfigArgs, GraderArgs, RecordingArgs, RuleArgs};
use crate::config::{self, Config, CorpusSection, DEMO_SOURCE};
use crate::rules::Plugins;
use crate::source::{self, Source};

/// Resolves a command's configuration.
pub fn configuration(args: &ConfigArgs) -> Result<Config> {
    let mut config = config::load(&args.settings.config, &args.settings.set)?;
    if !args.plugin.is_empty() {
        config.rule.plugin = Plugins::new(args.plugin.clone());
    }
    if let Some(device) = &args.device {
        config.run.device.clone_from(device);
    }
    Ok(config)
}

/// [`configuration`] with other response rules, where they are named.
pub fn graded_configuration(args: &ConfigArgs, graders: &GraderArgs) -> Result<Config> {
    let mut config = configuration(args)?;
    for (flag, section) in [(&graders.judge, &mut config.judge), (&graders.format, &mut config.format)] {
        if let Some(plugin) = flag {
            section.plugin.clone_from(plugin);
        }
    }
    Ok(config)
}

/// [`configuration`] for a command that is about one rule. Of a configuration with several rules it takes the table that
/// bears this one's file name.
pub fn rule_configuration(args: &RuleArgs) -> Result<Config> {
    let mut config = config::load(&args.settings.config, &args.settings.set)?;
    if let Plugins::Several(_) = config.rule.plugin {
        let name = Path::new(&args.plugin).file_stem().unwrap_or_default().to_string_lossy();
        let own = config.rule.settings.remove(name.as_ref());
        config.rule.settings = own.and_then(|own| own.as_object().cloned()).unwrap_or_default();
    }
    config.rule.plugin = Plugins::One(args.plugin.clone());
    Ok(config)
}

/// Where CorVer keeps what it can make again: `$XDG_CACHE_HOME/corver` or `~/.cache/corver`.
pub fn cache_dir() -> Result<PathBuf> {
    let base = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")));
    Ok(base.context("neither XDG_CACHE_HOME nor HOME is set: there is no place for caches")?.join("corver"))
}

/// The demo's files, written out to the cache once.
pub fn demo() -> Result<DemoPaths> {
    let cache = cache_dir()?;
    corver_demo::materialise(&cache).with_context(|| {
        format!("unpacking the built-in demo into {} (XDG_CACHE_HOME names another place)", cache.display())
    })
}

/// The index of the demo's articles, built on first use.
pub fn demo_index() -> Result<PathBuf> {
    let tokenizer = Tokenizer::from_file(demo()?.policy.join("tokenizer.json"))?;
    let articles = corver_demo::demo_corpus();
    let texts: Vec<&str> = articles.iter().map(|article| article.text.as_str()).collect();
    // Named by what it holds, so that another version's articles are never counted.
    let content = run_dir::text_fingerprint(&format!("{}\n{}", tokenizer.fingerprint(), texts.join("\n")));
    let path = cache_dir()?.join(format!("demo-index-{}", &content[..16]));
    if path.exists() {
        return Ok(path);
    }
    match corver_corpus::build_from_documents(texts, &tokenizer, &path, &BuildOptions::default()) {
        // Somebody else was faster.
        Err(_) if path.exists() => Ok(path),
        built => built.map(|_| path).context("indexing the demo's articles"),
    }
}

/// Whether everything that a training run reads is named and there; says all that is missing at once.
#[cfg(feature = "torch")]
pub fn check(config: &Config) -> Result<()> {
    let sources = [
        ("question.train", &config.question.train),
        ("policy.model", &config.policy.model),
        ("extract.bundle", &config.extract.bundle),
    ];
    let missing = |plugin: &Path| crate::rules::find_plugin(plugin).err().map(|error| error.to_string());
    let mut problems = Vec::new();
    for (key, value) in sources {
        if value.is_empty() {
            problems.push(format!("`{key}` is not set"));
        } else if value != DEMO_SOURCE && !Path::new(value).exists() {
            problems.push(format!("`{key}`: there is no {value}"));
        }
    }
    match config.corpus.index.parse() {
        Ok(sources) => problems.extend(sources.iter().filter_map(|source| match source {
            Source::Folder(path) if !path.exists() => Some(format!("`corpus.index`: there is no {}", path.display())),
            _ => None,
        })),
        Err(error) => problems.push(error.to_string()),
    }
    match config.rule.plugin.parse() {
        Ok(plugins) => problems.extend(plugins.iter().filter_map(|plugin| missing(&plugin.path))),
        Err(error) => problems.push(error.to_string()),
    }
    let graders = [&config.judge.plugin, &config.format.plugin].into_iter().filter(|plugin| !plugin.is_empty());
    problems.extend(graders.filter_map(|plugin| missing(Path::new(plugin))));
    if problems.is_empty() {
        return Ok(());
    }
    let unset = sources.iter().any(|(_, value)| value.is_empty());
    let hint = if unset { "; `--config demo --config …` takes them from the built-in demo" } else { "" };
    bail!("{}{hint}", problems.join("; "))
}

/// A path from the configuration, or the demo's own.
fn path(value: &str, key: &str, of_demo: impl FnOnce() -> Result<PathBuf>) -> Result<PathBuf> {
    match value {
        "" => bail!("`{key}` is not set: give a path, or \"{DEMO_SOURCE}\""),
        DEMO_SOURCE => of_demo(),
        path => Ok(PathBuf::from(path)),
    }
}

/// The checkout that this binary was built from; it may be gone by now.
pub fn checkout() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("this crate lies in host/cli")
}

/// The triplet model.
pub fn extractor(config: &Config) -> Result<(PathBuf, Box<dyn Extractor>)> {
    let bundle = path(&config.extract.bundle, "extract.bundle", || Ok(demo()?.extractor))?;
    let extractor = open_extractor(&bundle, &config.extract.device)?;
    Ok((bundle, Box::new(extractor)))
}

/// Opens an extractor bundle on a device.
pub fn open_extractor(bundle: &Path, device: &str) -> Result<corver_extract::Extractor> {
    let device = device.parse()?;
    let runtime = RuntimeLibrary::find(None)?;
    corver_extract::Extractor::open(bundle, device, &runtime)
        .with_context(|| format!("opening the extractor {}", bundle.display()))
}

/// The corpus, and where it comes from.
pub fn corpus(section: &CorpusSection) -> Result<(Vec<Source>, IndexCounter)> {
    let sources = section.index.parse()?;
    let corpus = source::open(&sources, section.open_options(), &section.remote)?;
    let options =
        CnfOptions { mode: section.mode, max_clause_freq: section.max_clause_freq, max_diff_tokens: section.window() };
    Ok((sources, IndexCounter::new(corpus, options)))
}

/// Whatever answers the rule's queries: the index, the index with a recorder, or a recording.
pub fn counter(section: &CorpusSection, recording: &RecordingArgs) -> Result<Box<dyn Counter>> {
    Ok(match (&recording.replay, &recording.record) {
        (Some(path), _) => Box::new(Recording::open(path)?),
        (None, Some(path)) => Box::new(Recorder::create(path, corpus(section)?.1)?),
        (None, None) => Box::new(corpus(section)?.1),
    })
}

/// A question file, or one of the demo's two sets.
pub fn questions(value: &str, key: &str, of_demo: impl FnOnce() -> Vec<Question>) -> Result<Vec<Question>> {
    match value {
        "" => bail!("`{key}` is not set: give a question file, or \"{DEMO_SOURCE}\""),
        DEMO_SOURCE => Ok(of_demo()),
        path => Ok(corver_core::question::read_questions(Path::new(path))?),
    }
}

/// The folder of the policy's model.
#[cfg(feature = "torch")]
pub fn model(config: &Config) -> Result<PathBuf> {
    path(&config.policy.model, "policy.model", || Ok(demo()?.policy))
}

/// The policy; `adapter` (an adapter's or a checkpoint's folder) instead of fresh adapters.
#[cfg(feature = "torch")]
pub fn policy(config: &Config, model: &Path, adapter: Option<&Path>) -> Result<corver_learn::Policy> {
    use corver_learn::{Model, Policy, PolicyTokenizer};

    let device = corver_learn::parse_device(&config.run.device)?;
    if config.run.threads > 0 {
        corver_learn::set_num_threads(config.run.threads);
    }
    let of_policy = || format!("loading the policy {}", model.display());
    let tokenizer = PolicyTokenizer::load(model).with_context(of_policy)?;
    let mut weights = Model::load(model, config.policy.precision, device).with_context(of_policy)?;
    if let Some(adapter) = adapter {
        weights.load_adapter(adapter).with_context(|| {
            format!("loading the adapter {} (a run keeps its own in checkpoints/step-NNNNNN)", adapter.display())
        })?;
    }
    let policy = Policy::new(weights, tokenizer, config.update, config.run.seed).with_context(of_policy)?;
    Ok(policy.with_reading(config.reward.reading))
}
