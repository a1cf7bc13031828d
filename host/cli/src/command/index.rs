//! `corver-host index build | count | info | verify`.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};
use corver_corpus::{
    BuildOptions, CnfOptions, Corpus, Index, Level, Mode, OpenOptions, Progress, Tokenizer, build, parse_query, verify,
};
use serde_json::json;

use crate::args::{IndexArgs, IndexCommand};
use crate::config::window;
use crate::{output, parts};

/// Neighbouring suffixes that a quick verification compares, per shard.
const SAMPLE: u64 = 100_000;

pub fn run(args: &IndexArgs, json: bool) -> Result<()> {
    match &args.command {
        IndexCommand::Build { inputs, tokenizer, out, shards, no_metadata } => {
            build_index(inputs, tokenizer, out, *shards, !no_metadata, json)
        }
        IndexCommand::Count { query, index, tokenizer, exact, max_clause_freq, max_diff_tokens } => {
            let mode = if *exact { Mode::Exact } else { Mode::Compatible };
            let max_diff_tokens = max_diff_tokens.unwrap_or_else(|| window(index.is_none()));
            let options = CnfOptions { mode, max_clause_freq: *max_clause_freq, max_diff_tokens };
            count(query, index.as_deref(), tokenizer.as_deref(), &options, json)
        }
        IndexCommand::Info { index } => info(index.as_deref(), json),
        IndexCommand::Verify { index, full } => {
            check(index.as_deref(), if *full { Level::Full } else { Level::Sampled(SAMPLE) }, json)
        }
    }
}

fn folder(index: Option<&Path>) -> Result<PathBuf> {
    index.map_or_else(parts::demo_index, |path| Ok(path.to_owned()))
}

fn build_index(
    inputs: &[PathBuf],
    tokenizer: &Path,
    out: &Path,
    shards: usize,
    metadata: bool,
    json: bool,
) -> Result<()> {
    let start = Instant::now();
    let tokenizer = Tokenizer::from_file(tokenizer)?;
    let bar = output::progress(0, "indexing");
    let report = |progress: Progress| show(&bar, progress);
    let mut options = BuildOptions::with_shards(shards);
    options.metadata = metadata;
    options.progress = Some(&report);
    let manifest = build(inputs, &tokenizer, out, &options).with_context(|| format!("building {}", out.display()))?;
    bar.finish_and_clear();
    let info = Index::open(out)?.info();
    let seconds = start.elapsed().as_secs_f64();
    if json {
        return output::json(&json!({"index": info, "seconds": seconds}));
    }
    output::line(format_args!(
        "{}: {} documents, {} tokens, {:.1} MB of text in {seconds:.1} s",
        out.display(),
        info.documents,
        info.tokens,
        manifest.text_bytes as f64 / 1e6
    ));
    Ok(())
}

fn show(bar: &indicatif::ProgressBar, progress: Progress) {
    match progress {
        Progress::Tokenised { read_bytes, input_bytes, .. } => {
            bar.set_length(input_bytes);
            bar.set_position(read_bytes);
        }
        Progress::Sorting { shard, .. } => bar.set_message(format!("sorting {shard}")),
        _ => {}
    }
}

fn count(query: &str, index: Option<&Path>, tokenizer: Option<&Path>, options: &CnfOptions, json: bool) -> Result<()> {
    let path = folder(index)?;
    let corpus = match tokenizer {
        Some(tokenizer) => Corpus::new(Index::open(&path)?, Tokenizer::from_file(tokenizer)?),
        None => Corpus::open(&path),
    }
    .with_context(|| format!("opening the index {}", path.display()))?;
    let words = parse_query(query)?;
    let start = Instant::now();
    let answer = corpus.count_words(&words, options, None)?;
    let micros = start.elapsed().as_secs_f64() * 1e6;
    let answer = answer.with_context(|| format!("a word of {query:?} has no tokens in this index's tokenizer"))?;
    if json {
        return output::json(&json!({
            "query": query, "count": answer.count, "approx": answer.approx, "exact": answer.is_exact(), "micros": micros,
        }));
    }
    let about = if answer.is_exact() { "" } else { " (an estimate from a sample; --exact counts all)" };
    output::line(format_args!("{}{about}   {micros:.1} µs", answer.count));
    Ok(())
}

fn info(index: Option<&Path>, json: bool) -> Result<()> {
    let path = folder(index)?;
    let info = Index::open(&path).with_context(|| format!("opening the index {}", path.display()))?.info();
    if json {
        return output::json(&info);
    }
    output::line(format_args!("folder       {}", info.path.display()));
    output::line(format_args!("documents    {}", info.documents));
    output::line(format_args!("tokens       {}", info.tokens));
    if let Some(bytes) = info.text_bytes {
        output::line(format_args!("text         {:.1} MB", bytes as f64 / 1e6));
    }
    output::line(format_args!("on disk      {:.1} MB", info.index_bytes as f64 / 1e6));
    output::line(format_args!("token width  {} bytes", info.token_width.bytes()));
    output::line(format_args!("tokenizer    {}", info.tokenizer.as_deref().unwrap_or("not recorded")));
    let shards = info.shards.iter().enumerate().map(|(number, shard)| {
        [number.to_string(), shard.documents.to_string(), shard.tokens.to_string(), shard.pointer_width.to_string()]
    });
    output::table(["shard", "documents", "tokens", "pointer bytes"], shards);
    Ok(())
}

fn check(index: Option<&Path>, level: Level, json: bool) -> Result<()> {
    let path = folder(index)?;
    let verified = verify(&path, OpenOptions::default(), level)
        .with_context(|| format!("the index {} is damaged", path.display()))?;
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
