//! What answers a rule's questions on a command line.

use anyhow::Result;
use corver_core::Verifiers;
use corver_counts::{Recorder, Recording};
use corver_reward::{Config, parts};

use crate::args::RecordingArgs;

/// The verifiers of the configuration, the same with a recorder, or a recording.
pub fn verifiers(config: &Config, recording: &RecordingArgs) -> Result<Verifiers<'static>> {
    Ok(match (&recording.replay, &recording.record) {
        (Some(path), _) => Verifiers::counting(Recording::open(path)?),
        (None, Some(path)) => Verifiers::counting(Recorder::create(path, parts::corpus(config)?.1)?),
        (None, None) => parts::verifiers(config)?.1,
    })
}
