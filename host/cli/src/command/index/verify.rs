//! `corver-host index verify`: verifies an index.

use anyhow::{Result, ensure};
use corver_corpus::{Error, OpenOptions, VerifyLevel, verify};
use serde_json::json;

use crate::args::VerifyArgs;
use crate::index_folder::folder;
use crate::output;

/// Pairs of adjacent suffixes that a sampled verification compares in each shard.
const SAMPLE: u64 = 100_000;

pub fn run(args: &VerifyArgs, json: bool) -> Result<()> {
    let path = folder(args.index.as_deref())?;
    let level = if args.full { VerifyLevel::Full } else { VerifyLevel::Sampled(SAMPLE) };
    ensure!(path.exists(), "there is no index {}", path.display());
    let options = OpenOptions { shards: args.shards.clone(), ..OpenOptions::default() };
    let verified = verify(&path, options, level).map_err(|error| {
        let index = path.display();
        let state = match error {
            Error::InvalidIndex(_) => format!("the index {index} is damaged"),
            _ => format!("verifying the index {index}"),
        };
        anyhow::Error::from(error).context(state)
    })?;
    if json {
        return output::json(&json!({"index": path, "verified": verified}));
    }
    output::line(format_args!(
        "{}: good ({} checksums, {} document offsets, {} pairs of suffixes)",
        path.display(),
        verified.checksums,
        verified.documents,
        verified.suffix_pairs
    ));
    Ok(())
}
