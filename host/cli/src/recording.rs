//! What answers a rule's questions on a command line.

use std::path::Path;

use anyhow::{Context, Result, bail};
use corver_core::Verifiers;
use corver_counts::Source;
use corver_recording::{Recording, go_on, record};
use corver_reward::{Config, parts};
use corver_study::run::{RunManifest, fingerprint};

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

/// The verifiers of the configuration, or a recording.
pub fn open(config: &Config, args: &RecordingArgs) -> Result<(Origin, Verifiers<'static>)> {
    match &args.replay {
        Some(path) => {
            let hash = fingerprint(path).with_context(|| format!("reading the recording {}", path.display()))?;
            Ok((Origin::Recording(hash), Recording::open(path)?.verifiers()))
        }
        None => {
            let (sources, verifiers) = parts::verifiers(config)?;
            Ok((Origin::Corpus { sources, others: parts::fingerprints(config)? }, verifiers))
        }
    }
}

/// Refuses to record into a file that exists, unless what began it goes on.
pub fn check(args: &RecordingArgs, resumes: bool) -> Result<()> {
    match &args.record {
        Some(path) if !resumes && path.exists() => {
            bail!(corver_recording::RecordingError::Exists { path: path.clone() })
        }
        _ => Ok(()),
    }
}

/// The same verifiers, with a recorder where one is asked for. Where a run goes on, so does its recording.
pub fn recorded<'a>(args: &RecordingArgs, resumes: bool, verifiers: Verifiers<'a>) -> Result<Verifiers<'a>> {
    let begun = |path: &Path| resumes && path.exists();
    Ok(match &args.record {
        Some(path) if begun(path) => go_on(path, verifiers)?,
        Some(path) => record(path, verifiers)?,
        None => verifiers,
    })
}

/// For a command that does one thing.
pub fn verifiers(config: &Config, args: &RecordingArgs) -> Result<Verifiers<'static>> {
    check(args, false)?;
    recorded(args, false, open(config, args)?.1)
}
