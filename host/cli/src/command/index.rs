//! `corver-host index build | count | serve | info | verify`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use corver_corpus::{
    BuildOptions, CnfOptions, Corpora, Corpus, Index, Level, Mode, OpenOptions, Passage, Progress, Tokenizer,
    WordCounter, WordQuery, available_memory, build, parse_query, verify,
};
use corver_remote::RemoteSettings;
use corver_serve::{Limits, Server};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use crate::args::{CountArgs, IndexArgs, IndexCommand};
use crate::config::{DEMO_SOURCE, window};
use crate::source::Source;
use crate::{output, parts};

/// Neighbouring suffixes that a quick verification compares, per shard.
const SAMPLE: u64 = 100_000;

pub fn run(args: &IndexArgs, json: bool) -> Result<()> {
    match &args.command {
        IndexCommand::Build { inputs, tokenizer, out, shards, text_field, memory, no_metadata, restart } => {
            let options = BuildOptions {
                shards: *shards,
                metadata: !no_metadata,
                text_field,
                memory: memory.or_else(|| available_memory().map(|free| free / 4 * 3)),
                restart: *restart,
                ..BuildOptions::default()
            };
            build_index(inputs, tokenizer, out, &options, json)
        }
        IndexCommand::Count(args) => count(args, json),
        IndexCommand::Serve { index, tokenizer, listen, name, cache } => {
            let path = folder(index.as_deref())?;
            let options = OpenOptions { cache_bytes: *cache, ..OpenOptions::default() };
            let corpus = open_folder(&path, tokenizer.as_deref(), options)?;
            let name = match (name, index) {
                (Some(name), _) => name.clone(),
                (None, None) => DEMO_SOURCE.to_owned(),
                (None, Some(_)) => folder_name(&path)?,
            };
            serve(corpus, &name, *listen, json)
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

fn build_index(inputs: &[PathBuf], tokenizer: &Path, out: &Path, options: &BuildOptions<'_>, json: bool) -> Result<()> {
    let start = Instant::now();
    let tokenizer = Tokenizer::from_file(tokenizer)?;
    let bar = StageBar::new();
    let report = |progress: Progress| bar.show(progress);
    let options = BuildOptions { progress: Some(&report), ..*options };
    let manifest = build(inputs, &tokenizer, out, &options).with_context(|| format!("building {}", out.display()))?;
    bar.bar.finish_and_clear();
    let info = Index::open(out)?.info();
    let seconds = start.elapsed().as_secs_f64();
    if json {
        return output::json(&json!({"index": info, "seconds": seconds, "stages": bar.seconds()}));
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

/// A bar for one stage of a build after the other, each with its own rate and time left; on a log, a line for each.
struct StageBar {
    bar: ProgressBar,
    stages: Mutex<Stages>,
}

/// What the build is at, and how long it was at what.
struct Stages {
    /// The stage, and how it is shown: with its shard, if there are several.
    current: &'static str,
    shown: String,
    since: Instant,
    seconds: BTreeMap<&'static str, f64>,
}

impl Stages {
    /// Adds the time that has passed to the current stage.
    fn take_time(&mut self) {
        *self.seconds.entry(self.current).or_default() += self.since.elapsed().as_secs_f64();
        self.since = Instant::now();
    }
}

impl StageBar {
    fn new() -> Self {
        let seconds = BTreeMap::new();
        let stages = Stages { current: "tokenising", shown: String::new(), since: Instant::now(), seconds };
        Self { bar: output::progress(0, "indexing"), stages: Mutex::new(stages) }
    }

    /// Seconds by stage.
    fn seconds(&self) -> BTreeMap<&'static str, f64> {
        let mut stages = self.stages.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        stages.take_time();
        stages.seconds.clone()
    }

    fn show(&self, progress: Progress) {
        match progress {
            Progress::Resumed { documents, .. } => {
                output::note(&self.bar, &format!("going on with an interrupted build after {documents} documents"));
            }
            Progress::Tokenised { read_bytes, input_bytes, .. } => {
                self.advance("tokenising", (0, 1), "{bytes}/{total_bytes}, {bytes_per_sec}", read_bytes, input_bytes);
            }
            Progress::Sorting { shard, shards, tokens, sorted } => {
                self.advance("sorting", (shard, shards), TOKENS, sorted, tokens);
            }
            Progress::Walking { shard, shards, tokens, walked } => {
                self.advance("placing", (shard, shards), TOKENS, walked, tokens);
            }
            Progress::Weaving { shard, shards, tokens, woven } => {
                self.advance("weaving", (shard, shards), TOKENS, woven, tokens);
            }
            _ => {}
        }
    }

    fn advance(&self, name: &'static str, (shard, shards): (usize, usize), counters: &str, done: u64, total: u64) {
        let stage = if shards == 1 { name.to_owned() } else { format!("{name} {}/{shards}", shard + 1) };
        let mut stages = self.stages.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        stages.take_time();
        stages.current = name;
        if stages.shown != stage {
            if self.bar.is_hidden() {
                output::note(&self.bar, &stage);
            } else if let Ok(style) =
                ProgressStyle::with_template(&format!("{{msg:>12}} [{{bar:32}}] {counters}, {{eta}} left"))
            {
                self.bar.set_style(style.progress_chars("=> "));
            }
            self.bar.reset();
            self.bar.set_message(stage.clone());
            stages.shown = stage;
        }
        self.bar.set_length(total);
        self.bar.set_position(done);
    }
}

/// How a bar counts tokens.
const TOKENS: &str = "{human_pos}/{human_len} tokens, {per_sec}";

fn count(args: &CountArgs, json: bool) -> Result<()> {
    let CountArgs { query, index, tokenizer, mode, exact, max_clause_freq, max_diff_tokens, show } = args;
    let words = parse_query(query)?;
    let sources = if index.is_empty() {
        vec![Source::Demo]
    } else {
        index.iter().map(|text| text.parse()).collect::<Result<Vec<Source>>>()?
    };
    let options = CnfOptions {
        mode: if *exact { Mode::Exact } else { (*mode).into() },
        max_clause_freq: *max_clause_freq,
        max_diff_tokens: max_diff_tokens.unwrap_or_else(|| window(sources == [Source::Demo])),
    };
    let corpora = sources.iter().map(|source| open(source, tokenizer.as_deref())).collect::<Result<Vec<_>>>()?;
    // Before the count, so that a source without text says so at once.
    let passages = passages(&sources, &corpora, &words, &options, *show)?;
    let counter = Corpora::new(corpora.into_iter().map(Opened::into_counter).collect());

    let start = Instant::now();
    let answer = counter.count_all(&[WordQuery { all_of: &words, enough: None }], &options);
    let micros = start.elapsed().as_secs_f64() * 1e6;
    let answer = answer.map_err(anyhow::Error::from_boxed)?.remove(0);
    let answer = answer.with_context(|| format!("a word of {query:?} has no tokens in this index's tokenizer"))?;
    if json {
        let mut result = json!({
            "query": query, "count": answer.count, "approx": answer.approx, "exact": answer.is_exact(), "micros": micros,
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
    let about = if answer.is_exact() { "" } else { " (an estimate from a sample; --exact counts all)" };
    output::line(format_args!("{} {counted}{about}   {micros:.1} µs", answer.count));
    if answer.count == 0 {
        output::line(format_args!(
            "words are counted as written after a space: case matters, and so do quotation marks"
        ));
    }
    passages.iter().for_each(show_passage);
    Ok(())
}

/// A source that was opened: as an index of its own where it lies on this machine.
enum Opened {
    Local(Box<Corpus>),
    Remote(Box<dyn WordCounter>),
}

impl Opened {
    fn into_counter(self) -> Box<dyn WordCounter> {
        match self {
            Self::Local(corpus) => corpus,
            Self::Remote(counter) => counter,
        }
    }
}

fn open(source: &Source, tokenizer: Option<&Path>) -> Result<Opened> {
    match source.folder()? {
        Some(folder) => Ok(Opened::Local(Box::new(open_folder(&folder, tokenizer, OpenOptions::default())?))),
        // A count by hand shall be a fresh one.
        None => {
            let remote = RemoteSettings { cache: false, ..RemoteSettings::default() };
            source.open(OpenOptions::default(), &remote).map(Opened::Remote)
        }
    }
}

fn open_folder(folder: &Path, tokenizer: Option<&Path>, options: OpenOptions) -> Result<Corpus> {
    let corpus = match tokenizer {
        Some(tokenizer) => Corpus::new(Index::open_with(folder, options)?, Tokenizer::from_file(tokenizer)?),
        None => Corpus::open_with(folder, options),
    };
    corpus.with_context(|| format!("opening the index {}", folder.display()))
}

/// Up to `limit` matches, of the first source as many as it has, and so on.
fn passages(
    sources: &[Source],
    corpora: &[Opened],
    words: &[Vec<String>],
    options: &CnfOptions,
    limit: usize,
) -> Result<Vec<Passage>> {
    let mut passages = Vec::new();
    for (source, corpus) in sources.iter().zip(corpora) {
        let wanted = limit - passages.len();
        match corpus {
            _ if wanted == 0 => break,
            Opened::Local(corpus) => passages.extend(corpus.passages(words, options, wanted)?),
            Opened::Remote(_) => bail!("{source} has no text to --show: the API only counts"),
        }
    }
    Ok(passages)
}

fn show_passage(passage: &Passage) {
    let text: String = passage
        .spans
        .iter()
        .map(|span| if span.matched { output::emphasised(&span.text) } else { span.text.clone() })
        .collect();
    output::line(format_args!("\n{}\n    {}", origin(passage), text.split_whitespace().collect::<Vec<_>>().join(" ")));
}

/// Where a passage comes from: as much as the index kept.
fn origin(passage: &Passage) -> String {
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

fn folder_name(path: &Path) -> Result<String> {
    let folder = path.canonicalize().with_context(|| format!("finding {}", path.display()))?;
    let name = folder.file_name().context("the index lies in no folder with a name: give it one with --name")?;
    Ok(name.to_string_lossy().into_owned())
}

fn serve(corpus: Corpus, name: &str, listen: SocketAddr, json: bool) -> Result<()> {
    let info = corpus.index().info();
    let server = Server::bind(corpus, name, listen, Limits::default())?;
    let url = format!("http://{}/#{name}", server.address());
    if !listen.ip().is_loopback() {
        tracing::warn!("whoever reaches {} may ask: there is no password", server.address());
    }
    if json {
        output::json(&json!({"url": url, "documents": info.documents, "tokens": info.tokens}))?;
    } else {
        output::line(format_args!("{url}: {} documents, {} tokens; Ctrl-C ends it", info.documents, info.tokens));
    }
    server.run_until_interrupted()?;
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
    anyhow::ensure!(path.exists(), "there is no index {}", path.display());
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
