//! What answers a rule's queries on a command line.

use anyhow::Result;
use corver_core::Counter;
use corver_counts::{Recorder, Recording};
use corver_reward::{Config, parts};

use crate::args::RecordingArgs;

/// The index, the index with a recorder, or a recording.
pub fn counter(config: &Config, recording: &RecordingArgs) -> Result<Box<dyn Counter>> {
    Ok(match (&recording.replay, &recording.record) {
        (Some(path), _) => Box::new(Recording::open(path)?),
        (None, Some(path)) => Box::new(Recorder::create(path, parts::corpus(config)?.1)?),
        (None, None) => parts::corpus(config)?.1,
    })
}
