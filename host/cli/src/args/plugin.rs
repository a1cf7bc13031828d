//! Arguments of `corver-host plugin`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use corver_settings::PluginRef;

use super::{PartArgs, RecordingArgs, SettingsArgs};

#[derive(Debug, Args)]
pub struct PluginArgs {
    #[command(subcommand)]
    pub command: PluginCommand,
}

#[derive(Debug, Subcommand)]
pub enum PluginCommand {
    /// Create a rule's project, ready to build and test.
    New(NewArgs),
    /// Compile a rule's project to WebAssembly (DIR/NAME.wasm).
    Build {
        /// Folder of the project.
        #[arg(default_value = ".")]
        dir: PathBuf,
    },
    /// Print a rule's name and settings, and test it on unusual input.
    Check(RuleArgs),
    /// Run a rule on sentences or completions, and print the rewards with their reasons
    ///
    /// The file has one JSON object per line. Either the sentences of one completion,
    /// {"sentence", "triplets": [[head, relation, tail], …]}; without "triplets", the extractor
    /// runs. Or completions in the format of `score`; a response rule accepts only these.
    #[command(verbatim_doc_comment)]
    Run(PluginRunArgs),
    /// Measure a rule's run time, load time and compile time.
    Bench(RuleArgs),
    /// Open a page on which you change a rule's settings, and see the sentences of a run scored again.
    Play(PlayArgs),
    /// List the rules that are built.
    List,
}

#[derive(Debug, Args)]
pub struct NewArgs {
    /// Folder of the project; must not exist. Its last component is the rule's name.
    pub dir: PathBuf,
    /// Programming language. Python needs componentize-py to build, JavaScript componentize-js;
    /// rules in these run tens of times slower than in Rust.
    #[arg(long, value_enum, default_value_t = SdkLanguage::Rust)]
    pub lang: SdkLanguage,
    /// Sentence rule, or response rule (answer judge or format check).
    #[arg(long, value_enum, default_value_t = RuleKind::Sentence)]
    pub kind: RuleKind,
    /// The `sdk` folder of a CorVer checkout. Default: in the checkout that built this binary; without
    /// one, the published crate.
    #[arg(long, value_name = "DIR")]
    pub sdk: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SdkLanguage {
    Rust,
    Python,
    Js,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RuleKind {
    Sentence,
    Response,
}

/// A sentence rule or response rule, with its settings.
#[derive(Debug, Args)]
pub struct RuleArgs {
    /// Rule: a path, a name in plugins/dist, or a URL with a hash. Its settings: --set
    /// rule.settings.KEY=VALUE.
    #[arg(value_name = "FILE.wasm")]
    pub plugin: PluginRef,
    #[command(flatten)]
    pub settings: SettingsArgs,
}

#[derive(Debug, Args)]
pub struct PluginRunArgs {
    #[command(flatten)]
    pub rule: RuleArgs,
    #[command(flatten)]
    pub parts: PartArgs,
    /// Sentences or completions, one JSON object per line.
    pub file: PathBuf,
    #[command(flatten)]
    pub recording: RecordingArgs,
}

#[derive(Debug, Args)]
pub struct PlayArgs {
    /// Folder of the run. Its completions and triplets are read from its traces.
    pub run: PathBuf,
    /// Sentence rule, with its default settings: a path, a name in plugins/dist, or a URL with a
    /// hash. Default: the rule of the run, with the run's settings.
    #[arg(long, value_name = "FILE.wasm")]
    pub plugin: Option<PluginRef>,
    /// Step of the completions. Default: the last.
    #[arg(long, value_name = "N")]
    pub step: Option<usize>,
    /// Largest number of completions, the first of the step.
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub completions: usize,
    /// Recording that answers the queries. Default: the run's index; if it cannot be opened, the
    /// counts in the traces.
    #[arg(long, value_name = "FILE")]
    pub replay: Option<PathBuf>,
    /// Address and port to bind; port 0 is any free one. There is no TLS and no token.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
}
