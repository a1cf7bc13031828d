//! What answers a rule's questions on a command line.

use std::path::Path;

use anyhow::{Context, Result, bail};
use corver_backends::passages::{PassageManifest, Place as PassagePlace};
use corver_backends::recording::{Recording, go_on, record};
use corver_core::Backends;
use corver_counts::Source;
use corver_reward::config::{CorpusConfig, DemoOr, Problems, Resolve, VerifierConfig};
use corver_reward::parts;
use corver_runs::{RunManifest, fingerprint, text_fingerprint};
use corver_settings::Settings;

use crate::args::RecordingArgs;

/// Where answers come from.
pub enum Origin {
    /// The corpus, and models beside it.
    Corpus {
        /// Of counts.
        sources: Vec<Source>,
        /// Of the models and the searches.
        others: Vec<(&'static str, String)>,
    },
    /// A recording, of this hash.
    Recording(String),
}

impl Origin {
    /// What decides the answers.
    pub fn tell(&self, manifest: &mut RunManifest) -> Result<()> {
        match self {
            Self::Corpus { sources, others } => {
                manifest.set("index", corver_counts::fingerprint(sources)?);
                others.iter().for_each(|(name, hash)| manifest.set(name, hash));
            }
            Self::Recording(hash) => manifest.set("recording", hash),
        }
        Ok(())
    }
}

/// Corpus and capabilities that answer the requests of rules. `None`: a recording answers them.
pub type Answers = Option<(CorpusConfig, VerifierConfig)>;

/// Resolves what answers the requests of rules: with --replay nothing is needed.
pub fn resolve(
    args: &RecordingArgs,
    settings: &mut Settings,
    problems: &mut Problems,
) -> Option<Answers> {
    match &args.replay {
        Some(_) => Some(None),
        None => <(CorpusConfig, VerifierConfig)>::resolve(settings, problems).map(Some),
    }
}

/// Opens what answers the requests of rules.
pub fn open(answers: &Answers, args: &RecordingArgs) -> Result<(Origin, Backends<'static>)> {
    match (&args.replay, answers) {
        (Some(path), _) => {
            let hash = fingerprint(path)
                .with_context(|| format!("reading the recording {}", path.display()))?;
            Ok((Origin::Recording(hash), Recording::open(path)?.backends()))
        }
        (None, Some((corpus, others))) => {
            let (sources, backends) = parts::backends(corpus, others)?;
            Ok((Origin::Corpus { sources, others: fingerprints(others)? }, backends))
        }
        (None, None) => bail!("rules have neither a corpus nor a recording"),
    }
}

/// Returns what decides the answers of models and searches, by name.
fn fingerprints(config: &VerifierConfig) -> Result<Vec<(&'static str, String)>> {
    let mut all = Vec::new();
    if let Some((DemoOr::Own(folder), _)) = &config.nli {
        all.push(("NLI model", fingerprint(folder)?));
    }
    let mut searched = Vec::new();
    for place in &config.passages {
        if let DemoOr::Own(place) = place {
            searched.push(passage_fingerprint(place)?);
        }
    }
    if !searched.is_empty() {
        all.push(("passages", searched.join("+")));
    }
    Ok(all)
}

/// Returns the hash of what passages were cut from, and how.
fn passage_fingerprint(place: &PassagePlace) -> Result<String> {
    Ok(text_fingerprint(&serde_json::to_string(&PassageManifest::load(place)?)?))
}

/// Refuses to record into a file that exists, unless what began it goes on.
pub fn check(args: &RecordingArgs, resumes: bool) -> Result<()> {
    match &args.record {
        Some(path) if !resumes && path.exists() => {
            bail!(corver_backends::recording::RecordingError::Exists { path: path.clone() })
        }
        _ => Ok(()),
    }
}

/// The same verifiers, with a recorder where one is asked for. Where a run goes on, so does its
/// recording.
pub fn recorded<'a>(
    args: &RecordingArgs,
    resumes: bool,
    backends: Backends<'a>,
) -> Result<Backends<'a>> {
    let begun = |path: &Path| resumes && path.exists();
    Ok(match &args.record {
        Some(path) if begun(path) => go_on(path, backends)?,
        Some(path) => record(path, backends)?,
        None => backends,
    })
}

/// For a command that does one thing.
pub fn backends(answers: &Answers, args: &RecordingArgs) -> Result<Backends<'static>> {
    check(args, false)?;
    recorded(args, false, open(answers, args)?.1)
}
