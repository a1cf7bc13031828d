//! `corver-host plugin`: what its commands take.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{PartArgs, RecordingArgs, SettingsArgs};

#[derive(Debug, Args)]
pub struct PluginArgs {
    #[command(subcommand)]
    pub command: PluginCommand,
}

#[derive(Debug, Subcommand)]
pub enum PluginCommand {
    /// Start a rule of your own: a project that builds and passes its tests.
    New(NewArgs),
    /// Compile a rule's project to WebAssembly: DIR/NAME.wasm.
    Build {
        /// Folder of the project.
        #[arg(default_value = ".")]
        dir: PathBuf,
    },
    /// Load a rule as training would, print its name and settings, and try it on unusual sentences.
    Check(RuleArgs),
    /// Judge sentences, or grade completions, and show why each earns its reward.
    ///
    /// The file has one JSON object per line: {"sentence", "triplets": [[head, relation, tail],
    /// …]}, the sentences of one completion; without "triplets" the extractor finds them. Or
    /// completions, in the format of `score`; a response rule grades only those.
    Run(PluginRunArgs),
    /// Measure what a rule costs.
    Bench(RuleArgs),
    /// List the rules that are built.
    List,
}

#[derive(Debug, Args)]
pub struct NewArgs {
    /// Folder of the project; must not exist. Its last part is the rule's name.
    pub dir: PathBuf,
    /// Programming language. Python needs componentize-py to build, JavaScript componentize-js;
    /// rules in either run tens of times slower.
    #[arg(long, value_enum, default_value_t = Language::Rust)]
    pub lang: Language,
    /// What it rewards: sentences, by counts, or whole completions, as a judge or a format check.
    #[arg(long, value_enum, default_value_t = RuleKind::Sentence)]
    pub kind: RuleKind,
    /// The `sdk` folder of a CorVer checkout. Default: that of the checkout this binary was built
    /// from.
    #[arg(long, value_name = "DIR")]
    pub sdk: Option<PathBuf>,
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

/// A rule of either kind with its settings.
#[derive(Debug, Args)]
pub struct RuleArgs {
    /// The rule: a path, or a name in plugins/dist. Its settings: --set rule.settings.KEY=VALUE.
    #[arg(value_name = "FILE.wasm")]
    pub plugin: PathBuf,
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
