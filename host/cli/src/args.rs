//! What the command line takes.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use tracing::level_filters::LevelFilter;

/// Train language models with reward rules that are WebAssembly plugins.
///
/// Every command works on a small built-in world when it is told nothing else, so the shortest tour is
/// `corver-host train`. Exit codes: 0 good, 1 it failed and the message says why, 2 the command line was wrong.
#[derive(Debug, Parser)]
#[command(name = "corver-host", version, max_term_width = 100)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
    /// Print results as JSON.
    #[arg(long, global = true)]
    pub json: bool,
    /// Say more on standard error (-vv: everything).
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
}

impl Arguments {
    pub fn log_level(&self) -> LevelFilter {
        match self.verbose {
            0 => LevelFilter::WARN,
            1 => LevelFilter::INFO,
            _ => LevelFilter::DEBUG,
        }
    }
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Train a policy with a reward rule.
    ///
    /// Without options: the built-in demo with the First rule, in a few minutes on a laptop CPU.
    ///
    ///   corver-host train --plugin min.wasm
    ///   corver-host train --plugin first.wasm:0.7 --plugin anti-repeat.wasm:0.3
    ///   corver-host train --config configs/qwen3-8b.toml --set question.train=questions.json --device cuda:0
    ///   corver-host train --out runs/first-001 --resume
    #[command(verbatim_doc_comment)]
    Train(TrainArgs),
    /// Answer and grade a question set, with a raw model or with an adapter.
    Eval(EvalArgs),
    /// Score completions and show why each sentence earned what it earned: the quickest way to try a rule.
    ///
    /// The file has one JSON object per line: {"question", "answers", "completion"}; "answers" is a list, or a string in
    /// which ; separates them. With "triplets" in every line, as [[sentence, [[head, relation, tail], …]], …], no extractor
    /// is needed; every sentence of the completion is then listed, those that state no fact with [].
    Score(ScoreArgs),
    /// Build, query and check a corpus index (Infini-gram v4 format).
    Index(IndexArgs),
    /// Extract triplets from sentences, one sentence per line.
    Extract(ExtractArgs),
    /// Write, build, try and look at reward rules.
    Plugin(PluginArgs),
    /// The built-in demo world: look at it, or make its parts anew.
    Demo(DemoArgs),
    /// Say what this machine has and what is missing, with the command that mends it.
    Doctor,
}

/// Where settings come from, later ones winning: defaults, --config files, --set, flags.
#[derive(Debug, Clone, Args)]
pub struct SettingsArgs {
    /// TOML file, or `demo` for the built-in one; may be given several times, later ones winning. Default: demo, which a file
    /// given alone replaces.
    #[arg(long, value_name = "FILE")]
    pub config: Vec<PathBuf>,
    /// One setting, as section.key=value; may be given several times.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

/// Settings, with flags for those that change most often.
#[derive(Debug, Clone, Args)]
pub struct ConfigArgs {
    #[command(flatten)]
    pub settings: SettingsArgs,
    /// The reward rule; looked for as given, then in plugins/dist. Several are added up: a.wasm:0.7, b.wasm:0.3.
    #[arg(long, value_name = "FILE.wasm[:WEIGHT]")]
    pub plugin: Vec<String>,
    /// Where the policy runs: auto, cpu, cuda or cuda:N. (The extractor: --set extract.device=cuda:N.)
    #[arg(long)]
    pub device: Option<String>,
}

/// What completions earn as a whole.
#[derive(Debug, Clone, Args)]
pub struct GraderArgs {
    /// A response rule that judges the answers, in place of the built-in string match.
    #[arg(long, value_name = "FILE.wasm")]
    pub judge: Option<String>,
    /// A response rule that checks the format, in place of the built-in check of think and answer blocks.
    #[arg(long, value_name = "FILE.wasm")]
    pub format: Option<String>,
}

#[derive(Debug, Args)]
pub struct TrainArgs {
    #[command(flatten)]
    pub config: ConfigArgs,
    #[command(flatten)]
    pub graders: GraderArgs,
    /// Folder of the run. Default: the next free runs/RULE-NNN.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Go on with the run in --out from its newest checkpoint, with the settings that it began with.
    #[arg(long, requires = "out")]
    pub resume: bool,
    /// Optimiser steps.
    #[arg(long)]
    pub steps: Option<usize>,
    /// Decides every draw of the run.
    #[arg(long)]
    pub seed: Option<u64>,
    /// Print the resolved configuration and stop.
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Debug, Args)]
pub struct EvalArgs {
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Question set; default: the configuration's.
    #[arg(long, value_name = "FILE")]
    pub questions: Option<PathBuf>,
    /// Only the first so many questions.
    #[arg(long)]
    pub limit: Option<usize>,
    /// Adapter or checkpoint folder to put on the model.
    #[arg(long, value_name = "DIR")]
    pub adapter: Option<PathBuf>,
    /// Write one line per question to this file.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct ScoreArgs {
    #[command(flatten)]
    pub config: ConfigArgs,
    #[command(flatten)]
    pub graders: GraderArgs,
    /// Completions, one JSON object per line.
    pub file: PathBuf,
    #[command(flatten)]
    pub recording: RecordingArgs,
}

#[derive(Debug, Args)]
pub struct IndexArgs {
    #[command(subcommand)]
    pub command: IndexCommand,
}

#[derive(Debug, Subcommand)]
pub enum IndexCommand {
    /// Build an index from JSONL (.gz and .zst too) or Parquet files.
    ///
    /// A build that was interrupted goes on where it was when the same command is given again.
    Build {
        /// JSONL or Parquet files, or folders of them; they are indexed in order of name.
        #[arg(required = true)]
        inputs: Vec<PathBuf>,
        /// Hugging Face tokenizer.json.
        #[arg(long)]
        tokenizer: PathBuf,
        /// Folder of the new index; must not exist.
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// Parts that the documents are dealt out to.
        #[arg(long, default_value_t = 1)]
        shards: usize,
        /// Field that holds a document's text.
        #[arg(long, default_value = "text", value_name = "NAME")]
        text_field: String,
        /// Memory to stay within, as 8G or 500M; more text than that is sorted in parts. Default: three
        /// quarters of what is free.
        #[arg(long, value_name = "BYTES", value_parser = bytes)]
        memory: Option<u64>,
        /// Leave out the files that say where each document came from.
        #[arg(long)]
        no_metadata: bool,
        /// Discard an interrupted build of the same name instead of going on with it.
        #[arg(long)]
        restart: bool,
    },
    /// Count how often words occur together: 'Philadelphia Flyers AND Stanley Cup'.
    Count(CountArgs),
    /// Answer Infini-gram's HTTP API from an index, for other machines to count in it.
    ///
    /// Prints the address to give them as corpus.index, and ends with Ctrl-C.
    Serve {
        /// Index folder; default: the demo's.
        #[arg(long, value_name = "DIR")]
        index: Option<PathBuf>,
        /// tokenizer.json, where the index does not hold its own.
        #[arg(long)]
        tokenizer: Option<PathBuf>,
        /// Address and port; beyond this machine only in a network that you trust.
        #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8765")]
        listen: SocketAddr,
        /// What clients call the index. Default: the folder's name.
        #[arg(long)]
        name: Option<String>,
        /// Memory for the sorted positions of frequent words, as 2G or 500M; they are then not sorted again.
        #[arg(long, value_name = "BYTES", value_parser = bytes, default_value = "256M")]
        cache: u64,
    },
    /// Documents, tokens, widths and tokenizer of an index.
    Info {
        /// Index folder; default: the demo's.
        index: Option<PathBuf>,
    },
    /// Check an index: checksums, document offsets, order of the suffix array.
    Verify {
        /// Index folder; default: the demo's.
        index: Option<PathBuf>,
        /// Check the order of every pair of suffixes, not of a sample.
        #[arg(long)]
        full: bool,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum CountMode {
    /// The official engine's, sub-sampling included.
    Compatible,
    /// Every match of the same rule, never a sample.
    Exact,
    /// Stretches of at most the window's length that hold all words, and nothing shorter that does.
    Span,
}

impl From<CountMode> for corver_corpus::Mode {
    fn from(mode: CountMode) -> Self {
        match mode {
            CountMode::Compatible => Self::Compatible,
            CountMode::Exact => Self::Exact,
            CountMode::Span => Self::Span,
        }
    }
}

#[derive(Debug, Args)]
pub struct CountArgs {
    /// Words joined by AND and OR; several words in a row are a phrase.
    pub query: String,
    /// Index folder, or URL#NAME of an index on a server; given several times, counts are added. Default: the demo's.
    #[arg(long, value_name = "DIR|URL#NAME")]
    pub index: Vec<String>,
    /// tokenizer.json, where the index does not hold its own.
    #[arg(long)]
    pub tokenizer: Option<PathBuf>,
    /// Which numbers to give.
    #[arg(long, value_enum, default_value_t = CountMode::Compatible)]
    pub mode: CountMode,
    /// Short for --mode exact.
    #[arg(long, conflicts_with = "mode")]
    pub exact: bool,
    /// Clauses with more hits are sub-sampled, as the official engine does.
    #[arg(long, default_value_t = 500_000)]
    pub max_clause_freq: u64,
    /// Window in tokens. Default: 1,000; the demo's own where the index is the demo's.
    #[arg(long)]
    pub max_diff_tokens: Option<u64>,
    /// Also print so many matching passages, spread over all matches.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub show: usize,
}

#[derive(Debug, Args)]
pub struct ExtractArgs {
    /// Extractor bundle; default: the demo's.
    #[arg(long, value_name = "DIR")]
    pub bundle: Option<PathBuf>,
    /// cpu, or cuda:N where ONNX Runtime is a build with CUDA.
    #[arg(long, default_value = "cpu")]
    pub device: String,
    /// Sentences, one per line; default: standard input.
    pub file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct PluginArgs {
    #[command(subcommand)]
    pub command: PluginCommand,
}

#[derive(Debug, Subcommand)]
pub enum PluginCommand {
    /// Start a rule of your own: a project that builds and passes its tests.
    New {
        /// Folder of the project; must not exist. Its last part is the rule's name.
        dir: PathBuf,
        /// What it is written in. Python needs componentize-py to build, JavaScript componentize-js; both run tens of times
        /// slower.
        #[arg(long, value_enum, default_value_t = Language::Rust)]
        lang: Language,
        /// What it rewards: sentences, by counts, or whole completions, as a judge or a format check.
        #[arg(long, value_enum, default_value_t = RuleKind::Sentence)]
        kind: RuleKind,
        /// The `sdk` folder of a CorVer checkout; default: of the one that this binary was built from.
        #[arg(long, value_name = "DIR")]
        sdk: Option<PathBuf>,
    },
    /// Compile a rule's project to WebAssembly: DIR/NAME.wasm.
    Build {
        /// Folder of the project.
        #[arg(default_value = ".")]
        dir: PathBuf,
    },
    /// Load a rule as training would, print who it is and what it takes, and try it on odd sentences.
    Check(RuleArgs),
    /// Judge sentences, or grade completions, and show why each earns what it earns.
    ///
    /// The file has one JSON object per line: {"sentence", "triplets": [[head, relation, tail], …]}, the sentences of one
    /// completion; without "triplets" the extractor finds them. Or completions, as `score` takes them; a response rule
    /// grades those alone.
    Run(PluginRunArgs),
    /// Measure what a rule costs.
    Bench(RuleArgs),
    /// The rules that are built.
    List,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Language {
    Rust,
    Python,
    Js,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RuleKind {
    Sentence,
    Response,
}

/// A rule of either kind with its settings, which are `rule.settings` here: --set rule.settings.KEY=VALUE.
#[derive(Debug, Args)]
pub struct RuleArgs {
    /// The rule; looked for as given, then in plugins/dist. Its settings: --set rule.settings.KEY=VALUE.
    #[arg(value_name = "FILE.wasm")]
    pub plugin: String,
    #[command(flatten)]
    pub settings: SettingsArgs,
}

#[derive(Debug, Args)]
pub struct PluginRunArgs {
    #[command(flatten)]
    pub rule: RuleArgs,
    /// Sentences or completions, one JSON object per line.
    pub file: PathBuf,
    #[command(flatten)]
    pub recording: RecordingArgs,
}

/// Where counts come from, and go to.
#[derive(Debug, Args)]
pub struct RecordingArgs {
    /// Write every count that is looked up to this new file.
    #[arg(long, value_name = "FILE", conflicts_with = "replay")]
    pub record: Option<PathBuf>,
    /// Take all counts from this recording, and open no index.
    #[arg(long, value_name = "FILE")]
    pub replay: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct DemoArgs {
    #[command(subcommand)]
    pub command: DemoCommand,
}

#[derive(Debug, Subcommand)]
pub enum DemoCommand {
    /// Write the world to a folder: articles (JSONL), training and evaluation questions.
    World {
        /// Folder to write to.
        out: PathBuf,
    },
    /// Train the policy and its tokenizer anew, with their imperfect knowledge of the world.
    TrainPolicy {
        /// Folder to write to.
        out: PathBuf,
    },
    /// Train the extractor and its tokenizer anew, and write them as an ONNX bundle.
    TrainExtractor {
        /// Folder to write to.
        out: PathBuf,
    },
}

/// A number of bytes, with K, M, G or T for powers of 1,024.
fn bytes(text: &str) -> Result<u64, String> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[number.len()..].to_ascii_uppercase().trim_end_matches("IB").trim_end_matches('B') {
        "" => 1_u64,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        "T" => 1 << 40,
        other => return Err(format!("unknown unit {other}; write 500M or 8G")),
    };
    let number: f64 = number.parse().map_err(|_| "not a number of bytes; write 500M or 8G".to_owned())?;
    let bytes = number * unit as f64;
    if bytes >= 1.0 { Ok(bytes as u64) } else { Err("a positive number of bytes is needed".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        let sizes = ["7", "500M", "8G", "8g", "1.5GiB", "2KB"].map(|text| bytes(text).unwrap());
        assert_eq!(sizes, [7, 500 << 20, 8 << 30, 8 << 30, 3 << 29, 2048]);
        assert!(["", "G", "8X", "-1G", "0"].iter().all(|text| bytes(text).is_err()));
    }
}
