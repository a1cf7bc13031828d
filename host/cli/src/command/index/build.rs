//! `corver-host index build`: builds an index from documents.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};
use corver_corpus::{BuildOptions, BuildProgress, Index, Tokenizer, available_memory, build};
use corver_data::hub;
use serde_json::json;

use crate::args::BuildArgs;
use crate::command::index::stage_bar::StageBar;
use crate::output;

use super::info::{describe_lengths, info_json};

pub fn run(args: &BuildArgs, json: bool) -> Result<()> {
    let BuildArgs { inputs, out, .. } = args;
    let inputs: Vec<PathBuf> = inputs.iter().map(|input| input_path(input)).collect();
    let start = Instant::now();
    let tokenizer = Tokenizer::open(&args.tokenizer)?;
    let bar = StageBar::new();
    let report = |progress: BuildProgress| bar.show(progress);
    let options = BuildOptions {
        shards: args.shards,
        metadata: !args.no_metadata,
        text_field: &args.text_field,
        memory: args.memory.or_else(default_memory),
        restart: args.restart,
        progress: Some(&report),
        ..BuildOptions::default()
    };
    let manifest = build(&inputs, &tokenizer, out, &options)
        .with_context(|| format!("building {}", out.display()))?;
    bar.finish();
    let index = Index::open(out)?;
    let info = index.info();
    let lengths = index.document_lengths()?;
    let seconds = start.elapsed().as_secs_f64();
    if json {
        return output::json(
            &json!({"index": info_json(&info, &lengths)?, "seconds": seconds, "stages": bar.seconds()}),
        );
    }
    output::line(format_args!(
        "{}: {} documents, {} tokens, {:.1} MB of text in {seconds:.1} s",
        out.display(),
        info.documents,
        info.tokens,
        manifest.text_bytes as f64 / 1e6
    ));
    output::line(format_args!("document lengths: {}", describe_lengths(&lengths)));
    Ok(())
}

/// Returns the folder of a downloaded dataset, `OWNER/NAME` or `OWNER/NAME/FOLDER`; the input itself if
/// it exists or is no such name.
fn input_path(input: &Path) -> PathBuf {
    let parts: Vec<_> = input.iter().collect();
    if input.exists() || parts.len() < 2 {
        return input.to_owned();
    }
    let name: PathBuf = parts[..2].iter().collect();
    let snapshot = name.to_str().and_then(|name| hub::snapshot(hub::RepoKind::Dataset, name));
    match snapshot {
        Some(snapshot) => parts[2..].iter().fold(snapshot, |folder, part| folder.join(part)),
        None => input.to_owned(),
    }
}

/// Returns three quarters of the free memory, bytes; `None` if it is not known.
pub fn default_memory() -> Option<u64> {
    available_memory().map(|free| free / 4 * 3)
}
