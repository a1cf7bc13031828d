//! The source of replies to the requests of rules: corpus and models, or a recording.

use anyhow::{Context, Result, bail};
use corver_backends::passages::{PassageLocation, PassageManifest};
use corver_backends::recording::{Recording, record, resume};
use corver_core::Backends;
use corver_counts::CorpusSource;
use corver_reward::config::{BackendsConfig, CorpusConfig, DemoOr, Problems, Resolve};
use corver_reward::parts;
use corver_runs::{RunManifest, fingerprint, json_fingerprint};
use corver_settings::Settings;

use crate::args::RecordingArgs;

/// Origin of the replies, as a manifest records it.
pub enum Origin {
    /// A corpus, with models and passages.
    Corpus {
        /// Indexes that counts come from.
        sources: Vec<CorpusSource>,
        /// Name and hash of each model and of the passages.
        others: Vec<(&'static str, String)>,
    },
    /// A recording, with its hash.
    Recording(String),
}

impl Origin {
    /// Adds the hashes of everything that decides the replies to a manifest.
    pub fn record_in(&self, manifest: &mut RunManifest) -> Result<()> {
        match self {
            Self::Corpus { sources, others } => {
                manifest.set("index", corver_counts::fingerprint(sources)?);
                for (name, hash) in others {
                    manifest.set(name, hash);
                }
            }
            Self::Recording(hash) => manifest.set("recording", hash),
        }
        Ok(())
    }
}

/// Corpus and capabilities that answer the requests of rules. `None`: a recording answers them.
pub type Answers = Option<(CorpusConfig, BackendsConfig)>;

/// Resolves the corpus and capabilities; with --replay none are needed.
pub fn resolve(
    args: &RecordingArgs,
    settings: &mut Settings,
    problems: &mut Problems,
) -> Option<Answers> {
    match &args.replay {
        Some(_) => Some(None),
        None => <(CorpusConfig, BackendsConfig)>::resolve(settings, problems).map(Some),
    }
}

/// Opens the corpus and capabilities, or the recording.
pub fn open(answers: &Answers, args: &RecordingArgs) -> Result<(Origin, Backends<'static>)> {
    match (&args.replay, answers) {
        (Some(path), _) => {
            let hash = fingerprint(path)
                .with_context(|| format!("reading the recording {}", path.display()))?;
            Ok((Origin::Recording(hash), Recording::open(path)?.backends()))
        }
        (None, Some((corpus, others))) => {
            let (sources, backends) = parts::open_backends(corpus, others)?;
            let mut fingerprints = fingerprints(others)?;
            if let Some(pack) = &corpus.pack {
                fingerprints.push(("pack", fingerprint(pack)?));
            }
            Ok((Origin::Corpus { sources, others: fingerprints }, backends))
        }
        (None, None) => bail!("rules have neither a corpus nor a recording"),
    }
}

/// Returns the names and hashes of the models and of the passages.
fn fingerprints(config: &BackendsConfig) -> Result<Vec<(&'static str, String)>> {
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

/// Returns the hash of the passages' manifest, which names the index and the options.
fn passage_fingerprint(place: &PassageLocation) -> Result<String> {
    Ok(json_fingerprint(&PassageManifest::load(place)?)?)
}

/// Fails if --record names a file that exists, unless the run is resumed.
pub fn check(args: &RecordingArgs, resumes: bool) -> Result<()> {
    match &args.record {
        Some(path) if !resumes && path.exists() => {
            bail!(corver_backends::recording::RecordingError::Exists { path: path.clone() })
        }
        _ => Ok(()),
    }
}

/// Adds a recorder to the backends if --record is given. A resumed run appends to its recording.
pub fn recorded<'a>(
    args: &RecordingArgs,
    resumes: bool,
    backends: Backends<'a>,
) -> Result<Backends<'a>> {
    Ok(match &args.record {
        Some(path) if resumes && path.exists() => resume(path, backends)?,
        Some(path) => record(path, backends)?,
        None => backends,
    })
}

/// Opens the backends of a command that cannot be resumed, with a recorder if requested.
pub fn backends(answers: &Answers, args: &RecordingArgs) -> Result<Backends<'static>> {
    check(args, false)?;
    recorded(args, false, open(answers, args)?.1)
}
