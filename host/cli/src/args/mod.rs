//! The command line, as clap parses it.

mod calibrate;
mod check;
mod data;
mod eval;
mod extract;
mod index;
mod judge;
mod mcp;
mod plugin;
mod report;
mod score;
mod serve;
mod server;
mod settings;
mod train;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use tracing::level_filters::LevelFilter;

pub use calibrate::{
    AuditArgs, CalibrateArgs, CalibrateCommand, CorpusCalibrationArgs, DrawArgs, ReadArgs,
};
pub use check::CheckArgs;
pub use data::{DataArgs, DataCommand, DemonstrationsArgs, EvidenceArgs, PoolArgs};
pub use eval::{EvalArgs, EvalCommand};
#[cfg(feature = "torch")]
pub use extract::ExtractTrainArgs;
pub use extract::{ExtractArgs, ExtractCommand};
pub use index::{
    AdoptArgs, BuildArgs, CountArgs, IndexArgs, IndexCommand, IndexServeArgs, InfoArgs, PackArgs,
    PassagesArgs, SearchArgs, VerifyArgs,
};
pub use judge::JudgeArgs;
pub use mcp::McpArgs;
pub use plugin::{
    NewArgs, PlayArgs, PluginArgs, PluginCommand, PluginRunArgs, RuleArgs, RuleKind, SdkLanguage,
};
pub use report::{ExplainArgs, ReportArgs};
pub use score::{RecordingArgs, ScoreArgs};
pub use serve::ServeArgs;
pub use server::ServerArgs;
pub use settings::{
    CorpusArgs, Flags, GraderArgs, LengthArgs, PartArgs, PolicyArgs, QuestionArgs, RewardArgs,
    SettingsArgs,
};
pub use train::{CompareArgs, FilterArgs, MergeArgs, SftArgs, TrainArgs};

/// Train language models with reward rules that are WebAssembly plugins
///
/// Without a model, corpus, questions or demonstrations of your own, a command uses the built-in
/// demo: `corver-host train` alone trains a small model in a few minutes.
///
/// Exit codes: 0 success; 1 failure, with the reason on standard error; 2 usage error;
/// 3 `check` found an unsupported sentence; 130 interrupted. After the first Ctrl-C, `train`, `sft`,
/// `extract train`, `filter` and `compare` save their state and exit with 0.
#[derive(Debug, Parser)]
#[command(name = "corver-host", version, verbatim_doc_comment)]
pub struct Cli {
    #[command(subcommand)]
    pub command: CliCommand,
    /// Print results as JSON.
    #[arg(long, global = true)]
    pub json: bool,
    /// Log the duration of every stage to standard error (-vv: debug messages too).
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
}

impl Cli {
    pub fn log_level(&self) -> LevelFilter {
        match self.verbose {
            0 => LevelFilter::WARN,
            1 => LevelFilter::INFO,
            _ => LevelFilter::DEBUG,
        }
    }
}

// clap does not wrap texts here: examples keep a line each, and long texts break as written.
#[derive(Debug, Subcommand)]
pub enum CliCommand {
    /// Train a policy with a reward rule
    ///
    /// Without options: the built-in demo with the rule First, in a few minutes on a laptop CPU.
    ///
    /// Examples:
    ///   corver-host train --plugin min.wasm
    ///   corver-host train --plugin first.wasm:0.7 --plugin anti-repeat.wasm:0.3
    ///   corver-host train --config configs/qwen3-8b.toml --model Qwen/Qwen3-8B \
    ///     --extractor extractor --index wikipedia --questions zone/questions.jsonl
    ///   corver-host train --out runs/first-001 --resume
    #[command(verbatim_doc_comment)]
    Train(TrainArgs),
    /// Fine-tune an adapter on demonstrations (SFT), as a cold start for training
    ///
    /// The file has one JSON object per line: {"question", "completion"}. The loss is on the
    /// completions only, each with its end-of-sequence token. The settings `sft.*` have the
    /// number of epochs and the learning rate, `update.lora` the adapter's size.
    ///
    /// Examples:
    ///   corver-host sft demonstrations.jsonl --model Qwen/Qwen3-4B --out runs/sft-001
    ///   corver-host sft demonstrations.jsonl --out runs/sft-001 --resume
    ///   corver-host train --set policy.adapter=runs/sft-001/checkpoints/step-000120
    #[command(verbatim_doc_comment)]
    Sft(SftArgs),
    /// Select questions that the model answers correctly in some but not all samples
    ///
    /// Draws 16 answers to every question. Questions with 1 to 15 correct answers go into
    /// questions.jsonl in --out, a file for `train --questions`.
    ///
    /// Examples:
    ///   corver-host filter --model Qwen/Qwen3-4B --questions pool.json --out pool-qwen3-4b
    ///   corver-host filter --out pool-qwen3-4b --resume --anchors 500
    #[command(verbatim_doc_comment)]
    Filter(FilterArgs),
    /// Prepare question sets: build pools, attach evidence.
    Data(DataArgs),
    /// Answer and grade question sets with the raw model or with adapters
    ///
    /// Examples:
    ///   corver-host eval --model Qwen/Qwen3-4B --questions nq.json --questions popqa.json \
    ///     --raw --adapter runs/first-001/checkpoints/step-000100 --out answers
    ///   corver-host eval diff answers/raw.nq.jsonl answers/first-001-step-000100.nq.jsonl
    #[command(verbatim_doc_comment)]
    Eval(EvalArgs),
    /// Judge answers or sentences with a chat model; report its agreement with other labels
    ///
    /// For an answer, the model sees the question and its golds. For a sentence of a calibration
    /// sheet, it sees the sentence only; the sheet with the model's labels goes into --out, to be
    /// checked by a person and read by `calibrate read`.
    ///
    /// Works with any OpenAI-compatible endpoint. Replies are cached: the same command resumes
    /// after an interrupt, and no reply is requested twice.
    ///
    /// Examples:
    ///   corver-host judge answers/raw.nq.jsonl --questions nq.json --prompt my-judge.toml \
    ///     --max-cost 1
    ///   corver-host judge runs/first-001/answers_after.jsonl --questions eval.json \
    ///     --endpoint http://localhost:8000/v1 --chat-model Qwen/Qwen3-32B
    ///   corver-host judge sheet.csv --endpoint http://localhost:8000/v1 \
    ///     --chat-model Qwen/Qwen3-32B --out affirmed
    #[command(verbatim_doc_comment)]
    Judge(JudgeArgs),
    /// Train several arms with the same seeds, and test which differences are significant
    ///
    /// An arm is a rule (--plugin), or a settings file over the common settings (--arm). All are
    /// compared with the first: the first rule or, without --plugin, the common settings.
    ///
    /// Examples:
    ///   corver-host compare --plugin first.wasm --plugin mine.wasm --seeds 3
    ///   corver-host compare --out runs/ablations \
    ///     --arm configs/ablations/a1-no-cooccurrence.toml configs/ablations/a2-no-judge.toml
    ///   corver-host compare --out runs/ablations --resume --seeds 8 \
    ///     --eval triviaqa.json popqa.json
    #[command(verbatim_doc_comment)]
    Compare(CompareArgs),
    /// Measure how well corpus counts and rule rewards predict truth
    ///
    /// Examples:
    ///   corver-host calibrate draw runs/first-001 --out sheet.csv
    ///   corver-host calibrate read sheet.csv
    ///   corver-host calibrate audit --plugin first.wasm --plugin min.wasm
    #[command(verbatim_doc_comment)]
    Calibrate(CalibrateArgs),
    /// Merge an adapter into a model's weights
    ///
    /// The output is a Hugging Face folder, for inference servers and other programs.
    ///
    /// Example:
    ///   corver-host merge --model Qwen/Qwen3-8B runs/first-001/checkpoints/step-000100 \
    ///     qwen3-8b-first
    #[command(verbatim_doc_comment)]
    Merge(MergeArgs),
    /// Score completions, and show the reward of each sentence with its reason
    ///
    /// The quickest way to try a rule. The file has one JSON object per line:
    /// {"question", "answers", "completion"}. "answers" is a list, or a string separated by
    /// semicolons. If every line has "triplets", [[sentence, [[head, relation, tail], …]], …],
    /// no extractor is needed. They must then list every sentence of the completion, with []
    /// for a sentence that states no fact.
    #[command(verbatim_doc_comment)]
    Score(ScoreArgs),
    /// Find the sentences of a text that the corpus does not support
    ///
    /// A sentence is unsupported if the head and tail of one of its facts never co-occur in the
    /// corpus, or if the only entity of a fact is rare. This is QuCo-RAG's test; the settings
    /// `check.*` have the thresholds. The rule's verdict is shown next to it. Exit code 3: at
    /// least one sentence is unsupported.
    ///
    /// Examples:
    ///   corver-host check --text 'Old Riavuck lies in Denwick.'
    ///   corver-host check answer.txt --question 'Where does Old Riavuck lie?' \
    ///     --index wiki --extractor extractor --json
    #[command(verbatim_doc_comment)]
    Check(CheckArgs),
    /// Serve rewards over HTTP, for OpenRLHF and other trainers
    ///
    /// POST /get_reward  OpenRLHF's remote reward model (--reward.remote_url)
    /// POST /v1/score    the output of `corver-host score --json`
    /// POST /v1/check    the output of `corver-host check --json`
    /// GET  /v1/rule     names, hashes, weights and settings of the rules
    /// POST /            counts, as `corver-host index serve`; only if the index is one folder
    /// GET  /metrics     metrics for Prometheus
    /// GET  /health, /ready
    ///
    /// Completions of concurrent requests are scored in one batch. There is no TLS: use a proxy.
    ///
    /// Examples:
    ///   corver-host serve --plugin first.wasm
    ///   corver-host serve --config configs/qwen3-8b.toml --listen 0.0.0.0:8765 --token-file token
    #[command(verbatim_doc_comment)]
    Serve(ServeArgs),
    /// Serve tools to an assistant over standard input and output (Model Context Protocol)
    ///
    /// check          finds the sentences of a text that the corpus does not support
    /// count          counts words or phrases that occur near each other
    /// find_passages  shows where they do
    ///
    /// The assistant starts this command. An entry of its configuration:
    ///   {"mcpServers": {"corver": {"command": "corver-host",
    ///     "args": ["mcp", "--index", "/data/wiki", "--extractor", "/data/extractor"]}}}
    #[command(verbatim_doc_comment)]
    Mcp(McpArgs),
    /// Write an HTML report about a run, or several runs side by side
    ///
    /// It has learning curves, checks for reward hacking, the best and the worst completions,
    /// time by stage, and settings.
    ///
    /// Examples:
    ///   corver-host report runs/first-001
    ///   corver-host report runs/first-001 runs/min-001 --out first-min.html
    #[command(verbatim_doc_comment)]
    Report(ReportArgs),
    /// Write an HTML page for one completion: rewards, corpus counts, and advantages
    ///
    /// Examples:
    ///   corver-host explain runs/first-001 --step 20 --completion 7
    ///   corver-host explain completions.jsonl --line 1
    #[command(verbatim_doc_comment)]
    Explain(ExplainArgs),
    /// Build, query and verify a corpus index (Infini-gram v4 format).
    Index(IndexArgs),
    /// Extract triplets from sentences, one sentence per line; train an extractor.
    Extract(ExtractArgs),
    /// Create, build, test and benchmark reward rules.
    Plugin(PluginArgs),
    /// Write the built-in demo's articles and questions to files.
    Demo(DemoArgs),
    /// Print every setting with its default, bounds and meaning (--json: JSON schema).
    Settings,
    /// Check this machine's installation, and print a fix for everything that is missing.
    Doctor,
    /// Compile a rule, as a child process of this program.
    #[command(hide = true)]
    CompileRule {
        /// Limits of the compilation, as JSON.
        limits: String,
    },
    /// Render chat templates, as a child process of this program.
    #[command(hide = true)]
    RenderPrompts,
}

#[derive(Debug, Args)]
pub struct DemoArgs {
    #[command(subcommand)]
    pub command: DemoCommand,
}

#[derive(Debug, Subcommand)]
pub enum DemoCommand {
    /// Write articles (JSONL), training questions and evaluation questions to a folder.
    World {
        /// Output folder.
        out: PathBuf,
    },
}
