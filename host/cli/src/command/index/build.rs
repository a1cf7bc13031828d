//! `corver-host index build`: builds an index from documents.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Context, Result};
use corver_corpus::{BuildOptions, BuildProgress, Index, Tokenizer, available_memory, build};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use crate::args::BuildArgs;
use crate::output;

use super::info::{describe_lengths, info_json};

pub fn run(args: &BuildArgs, json: bool) -> Result<()> {
    let BuildArgs { inputs, out, .. } = args;
    let start = Instant::now();
    let tokenizer = Tokenizer::from_file(&args.tokenizer)?;
    let bar = StageBar::new();
    let report = |progress: BuildProgress| bar.show(progress);
    let options = BuildOptions {
        shards: args.shards,
        metadata: !args.no_metadata,
        text_field: &args.text_field,
        memory: args.memory.or_else(|| available_memory().map(|free| free / 4 * 3)),
        restart: args.restart,
        progress: Some(&report),
        ..BuildOptions::default()
    };
    let manifest = build(inputs, &tokenizer, out, &options)
        .with_context(|| format!("building {}", out.display()))?;
    bar.bar.finish_and_clear();
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

/// A progress bar that restarts at each stage of a build; if hidden, a line per stage.
struct StageBar {
    bar: ProgressBar,
    stages: Mutex<Stages>,
}

/// The current stage, and the time of each.
struct Stages {
    current: &'static str,
    /// Label of the stage, with its shard if there are several.
    shown: String,
    since: Instant,
    seconds: BTreeMap<&'static str, f64>,
}

impl Stages {
    /// Adds the elapsed time to the current stage.
    fn take_time(&mut self) {
        *self.seconds.entry(self.current).or_default() += self.since.elapsed().as_secs_f64();
        self.since = Instant::now();
    }
}

impl StageBar {
    fn new() -> Self {
        let seconds = BTreeMap::new();
        let stages =
            Stages { current: "tokenising", shown: String::new(), since: Instant::now(), seconds };
        Self { bar: output::progress(0, "indexing"), stages: Mutex::new(stages) }
    }

    /// Returns the seconds that each stage has taken.
    fn seconds(&self) -> BTreeMap<&'static str, f64> {
        let mut stages = self.stages.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        stages.take_time();
        stages.seconds.clone()
    }

    fn show(&self, progress: BuildProgress) {
        match progress {
            BuildProgress::Resumed { documents, .. } => {
                output::note(
                    &self.bar,
                    &format!("resuming an interrupted build after {documents} documents"),
                );
            }
            BuildProgress::Tokenised { read_bytes, input_bytes, .. } => {
                self.advance(
                    "tokenising",
                    (0, 1),
                    "{bytes}/{total_bytes}, {bytes_per_sec}",
                    read_bytes,
                    input_bytes,
                );
            }
            BuildProgress::Sorting { shard, shards, tokens, sorted } => {
                self.advance("sorting", (shard, shards), TOKENS, sorted, tokens);
            }
            BuildProgress::Ranking { shard, shards, tokens, ranked } => {
                self.advance("ranking", (shard, shards), TOKENS, ranked, tokens);
            }
            BuildProgress::Merging { shard, shards, tokens, merged } => {
                self.advance("merging", (shard, shards), TOKENS, merged, tokens);
            }
            BuildProgress::Prefixes { shard, shards, prefixes, written } => {
                self.advance(
                    "prefixes",
                    (shard, shards),
                    "{human_pos}/{human_len}",
                    written,
                    prefixes,
                );
            }
            _ => {}
        }
    }

    fn advance(
        &self,
        name: &'static str,
        (shard, shards): (usize, usize),
        counters: &str,
        done: u64,
        total: u64,
    ) {
        let stage =
            if shards == 1 { name.to_owned() } else { format!("{name} {}/{shards}", shard + 1) };
        let mut stages = self.stages.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        stages.take_time();
        stages.current = name;
        if stages.shown != stage {
            if self.bar.is_hidden() {
                output::note(&self.bar, &stage);
            } else if let Ok(style) = ProgressStyle::with_template(&format!(
                "{{msg:>12}} [{{bar:32}}] {counters}, {{eta}} left"
            )) {
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

/// Template of a bar that counts tokens.
const TOKENS: &str = "{human_pos}/{human_len} tokens, {per_sec}";
