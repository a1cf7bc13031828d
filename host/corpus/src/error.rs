//! What can go wrong, with the file, the value and what to do about it.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use crate::token_width::TokenWidth;

/// The result of everything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Every failure of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What we were doing: "open", "write", …
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The time that the caller gave a batch is over.
    #[error("the time is over after {counted} of {queries} queries")]
    Deadline {
        /// Queries that were counted.
        counted: usize,
        /// Queries of the batch.
        queries: usize,
    },
    /// The folder holds no `tokenized.0`.
    #[error("{} is no Infini-gram index: it holds no tokenized.0 (give the folder that holds tokenized.K, table.K and offset.K)", path.display())]
    NotAnIndex {
        /// The folder.
        path: PathBuf,
    },
    /// A file of a shard, or a whole shard, is missing.
    #[error("{} is missing: the index is incomplete; copy it again or rebuild it", path.display())]
    MissingFile {
        /// The missing file.
        path: PathBuf,
    },
    /// The index has no such shards.
    #[error("{} has no shards {} to {}: its shards are numbered from 0, and the lower number comes first", path.display(), asked.start(), asked.end())]
    Shards {
        /// The index.
        path: PathBuf,
        /// What was asked for.
        asked: RangeInclusive<usize>,
    },
    /// A file's size contradicts the format, its neighbours or the manifest.
    #[error("{}: {bytes} bytes, but {expected}: truncated, foreign or of another token width", path.display())]
    Size {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
        /// What the size should have been.
        expected: String,
    },
    /// A value read from a file cannot be right.
    #[error("{}: entry {entry} is {got}, but {expected}: the file is damaged or foreign; rebuild the index", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Which entry (rank, document, token) of the file.
        entry: u64,
        /// The value.
        got: u64,
        /// What the value should have been.
        expected: &'static str,
    },
    /// The manifest or the tokenizer is not the JSON that it should be.
    #[error("{}: {source}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// What the parser said.
        source: serde_json::Error,
    },
    /// The manifest is of a later version, or belongs to something else.
    #[error("{}: manifest {got}, but this program reads {expected}; rebuild the index or update the program", path.display())]
    ManifestVersion {
        /// The manifest.
        path: PathBuf,
        /// Format and version found.
        got: String,
        /// Format and version understood.
        expected: String,
    },
    /// The manifest lists something that is no file of the folder.
    #[error("{}: lists {name:?}, which is no file name: the manifest is damaged or foreign; rebuild the index", path.display())]
    FileName {
        /// The manifest.
        path: PathBuf,
        /// What it lists.
        name: String,
    },
    /// A file's content is not what the manifest says it was.
    #[error("{}: checksum {got}, but the manifest says {expected}: the file was changed; rebuild the index", path.display())]
    Checksum {
        /// The file.
        path: PathBuf,
        /// blake3 of the manifest.
        expected: String,
        /// blake3 of the file.
        got: String,
    },
    /// `tokenizer.json` cannot be loaded.
    #[error("{}: not a usable tokenizer.json: {message}", path.display())]
    Tokenizer {
        /// The file.
        path: PathBuf,
        /// What the tokenizer library said.
        message: String,
    },
    /// A text cannot be tokenised.
    #[error("cannot tokenise a text: {message}")]
    Encode {
        /// What the tokenizer library said.
        message: String,
    },
    /// The index was built with another tokenizer.
    #[error("the index {} was built with the tokenizer {expected}, not with {got}: its counts would be meaningless", path.display())]
    TokenizerMismatch {
        /// The index.
        path: PathBuf,
        /// blake3 of the tokenizer.json that built it.
        expected: String,
        /// blake3 of the one given.
        got: String,
    },
    /// The index carries no tokenizer.
    #[error("{} holds no tokenizer.json: name the one that it was built with", path.display())]
    NoTokenizer {
        /// The index.
        path: PathBuf,
    },
    /// A line of an input file is not a document.
    #[error("{}, line {line}: {problem}", path.display())]
    BadLine {
        /// The input file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// What is wrong with it.
        problem: String,
    },
    /// A Parquet file cannot be opened: it is truncated, damaged or something else.
    #[error("{}: not a readable Parquet file: {message}", path.display())]
    Parquet {
        /// The input file.
        path: PathBuf,
        /// What the Parquet library said.
        message: String,
    },
    /// A Parquet file has no column of the text's name.
    #[error("{}: no column {column:?}; its columns are {}; name the one that holds the text", path.display(), columns.join(", "))]
    NoColumn {
        /// The input file.
        path: PathBuf,
        /// The column that was looked for.
        column: String,
        /// Those that there are.
        columns: Vec<String>,
    },
    /// The column of the text's name holds no strings.
    #[error("{}: the column {column:?} is {got}, not a string in every row", path.display())]
    ColumnType {
        /// The input file.
        path: PathBuf,
        /// The column.
        column: String,
        /// Its type.
        got: String,
    },
    /// A row of a Parquet file is not a document, or cannot be read.
    #[error("{}, row {row}: {problem}", path.display())]
    BadRow {
        /// The input file.
        path: PathBuf,
        /// The row, from 1.
        row: u64,
        /// What is wrong with it.
        problem: String,
    },
    /// The input's name is of no kind that this program reads.
    #[error("{}: neither .jsonl nor .jsonl.gz nor .jsonl.zst nor .parquet", path.display())]
    InputKind {
        /// The input file.
        path: PathBuf,
    },
    /// A token id does not fit the index's token width.
    #[error("token id {token} does not fit an index of {width} tokens (largest id: {})", width.largest_token())]
    TokenTooLarge {
        /// The id.
        token: u32,
        /// Width of the index.
        width: TokenWidth,
    },
    /// There is nothing to index, or fewer documents than shards.
    #[error(
        "shard {shard} of {shards} would be empty: {documents} documents in all; use fewer shards or more text"
    )]
    EmptyShard {
        /// The shard without documents.
        shard: usize,
        /// How many were asked for.
        shards: usize,
        /// Documents read.
        documents: u64,
    },
    /// The output exists already.
    #[error("{} already exists: remove it or choose another name", path.display())]
    AlreadyExists {
        /// The output folder.
        path: PathBuf,
    },
    /// The folder holds an unfinished build.
    #[error("{} is an unfinished build: repeat the command that began it", path.display())]
    Unfinished {
        /// The folder.
        path: PathBuf,
    },
    /// An interrupted build of the same name was one of something else.
    #[error("{} holds an unfinished build that differs in {what}: repeat the command that began it, or start again and discard it", path.display())]
    OtherBuild {
        /// The folder of the unfinished build.
        path: PathBuf,
        /// What differs.
        what: &'static str,
    },
    /// Another process is building the same index.
    #[error("{} is locked: another process is building this index", path.display())]
    Busy {
        /// The folder of the unfinished build.
        path: PathBuf,
    },
    /// The memory budget is too small for the shard.
    #[error("a memory budget of {budget} bytes is too small: this takes at least {needed}")]
    Memory {
        /// What was allowed.
        budget: u64,
        /// The least that could work.
        needed: u64,
    },
    /// An option has a value that cannot work.
    #[error("{option} = {got}: {expected}")]
    Option {
        /// The option.
        option: &'static str,
        /// Its value.
        got: u64,
        /// What it may be.
        expected: &'static str,
    },
    /// A query, a clause or a term is empty.
    #[error("an empty {part}: write a query as `a AND b OR c`, with a word on each side")]
    EmptyQuery {
        /// "query", "clause" or "term".
        part: &'static str,
    },
    /// The suffix sorter failed (it runs out of memory, for instance).
    #[error("sorting the suffixes of shard {shard} ({tokens} tokens) failed: {message}")]
    SuffixSort {
        /// The shard.
        shard: usize,
        /// Its length.
        tokens: u64,
        /// What the library said.
        message: String,
    },
}

impl Error {
    /// For `map_err`: an operating system error with what we were doing to which path.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { action, path: path.to_owned(), source }
    }
}
