//! `corver-host index count`: counts co-occurrences.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use corver_corpus::{CnfCount, CnfOptions, MatchPassage, Mode, OpenOptions, parse_query};
use corver_counts::{
    CorpusSource, Local, OpenSettings, OpenedSource, RemoteSettings, Sum, rarest_first,
};
use corver_reward::config::{self, DemoOr};
use corver_reward::parts;
use serde_json::json;

use crate::args::CountArgs;
use crate::index_folder::open_folder;
use crate::output;

use super::default_window;

/// Seconds during which a request to a server is retried.
const PATIENCE_S: f64 = 5.0;

/// Returns the default options: those of `corpus.*`, or the demo's for the demo's index.
fn default_options(sources: &[DemoOr<CorpusSource>], max_clause_freq: u64) -> CnfOptions {
    if sources == [DemoOr::Demo] {
        let max_diff_tokens = corver_demo::WINDOW;
        return CnfOptions { max_clause_freq, max_diff_tokens, mode: Mode::Compatible };
    }
    CnfOptions { max_clause_freq, max_diff_tokens: default_window(), mode: Mode::Exact }
}

pub fn run(args: &CountArgs, json: bool) -> Result<()> {
    let CountArgs { query, tokenizer, mode, exact, max_clause_freq, max_diff_tokens, show, .. } =
        args;
    let mut words = parse_query(query)?;
    let sources = config::parse_sources(&args.index)?;
    let mut options = default_options(&sources, *max_clause_freq);
    if *exact {
        options.mode = Mode::Exact;
    } else if let Some(own_mode) = *mode {
        options.mode = own_mode.into();
    }
    if let Some(max_diff_tokens) = *max_diff_tokens {
        options.max_diff_tokens = max_diff_tokens;
    }
    let sources = parts::resolve_sources(&sources)?;
    // An interactive count bypasses the cache, and fails soon instead of retrying for minutes.
    let remote = RemoteSettings {
        cache: false,
        retry_timeout_s: PATIENCE_S,
        token_file: args.token_file.clone(),
        ..RemoteSettings::default()
    };
    corver_counts::check_token(&sources, &remote)?;
    if *show > 0
        && let Some(server) =
            sources.iter().find(|source| matches!(source, CorpusSource::Remote { .. }))
    {
        bail!("{server} has no text to --show: the API only counts");
    }
    let requested_mode = options.mode;
    if sources.len() > 1 {
        options.mode = Sum::member_mode(requested_mode);
    }
    let open = |source| open(source, tokenizer.as_deref(), options, &remote);
    let corpora: Vec<OpenedSource> = sources.iter().map(open).collect::<Result<_>>()?;
    corver_counts::check_parts(sources.iter().zip(&corpora))?;
    let start = Instant::now();
    if corpora.len() > 1 && requested_mode == Mode::Exact {
        let mut occurrences = Vec::with_capacity(words.len());
        for clause in &words {
            let count = count(&corpora, std::slice::from_ref(clause))?;
            occurrences.push(count.map_or(0, |count| count.count));
        }
        words = rarest_first(&words, &occurrences);
    }
    let answer = count(&corpora, &words)?;
    let micros = start.elapsed().as_secs_f64() * 1e6;
    let answer = answer
        .with_context(|| format!("a word of {query:?} has no tokens in this index's tokenizer"))?;
    let passages = passages(&corpora, &words, &options, *show)?;
    if json {
        let mut result = json!({
            "query": query, "count": answer.count, "approx": answer.approx,
            "precision": corver_counts::wire::precision(&answer), "micros": micros,
        });
        if *show > 0 {
            result["passages"] = serde_json::to_value(&passages)?;
        }
        return output::json(&result);
    }
    let counted = match words.as_slice() {
        [_] => "occurrences".to_owned(),
        _ => format!("matches within {} tokens", options.max_diff_tokens),
    };
    let about =
        if answer.is_exact() { "" } else { " (an estimate from a sample; --exact counts all)" };
    output::line(format_args!("{} {counted}{about}   {micros:.1} µs", answer.count));
    if answer.count == 0 {
        output::line(format_args!(
            "words are matched as written after a space: case matters, and so do quotation marks"
        ));
    }
    passages.iter().for_each(show_passage);
    Ok(())
}

fn open(
    source: &CorpusSource,
    tokenizer: Option<&Path>,
    options: CnfOptions,
    remote: &RemoteSettings,
) -> Result<OpenedSource> {
    match source {
        CorpusSource::Folder(folder) => {
            let corpus = open_folder(folder, tokenizer, OpenOptions::default())?;
            Ok(OpenedSource::Local(Local::new(corpus, options)))
        }
        CorpusSource::Remote { .. } => Ok(source.open(&OpenSettings {
            options,
            remote: remote.clone(),
            ..OpenSettings::default()
        })?),
    }
}

/// Returns the sum of the counts in all corpora; `None` if a word has no tokens in any of them.
fn count(corpora: &[OpenedSource], words: &[Vec<String>]) -> Result<Option<CnfCount>> {
    let mut total = None;
    for corpus in corpora {
        if let Some(count) = corpus.count_words(words)? {
            total = Some(total.map_or(count, |total| sum(total, count)));
        }
    }
    Ok(total)
}

/// Adds the counts of two corpora.
fn sum(one: CnfCount, other: CnfCount) -> CnfCount {
    CnfCount {
        count: one.count.saturating_add(other.count),
        approx: one.approx || other.approx,
        sampled: one.sampled || other.sampled,
        at_least: one.at_least || other.at_least,
    }
}

/// Returns up to `limit` matching passages, from the first folder, then the second, and so on.
fn passages(
    corpora: &[OpenedSource],
    words: &[Vec<String>],
    options: &CnfOptions,
    limit: usize,
) -> Result<Vec<MatchPassage>> {
    let mut passages = Vec::new();
    for corpus in corpora {
        let wanted = limit - passages.len();
        if wanted > 0
            && let OpenedSource::Local(local) = corpus
        {
            passages.extend(local.corpus().passages(words, options, wanted)?);
        }
    }
    Ok(passages)
}

fn show_passage(passage: &MatchPassage) {
    output::line("");
    output::line(origin(passage));
    output::running_text(passage.spans.iter().map(|span| (span.text.as_str(), span.matched)));
}

/// Describes a passage's origin: its document number, with title, file and line if the index has
/// metadata.
pub fn origin(passage: &MatchPassage) -> String {
    let number = format!("document {} of shard {}", passage.document, passage.shard);
    let Some(metadata) = &passage.metadata else { return number };
    let mut parts = Vec::new();
    parts.extend(metadata["metadata"]["title"].as_str().map(str::to_owned));
    if let (Some(path), Some(line)) = (metadata["path"].as_str(), metadata["linenum"].as_u64())
        && !path.is_empty()
    {
        parts.push(format!("{path}, line {}", line + 1));
    }
    parts.push(number);
    parts.join(" · ")
}
