//! The progress of a build, stage by stage.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Instant;

use corver_corpus::BuildProgress;
use indicatif::{ProgressBar, ProgressStyle};

use crate::output;

/// A progress bar that restarts at each stage of a build; if hidden, a line per stage.
pub struct StageBar {
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
    pub fn new() -> Self {
        let seconds = BTreeMap::new();
        let stages =
            Stages { current: "tokenising", shown: String::new(), since: Instant::now(), seconds };
        Self { bar: output::progress(0, "indexing"), stages: Mutex::new(stages) }
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }

    /// Returns the seconds that each stage has taken.
    pub fn seconds(&self) -> BTreeMap<&'static str, f64> {
        let mut stages = self.stages.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        stages.take_time();
        stages.seconds.clone()
    }

    /// Shows the stage and its progress.
    pub fn show(&self, progress: BuildProgress) {
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
