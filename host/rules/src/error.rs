//! Everything that can go wrong with a rule, and who has to act.

use std::path::PathBuf;

use corver_core::{PartError, Verifier};

/// Why a rule cannot be loaded, or why a batch has no verdicts.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// The file cannot be read.
    #[error("cannot read the plugin {path}")]
    Read {
        /// The plugin file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// Larger than [`crate::Limits::file_bytes`].
    #[error("the plugin {path} has {got} bytes; at most {limit} are allowed (limits.file_bytes)")]
    FileSize {
        /// The plugin file.
        path: PathBuf,
        /// Bytes allowed.
        limit: u64,
        /// Bytes it has.
        got: u64,
    },
    /// A folder, a pipe or a device.
    #[error("the plugin {path} is no regular file")]
    NotAFile {
        /// Its path.
        path: PathBuf,
    },
    /// Something else than WebAssembly.
    #[error(
        "{path} is not a WebAssembly file; give the .wasm that `cargo build --release --target wasm32-unknown-unknown` made"
    )]
    NotWasm {
        /// The plugin file.
        path: PathBuf,
    },
    /// It begins as WebAssembly and breaks off or contradicts itself.
    #[error("{path} is damaged or no valid WebAssembly: {detail}; build it again")]
    Invalid {
        /// The plugin file.
        path: PathBuf,
        /// What the parser or compiler said.
        detail: String,
    },
    /// It takes too long to compile.
    #[error(
        "compiling {path} takes more than {limit_s} s of processor time (limits.compile_s for each MiB of the file)"
    )]
    CompileTime {
        /// The plugin file.
        path: PathBuf,
        /// Seconds allowed for a file of its size.
        limit_s: u64,
    },
    /// It takes too much memory to compile.
    #[error("compiling {path} takes more than {limit} bytes of memory (limits.compile_bytes)")]
    CompileMemory {
        /// The plugin file.
        path: PathBuf,
        /// Bytes allowed.
        limit: u64,
    },
    /// The compiler's process cannot be started, or ended for no limit of its own.
    #[error("the compiler of {path} failed: {detail}")]
    Compiler {
        /// The plugin file.
        path: PathBuf,
        /// How it ended, and what it said.
        detail: String,
    },
    /// A WebAssembly module that knows nothing of the contract.
    #[error(
        "{path} is a WebAssembly module, but no CorVer rule: it does not carry the contract. Write it with `corver-sdk`, which has `corver_sdk::export!` and `corver_sdk::export_response_rule!`"
    )]
    ForeignModule {
        /// The plugin file.
        path: PathBuf,
    },
    /// A component with another purpose.
    #[error(
        "{path} exports neither corver:reward/sentence-scoring nor corver:reward/response-grading, so it is no rule; it exports {exports:?}. A rule in Rust ends with `corver_sdk::export!(YourRule);` or `corver_sdk::export_response_rule!(YourRule);`"
    )]
    ForeignExports {
        /// The plugin file.
        path: PathBuf,
        /// What it exports instead.
        exports: Vec<String>,
    },
    /// A rule of the other kind.
    #[error("{path} is a {found}, and a {wanted} is needed here: {}", found.hint())]
    OtherKind {
        /// The plugin file.
        path: PathBuf,
        /// What it is.
        found: crate::Kind,
        /// What it should be.
        wanted: crate::Kind,
    },
    /// Built against another version of the contract.
    #[error(
        "{path} speaks corver:reward@{found}; this host speaks {spoken}. Build the plugin again with the corver-sdk of this host (`corver-host plugin build FOLDER`), or use the host that it was made for"
    )]
    Version {
        /// The plugin file.
        path: PathBuf,
        /// Version in its exports.
        found: String,
        /// Version of this host.
        spoken: &'static str,
    },
    /// It wants something from the host that no rule gets.
    #[error(
        "{path} imports `{import}`; a rule may import nothing but corver:reward/diagnostics. {hint}"
    )]
    ForeignImport {
        /// The plugin file.
        path: PathBuf,
        /// The name of the import.
        import: String,
        /// What its author can do.
        hint: &'static str,
    },
    /// The rule refuses its settings.
    #[error("plugin {plugin} {version} refuses its settings: {message}")]
    Settings {
        /// The rule's name.
        plugin: String,
        /// The rule's version.
        version: String,
        /// The rule's own words.
        message: String,
    },
    /// The rule broke the contract or a limit.
    #[error("plugin {plugin} {version} {fault}{}", quoted(said))]
    Broken {
        /// The rule's name; the file's until the rule has told its name.
        plugin: String,
        /// The rule's version.
        version: String,
        /// What it did.
        fault: Box<Fault>,
        /// What it reported before, a panic text for example.
        said: Vec<String>,
    },
    /// A verifier failed, not the rule.
    #[error("what plugin {plugin} asked could not be answered")]
    Unanswered {
        /// The rule's name.
        plugin: String,
        /// What it said.
        #[source]
        source: PartError,
    },
    /// More stack than the threads that run rules are sure to have.
    #[error("limits.stack_bytes is {got}; at most {max} are possible")]
    StackLimit {
        /// Bytes possible.
        max: usize,
        /// Bytes set.
        got: usize,
    },
    /// The machine cannot run WebAssembly as configured.
    #[error("cannot set up the WebAssembly engine: {detail}")]
    Engine {
        /// What the engine said.
        detail: String,
    },
}

fn quoted(said: &[String]) -> String {
    if said.is_empty() { String::new() } else { format!("; it reported: {}", said.join(" | ")) }
}

/// What a rule did that it must not. A sentence is named by the completion's place in the batch and
/// its own in the completion, both counted from 0.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// Too slow, or endless.
    #[error("ran longer than {limit_ms} ms in one call (limits.call_ms)")]
    Time {
        /// Milliseconds allowed.
        limit_ms: u64,
    },
    /// Too much linear memory.
    #[error(
        "wanted {asked} more bytes of memory where {limit} are allowed in all (limits.memory_bytes)"
    )]
    Memory {
        /// Bytes allowed.
        limit: usize,
        /// Bytes of the growth that was refused.
        asked: usize,
    },
    /// Too large a table.
    #[error(
        "wanted {asked} more table elements where {limit} are allowed in all (limits.table_elements)"
    )]
    Table {
        /// Elements allowed.
        limit: usize,
        /// Elements of the growth that was refused.
        asked: usize,
    },
    /// Too deep a recursion.
    #[error("used up its stack of {limit} bytes (limits.stack_bytes)")]
    Stack {
        /// Bytes allowed.
        limit: usize,
    },
    /// A panic, or another instruction that stops it.
    #[error("stopped with a trap: {0}")]
    Trap(wasmtime::Trap),
    /// It cannot be started while so many others run: the host's doing, not the rule's.
    #[error(
        "cannot be instantiated: {max} instances are at work, which is all there is room for; judge fewer large batches at the same time"
    )]
    Busy {
        /// Instances at the same time.
        max: u32,
    },
    /// It cannot be started.
    #[error("cannot be instantiated: {detail}")]
    Start {
        /// What the engine said.
        detail: String,
    },
    /// Its answer does not follow the calling convention, or is larger than allowed.
    #[error(
        "gave an answer that cannot be read, with at most {limit} bytes (limits.output_bytes): {detail}"
    )]
    Answer {
        /// Bytes allowed.
        limit: usize,
        /// What the engine said.
        detail: String,
    },
    /// The name in its manifest, which run folders and metrics are named after, is none of a
    /// package.
    #[error(
        "calls itself {name:?}; a rule's name is 1 to 64 of the characters a-z, 0-9, - and _, and not `judge` or `format`"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// Not one list of outcomes, or one assessment, per completion.
    #[error("answered {expected} completions with {got} answers")]
    Completions {
        /// Completions to judge.
        expected: usize,
        /// Lists it gave.
        got: usize,
    },
    /// Not one outcome per sentence.
    #[error("answered the {expected} sentences of completion {completion} with {got} outcomes")]
    Outcomes {
        /// Which of the batch.
        completion: usize,
        /// Sentences that it has.
        expected: usize,
        /// Outcomes it gave.
        got: usize,
    },
    /// NaN or an infinity.
    #[error(
        "gave sentence {index} of completion {completion} the reward {reward}; it must be finite"
    )]
    NotFinite {
        /// Completion of the sentence.
        completion: usize,
        /// The sentence.
        index: usize,
        /// The reward.
        reward: f32,
    },
    /// A share of a reward at a character that the sentence does not have.
    #[error(
        "pays character {got} of sentence {index} of completion {completion}, which has {characters}"
    )]
    Character {
        /// Completion of the sentence.
        completion: usize,
        /// The sentence.
        index: usize,
        /// Characters of the sentence.
        characters: usize,
        /// The one it names, counted from 0.
        got: u32,
    },
    /// Shares that do not add up to the reward.
    #[error(
        "gave sentence {index} of completion {completion} the reward {reward}, and shares of it that add up to {sum}"
    )]
    Shares {
        /// Completion of the sentence.
        completion: usize,
        /// The sentence.
        index: usize,
        /// The reward.
        reward: f32,
        /// Of the shares.
        sum: f32,
    },
    /// NaN or an infinity.
    #[error("gave completion {completion} the reward {reward}; it must be finite")]
    GradeNotFinite {
        /// Which of the batch.
        completion: usize,
        /// The reward.
        reward: f64,
    },
    /// A label that is not one short word.
    #[error(
        "gave completion {completion} the label {label:?}; it must be one word of at most {limit} bytes"
    )]
    Label {
        /// Which of the batch.
        completion: usize,
        /// The label, or its beginning.
        label: String,
        /// Bytes allowed.
        limit: usize,
    },
    /// A verdict about a triplet that is not there.
    #[error(
        "names triplet {got} in sentence {index} of completion {completion}, which has {triplets}"
    )]
    Triplet {
        /// Completion of the sentence.
        completion: usize,
        /// The sentence.
        index: usize,
        /// Triplets the sentence has.
        triplets: usize,
        /// The one it names.
        got: u32,
    },
    /// A text that is too long.
    #[error("gave a {what} of {got} bytes; at most {limit} are allowed (limits.text_bytes)")]
    Text {
        /// What the text was meant for.
        what: &'static str,
        /// Bytes allowed.
        limit: usize,
        /// Bytes it has.
        got: usize,
    },
    /// A query without words, or with too many.
    #[error(
        "asked for a query of {got} words; from 1 to {limit} are allowed (limits.words_per_query)"
    )]
    Words {
        /// Words allowed.
        limit: usize,
        /// Words it has.
        got: usize,
    },
    /// A clause with too many words.
    #[error(
        "asked for a clause of {got} words; at most {limit} are allowed (limits.words_per_clause)"
    )]
    ClauseWords {
        /// Words allowed.
        limit: usize,
        /// Words it has.
        got: usize,
    },
    /// A question of a kind that the rule's manifest does not name.
    #[error("asks {verifier}, which its manifest does not name (`asks`)")]
    Undeclared {
        /// What it asks.
        verifier: Verifier,
    },
    /// A prompt without messages, or with too many.
    #[error(
        "asked with {got} messages; from 1 to {limit} are allowed (limits.messages_per_prompt)"
    )]
    Messages {
        /// Messages allowed.
        limit: usize,
        /// Messages of the prompt.
        got: usize,
    },
    /// A reply that may not be so long.
    #[error(
        "asked for a reply of {got} tokens; from 1 to {limit} are allowed (limits.reply_tokens)"
    )]
    ReplyTokens {
        /// Tokens allowed.
        limit: u32,
        /// Tokens asked for.
        got: u32,
    },
    /// A prompt that no model can follow.
    #[error(
        "asked with the temperature {temperature} and top_p {top_p}; a temperature from 0 to 2, and top_p above 0 up to 1 are possible"
    )]
    Sampling {
        /// Of the prompt.
        temperature: f32,
        /// Of the prompt.
        top_p: f32,
    },
    /// A search for nothing, or for too much.
    #[error(
        "searched for {got} passages; from 1 to {limit} are allowed (limits.passages_per_search)"
    )]
    Passages {
        /// Passages allowed.
        limit: u32,
        /// Passages wanted.
        got: u32,
    },
    /// Too many questions about one sentence.
    #[error(
        "asked {got} questions about sentence {index} of completion {completion}; at most {limit} are allowed (limits.questions_per_sentence)"
    )]
    SentenceQuestions {
        /// Completion of the sentence.
        completion: usize,
        /// The sentence.
        index: usize,
        /// Questions allowed.
        limit: usize,
        /// Questions asked.
        got: usize,
    },
    /// Too many questions about one completion.
    #[error(
        "asked {got} questions about completion {completion}; at most {limit} are allowed (limits.questions_per_completion)"
    )]
    CompletionQuestions {
        /// Which of the batch.
        completion: usize,
        /// Questions allowed.
        limit: usize,
        /// Questions asked.
        got: usize,
    },
    /// Too many questions of one kind altogether.
    #[error("asked {got} {what} in one batch; at most {limit} are allowed (limits.{setting})")]
    BatchQuestions {
        /// Of which kind.
        what: &'static str,
        /// The limit's name.
        setting: &'static str,
        /// Questions allowed.
        limit: usize,
        /// Questions asked.
        got: usize,
    },
    /// It never stops asking.
    #[error(
        "still asks about {open} of what it judges after {limit} rounds of answers (limits.rounds)"
    )]
    Rounds {
        /// Rounds allowed.
        limit: u32,
        /// Sentences or completions that ask, of those judged at the same time.
        open: usize,
    },
}
