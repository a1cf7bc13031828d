//! What the command line takes.

mod calibrate;
mod check;
mod data;
mod index;
mod judge;
mod plugin;
mod report;
mod serve;
mod server;
mod settings;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use tracing::level_filters::LevelFilter;

pub use calibrate::{AuditArgs, CalibrateArgs, CalibrateCommand, DrawArgs, ReadArgs};
pub use check::CheckArgs;
pub use data::{DataArgs, DataCommand, EvidenceArgs, PoolArgs};
pub use index::{
    BuildArgs, CountArgs, IndexArgs, IndexCommand, IndexServeArgs, InfoArgs, PassagesArgs,
    SearchArgs, VerifyArgs,
};
pub use judge::JudgeArgs;
pub use plugin::{Language, NewArgs, PluginArgs, PluginCommand, PluginRunArgs, RuleArgs, RuleKind};
pub use report::{ExplainArgs, ReportArgs};
pub use serve::ServeArgs;
pub use server::ServerArgs;
pub use settings::{
    CorpusArgs, Flags, GraderArgs, LengthArgs, PartArgs, PolicyArgs, QuestionArgs, RewardArgs,
    SettingsArgs,
};

/// Train language models with reward rules that are WebAssembly plugins.
///
/// A command that names nothing of your own works on a small built-in world, so the shortest tour
/// is `corver-host train`. Exit codes: 0 success, 1 failure (the message says why), 2 a mistake on
/// the command line, 3 `check` found something unsupported, 130 interrupted.
#[derive(Debug, Parser)]
#[command(name = "corver-host", version, max_term_width = 100)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
    /// Print results as JSON.
    #[arg(long, global = true)]
    pub json: bool,
    /// Log to standard error, with the time of every stage (-vv: everything).
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
    ///   corver-host train --plugin min.wasm corver-host train --plugin first.wasm:0.7 --plugin
    ///   anti-repeat.wasm:0.3 corver-host train --config configs/qwen3-8b.toml --model
    ///   Qwen/Qwen3-8B --extractor extractor --index wikipedia --questions zone/questions.jsonl
    ///   corver-host train --out runs/first-001 --resume
    #[command(verbatim_doc_comment)]
    Train(TrainArgs),
    /// Fine-tune a policy's adapter on demonstrations, a cold start: `train --set policy.adapter=…`
    /// goes on from it.
    ///
    /// The file has one JSON object per line: {"question", "completion"}. The completions alone are
    /// learned, each with the token that ends an answer. How long and how fast: the settings
    /// `sft.*`; the adapter's size: `update.lora`.
    ///
    ///   corver-host sft demonstrations.jsonl --model Qwen/Qwen3-4B --out runs/sft-001
    ///   corver-host sft demonstrations.jsonl --out runs/sft-001 --resume
    ///   corver-host train --set policy.adapter=runs/sft-001/checkpoints/step-000120
    #[command(verbatim_doc_comment)]
    Sft(SftArgs),
    /// Keep the questions that can teach a policy anything: those that it sometimes answers right.
    ///
    /// Every question is answered 16 times. Those that were right once at least and not always go
    /// into questions.jsonl in --out, which `question.train` takes.
    ///
    ///   corver-host filter --model Qwen/Qwen3-4B --questions pool.json --out pool-qwen3-4b
    ///   corver-host filter --out pool-qwen3-4b --resume --anchors 500
    #[command(verbatim_doc_comment)]
    Filter(FilterArgs),
    /// Make pools of questions to train on.
    Data(DataArgs),
    /// Answer and grade question sets, with a raw model or with adapters.
    ///
    ///   corver-host eval --model Qwen/Qwen3-4B --questions nq.json --questions popqa.json --raw
    ///   --adapter runs/first-001/checkpoints/step-000100 --out answers corver-host eval diff
    ///   answers/raw.nq.jsonl answers/first-001-step-000100.nq.jsonl
    #[command(verbatim_doc_comment)]
    Eval(EvalArgs),
    /// Ask a chat model whether graded answers are right, or sentences true, and how far it agrees
    /// with string match or people.
    ///
    /// Of answers it sees question and golds. Of a calibration sheet it sees one sentence and
    /// nothing else; the sheet with its labels filled in goes into --out, for a person to check and
    /// for `calibrate read`.
    ///
    /// Any OpenAI-compatible endpoint serves. Replies are kept in the cache: a command that was
    /// broken off goes on where it was, and nothing is paid for twice.
    ///
    ///   corver-host judge answers/raw.nq.jsonl --questions nq.json --judge my-judge.toml
    ///   --max-cost 1 corver-host judge runs/first-001/answers_trained.jsonl --questions eval.json
    ///   --endpoint http://localhost:8000/v1 --chat-model Qwen/Qwen3-32B corver-host judge
    ///   sheet.csv --endpoint http://localhost:8000/v1 --chat-model Qwen/Qwen3-32B --out affirmed
    #[command(verbatim_doc_comment)]
    Judge(JudgeArgs),
    /// Train in several arms with the same seeds, and say which differ by more than the seeds do.
    ///
    /// The arms are rules (--plugin) and files of settings over the others (--arm). What comes
    /// first is what the others are compared with: the first rule, or the settings as they are.
    ///
    ///   corver-host compare --plugin first.wasm --plugin mine.wasm --seeds 3 corver-host compare
    ///   --arm configs/ablations/a1-no-cooccurrence.toml configs/ablations/a2-no-judge.toml --out
    ///   runs/ablations corver-host compare --out runs/ablations --resume --seeds 8 --eval
    ///   triviaqa.json popqa.json
    #[command(verbatim_doc_comment)]
    Compare(CompareArgs),
    /// Ask whether counts, and the rewards that rules make of them, say anything about truth.
    ///
    ///   corver-host calibrate draw runs/first-001 --out sheet.csv
    ///   corver-host calibrate read sheet.csv
    ///   corver-host calibrate audit --plugin first.wasm --plugin min.wasm
    #[command(verbatim_doc_comment)]
    Calibrate(CalibrateArgs),
    /// Fold an adapter into a model's weights, for programs that serve models: a Hugging Face
    /// folder.
    ///
    ///   corver-host merge --model Qwen/Qwen3-8B runs/first-001/checkpoints/step-000100
    ///   qwen3-8b-first
    #[command(verbatim_doc_comment)]
    Merge(MergeArgs),
    /// Score completions and show why each sentence earned its reward: the quickest way to try a
    /// rule.
    ///
    /// The file has one JSON object per line: {"question", "answers", "completion"}; "answers" is a
    /// list, or a string separated by semicolons. With "triplets" in every line, as [[sentence,
    /// [[head, relation, tail], …]], …], no extractor is needed; every sentence of the completion
    /// is then listed, those that state no fact with [].
    Score(ScoreArgs),
    /// Say which sentences of a text the corpus does not support.
    ///
    /// A sentence is unsupported where head and tail of what it states never occur together, or an
    /// entity that it names alone is rare (the test of QuCo-RAG; its thresholds are the settings
    /// `check.*`). The rule's verdict stands beside it. Exit code 3: some sentence is unsupported.
    ///
    ///   corver-host check --text 'Old Riavuck lies in Denwick.' corver-host check answer.txt
    ///   --question 'Where does Old Riavuck lie?' --index wiki --extractor extractor --json
    #[command(verbatim_doc_comment)]
    Check(CheckArgs),
    /// Serve rewards over HTTP: OpenRLHF's remote reward model, and everything about each
    /// completion for other programs.
    ///
    /// POST /get_reward is what OpenRLHF's --reward.remote_url asks; POST /v1/score gives what
    /// `corver-host score --json` prints; POST /v1/check gives what `corver-host check --json`
    /// prints; POST / counts, as `corver-host index serve` does, where the index is one folder. GET
    /// /metrics is for Prometheus, /health and /ready are for whatever watches the process. What
    /// several clients send is scored together.
    ///
    /// There is no TLS: that is left to a proxy.
    ///
    ///   corver-host serve --plugin first.wasm
    ///   corver-host serve --config configs/qwen3-8b.toml --listen 0.0.0.0:8765 --token-file token
    #[command(verbatim_doc_comment)]
    Serve(ServeArgs),
    /// Make a page about a run: curves, known hacks, best and worst completions, timing, settings.
    /// Of several runs, side by side.
    ///
    ///   corver-host report runs/first-001
    ///   corver-host report runs/first-001 runs/min-001 --out first-min.html
    #[command(verbatim_doc_comment)]
    Report(ReportArgs),
    /// Make a page about a completion: why each sentence earned its reward, what the corpus says,
    /// what its tokens were taught.
    ///
    ///   corver-host explain runs/first-001 --step 20 --completion 7
    ///   corver-host explain completions.jsonl --line 1
    #[command(verbatim_doc_comment)]
    Explain(ExplainArgs),
    /// Build, query and check a corpus index (Infini-gram v4 format).
    Index(IndexArgs),
    /// Extract triplets from sentences, one sentence per line.
    Extract(ExtractArgs),
    /// Write, build, try and inspect reward rules.
    Plugin(PluginArgs),
    /// The built-in demo world, as files to look at.
    Demo(DemoArgs),
    /// Print every setting with its default, bounds and meaning (--json: as a JSON schema).
    Settings,
    /// Report what this machine has and what is missing, with the command that fixes it.
    Doctor,
    /// What this program does as the child that compiles a rule.
    #[command(hide = true)]
    CompileRule {
        /// The limits, as JSON.
        limits: String,
    },
    /// What this program does as the child that renders chat templates.
    #[command(hide = true)]
    RenderPrompts,
}

#[derive(Debug, Clone, Default, Args)]
pub struct TrainArgs {
    #[command(flatten)]
    pub settings: SettingsArgs,
    #[command(flatten)]
    pub policy: PolicyArgs,
    #[command(flatten)]
    pub questions: QuestionArgs,
    #[command(flatten)]
    pub reward: RewardArgs,
    #[command(flatten)]
    pub graders: GraderArgs,
    #[command(flatten)]
    pub length: LengthArgs,
    /// Folder of the run. Default: the next free runs/RULE-NNN.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Resume the run in --out from its newest checkpoint, with the settings it began with. A
    /// --record of the run goes on in its file.
    #[arg(long, requires = "out")]
    pub resume: bool,
    #[command(flatten)]
    pub recording: RecordingArgs,
    /// Check and print the resolved configuration, then stop.
    #[arg(long)]
    pub dry_run: bool,
}

#[cfg(feature = "torch")]
impl TrainArgs {
    /// Returns the flags that are short for settings.
    pub fn flags(&self) -> [&dyn Flags; 5] {
        [&self.policy, &self.questions, &self.reward, &self.graders, &self.length]
    }
}

#[derive(Debug, Clone, Args)]
pub struct SftArgs {
    #[command(flatten)]
    pub settings: SettingsArgs,
    #[command(flatten)]
    pub policy: PolicyArgs,
    /// Demonstrations, one JSON object per line.
    pub file: PathBuf,
    /// Folder of the run. Default: the next free runs/sft-NNN.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Resume the run in --out from its newest checkpoint, with the settings it began with.
    #[arg(long, requires = "out")]
    pub resume: bool,
}

#[derive(Debug, Clone, Args)]
pub struct FilterArgs {
    #[command(flatten)]
    pub settings: SettingsArgs,
    #[command(flatten)]
    pub policy: PolicyArgs,
    #[command(flatten)]
    pub questions: QuestionArgs,
    /// Keep N questions too that were always answered right.
    #[arg(long, value_name = "N")]
    pub anchors: Option<usize>,
    /// Folder for what is found. Default: the next free runs/filter-NNN.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Go on in --out, with the settings it began with. Which questions are kept may change.
    #[arg(long, requires = "out")]
    pub resume: bool,
}

#[derive(Debug, Default, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct EvalArgs {
    #[command(subcommand)]
    pub command: Option<EvalCommand>,
    #[command(flatten)]
    pub settings: SettingsArgs,
    #[command(flatten)]
    pub policy: PolicyArgs,
    #[command(flatten)]
    pub reward: RewardArgs,
    /// Question file, or a split of a dataset's folder; repeatable. Default: the configuration's
    /// `question.eval`.
    #[arg(long, value_name = "FILE")]
    pub questions: Vec<PathBuf>,
    /// Only the first N questions of each.
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Draw N answers to each question instead of the most probable one, for pass@k.
    #[arg(long, value_name = "N")]
    pub samples: Option<usize>,
    /// Folder of an adapter or a checkpoint to load into the model; repeatable. Default: the raw
    /// model.
    #[arg(long, value_name = "DIR")]
    pub adapter: Vec<PathBuf>,
    /// The raw model, before the adapters; without --adapter the default.
    #[arg(long)]
    pub raw: bool,
    /// Also say which share of the sentences the corpus supports: opens the index, the extractor
    /// and the rule.
    #[arg(long)]
    pub supported: bool,
    /// New folder for the answers: a file for each policy and question file, a line for each
    /// question.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Go on in --out, with the same command line: a question file that was finished is not
    /// answered again.
    #[arg(long, requires = "out")]
    pub resume: bool,
    #[command(flatten)]
    pub recording: RecordingArgs,
}

#[derive(Debug, Subcommand)]
pub enum EvalCommand {
    /// Compare two files of answers to the same questions: is the second policy better by more than
    /// chance?
    Diff {
        /// Answers, as --out writes them, or answers_raw.jsonl of a run.
        first: PathBuf,
        /// The same questions, answered by the other policy.
        second: PathBuf,
    },
}

#[derive(Debug, Args)]
pub struct CompareArgs {
    #[command(flatten)]
    pub settings: SettingsArgs,
    #[command(flatten)]
    pub policy: PolicyArgs,
    #[command(flatten)]
    pub questions: QuestionArgs,
    #[command(flatten)]
    pub parts: PartArgs,
    #[command(flatten)]
    pub length: LengthArgs,
    /// An arm with this reward rule: a path, or a name in plugins/dist; repeatable.
    #[arg(long, value_name = "FILE.wasm[:WEIGHT]")]
    pub plugin: Vec<String>,
    /// An arm with the settings of this TOML file over the others; repeatable.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub arm: Vec<PathBuf>,
    /// Question sets that every trained policy, and the untrained one, answers in the end;
    /// repeatable. With --resume: the same as before.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub eval: Vec<PathBuf>,
    /// Runs of each arm, from the seed in `run.seed` on. Default: 3, or with --resume as many as
    /// before.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub seeds: Option<u64>,
    /// Folder for the runs. Default: the next free runs/compare-NNN.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Go on in --out, with the arms it began with.
    #[arg(long, requires = "out", conflicts_with_all = [
        "plugin", "arm", "steps", "seed", "device", "config", "set", "model", "extractor", "index", "questions",
    ])]
    pub resume: bool,
}

#[derive(Debug, Args)]
pub struct MergeArgs {
    #[command(flatten)]
    pub settings: SettingsArgs,
    #[command(flatten)]
    pub policy: PolicyArgs,
    /// Folder of an adapter or a checkpoint.
    pub adapter: PathBuf,
    /// New folder for the merged model.
    pub out: PathBuf,
}

#[derive(Debug, Args)]
pub struct ScoreArgs {
    #[command(flatten)]
    pub settings: SettingsArgs,
    #[command(flatten)]
    pub reward: RewardArgs,
    #[command(flatten)]
    pub graders: GraderArgs,
    /// Completions, one JSON object per line.
    pub file: PathBuf,
    #[command(flatten)]
    pub recording: RecordingArgs,
}

/// Where what rules are answered is recorded, or replayed from.
#[derive(Debug, Clone, Default, Args)]
pub struct RecordingArgs {
    /// Write everything that rules ask, with the answers (counts, NLI, chats, passages), to this
    /// new file.
    #[arg(long, value_name = "FILE", conflicts_with = "replay")]
    pub record: Option<PathBuf>,
    /// Take all answers from this recording: no index, no verifying model and no network.
    #[arg(long, value_name = "FILE")]
    pub replay: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct ExtractArgs {
    #[command(flatten)]
    pub settings: SettingsArgs,
    /// Hugging Face folder, the name of a model that was downloaded, or a folder with an exported
    /// graph. Default: the demo's.
    #[arg(long, value_name = "DIR|NAME")]
    pub extractor: Option<String>,
    /// What the model is asked, with {sentence} where the sentence goes. Default: the folder's own.
    #[arg(long, value_name = "FILE")]
    pub prompt: Option<PathBuf>,
    /// The prompt does not go through the model's chat template.
    #[arg(long)]
    pub no_chat: bool,
    /// Longest reply in tokens. Default: the folder's own, or 256.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_new_tokens: Option<u32>,
    /// Sentences decoded together, at most. Default: the folder's own, or 32.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub batch_size: Option<u32>,
    /// auto, cpu, cuda or cuda:N (`extract.device`).
    #[arg(long)]
    pub device: Option<String>,
    /// Show the model's replies too.
    #[arg(long)]
    pub raw: bool,
    /// Compare with what is in a file: {"sentence": …, "triplets": [[head, relation, tail], …]}, a
    /// line each.
    #[arg(long, value_name = "GOLD.jsonl", conflicts_with = "file")]
    pub eval: Option<PathBuf>,
    /// Say at the end what was decoded, and how fast.
    #[arg(long)]
    pub stats: bool,
    /// Sentences, one per line. Default: standard input.
    pub file: Option<PathBuf>,
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
}
