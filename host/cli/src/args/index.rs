//! `corver-host index`: what its commands take. Each names the index with `--index`.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use corver_corpus::Mode;

use super::ServerArgs;

#[derive(Debug, Args)]
pub struct IndexArgs {
    #[command(subcommand)]
    pub command: IndexCommand,
}

#[derive(Debug, Subcommand)]
pub enum IndexCommand {
    /// Build an index from JSONL (.gz and .zst too) or Parquet files.
    ///
    /// An interrupted build is resumed when the same command is given again.
    Build(BuildArgs),
    /// Count how often words occur together: 'Philadelphia Flyers AND Stanley Cup'.
    Count(CountArgs),
    /// Serve Infini-gram's HTTP API from an index, so that other machines can count in it.
    ///
    /// Prints the address that clients use as corpus.index. Ctrl-C stops it.
    Serve(IndexServeArgs),
    /// Documents, tokens, widths and tokenizer of an index.
    Info(InfoArgs),
    /// Cut the documents of an index into passages, for rules that search in the corpus
    /// (verify.passages).
    ///
    /// They lie beside the index, in NAME.passages, and replace older ones. An interrupted run
    /// leaves nothing behind that is used.
    Passages(PassagesArgs),
    /// Search the passages of an index, as a rule does: the best by BM25, with their scores.
    Search(SearchArgs),
    /// Check an index: checksums, document offsets, order of the suffix array.
    Verify(VerifyArgs),
}

#[derive(Debug, Args)]
pub struct BuildArgs {
    /// JSONL or Parquet files, or folders of them; indexed in order of name.
    #[arg(required = true)]
    pub inputs: Vec<PathBuf>,
    /// Hugging Face tokenizer.json.
    #[arg(long)]
    pub tokenizer: PathBuf,
    /// Folder of the new index; must not exist.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Parts that the documents are divided among.
    #[arg(long, default_value_t = 1)]
    pub shards: usize,
    /// Field that holds a document's text.
    #[arg(long, default_value = "text", value_name = "NAME")]
    pub text_field: String,
    /// Memory limit, as 8G or 500M; larger texts are sorted in parts. Default: three quarters of
    /// what is free.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub memory: Option<u64>,
    /// Leave out the files that say where each document came from.
    #[arg(long)]
    pub no_metadata: bool,
    /// Discard an interrupted build in the same folder instead of resuming it.
    #[arg(long)]
    pub restart: bool,
}

#[derive(Debug, Args)]
pub struct CountArgs {
    /// Words joined by AND and OR; several words in a row are a phrase.
    pub query: String,
    /// Index folder, or URL#NAME of an index on a server; repeatable, counts are added. Default:
    /// the demo's.
    #[arg(long, value_name = "DIR|URL#NAME")]
    pub index: Vec<String>,
    /// tokenizer.json, for an index that does not hold its own.
    #[arg(long)]
    pub tokenizer: Option<PathBuf>,
    /// How to count.
    #[arg(long, value_enum, default_value_t = CountMode::Compatible)]
    pub mode: CountMode,
    /// Short for --mode exact.
    #[arg(long, conflicts_with = "mode")]
    pub exact: bool,
    /// Clauses with more hits are sub-sampled, as the official engine does.
    #[arg(long, default_value_t = 500_000)]
    pub max_clause_freq: u64,
    /// Window in tokens. Default: 1,000; for the demo's index, the demo's own.
    #[arg(long)]
    pub max_diff_tokens: Option<u64>,
    /// Also print N matching passages, spread over all matches.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub show: usize,
    /// File with the bearer token of the server. Default: what CORVER_TOKEN holds.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum CountMode {
    /// As the official engine counts, sub-sampling included.
    Compatible,
    /// Every match of the same rule, never a sample.
    Exact,
    /// Stretches of at most the window's length that hold all words, and contain no shorter one
    /// that does.
    Span,
}

impl From<CountMode> for Mode {
    fn from(mode: CountMode) -> Self {
        match mode {
            CountMode::Compatible => Self::Compatible,
            CountMode::Exact => Self::Exact,
            CountMode::Span => Self::Span,
        }
    }
}

#[derive(Debug, Args)]
pub struct IndexServeArgs {
    /// Index folder. Default: the demo's.
    #[arg(long, value_name = "DIR")]
    pub index: Option<PathBuf>,
    /// tokenizer.json, for an index that does not hold its own.
    #[arg(long)]
    pub tokenizer: Option<PathBuf>,
    /// Serve these shards alone, as 3 or 0-3, numbered from 0. Of the others no file need be there.
    #[arg(long, value_name = "N|FIRST-LAST", value_parser = shards)]
    pub shards: Option<RangeInclusive<usize>>,
    #[command(flatten)]
    pub server: ServerArgs,
    /// The index's name for clients. Default: the folder's name, and with --shards their numbers:
    /// wiki-0-3.
    #[arg(long)]
    pub name: Option<String>,
    /// Memory for the sorted positions of frequent words, as 2G or 500M, so that they are sorted
    /// once.
    #[arg(long, value_name = "BYTES", value_parser = bytes, default_value = "256M")]
    pub cache: u64,
}

#[derive(Debug, Args)]
pub struct PassagesArgs {
    /// Index folder. Default: the demo's.
    #[arg(long, value_name = "DIR")]
    pub index: Option<PathBuf>,
    /// Folder to put them into. Default: the one that holds the index.
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// Words of a passage, at most.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub words: usize,
}

#[derive(Debug, Args)]
pub struct SearchArgs {
    /// Any text; its words are searched, and the rarer ones weigh more.
    pub query: String,
    /// Index folder; repeatable, several are searched as one. Default: the demo's.
    #[arg(long, value_name = "DIR")]
    pub index: Vec<PathBuf>,
    /// Folder that holds the passages. Default: each index's own.
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// Only in documents of this title; capitals do not matter.
    #[arg(long)]
    pub title: Option<String>,
    /// How many passages, at most.
    #[arg(short, value_name = "N", default_value_t = 5)]
    pub k: u32,
}

#[derive(Debug, Args)]
pub struct InfoArgs {
    /// Index folder. Default: the demo's.
    #[arg(long, value_name = "DIR")]
    pub index: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// Index folder. Default: the demo's.
    #[arg(long, value_name = "DIR")]
    pub index: Option<PathBuf>,
    /// Check these shards alone, as 3 or 0-3, numbered from 0. Of the others no file need be there.
    #[arg(long, value_name = "N|FIRST-LAST", value_parser = shards)]
    pub shards: Option<RangeInclusive<usize>>,
    /// Check the order of every pair of suffixes instead of a sample.
    #[arg(long)]
    pub full: bool,
}

/// A shard or a range of them, the last included.
fn shards(text: &str) -> Result<RangeInclusive<usize>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let number = |digits: &str| {
        digits.parse().map_err(|_| "not the numbers of shards; write 3 or 0-3".to_owned())
    };
    Ok(number(first)?..=number(last)?)
}

/// A number of bytes, with K, M, G or T for powers of 1,024.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[number.len()..]
        .to_ascii_uppercase()
        .trim_end_matches("IB")
        .trim_end_matches('B')
    {
        "" => 1_u64,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        "T" => 1 << 40,
        other => return Err(format!("unknown unit {other}; write 500M or 8G")),
    };
    let number: f64 =
        number.parse().map_err(|_| "not a number of bytes; write 500M or 8G".to_owned())?;
    let bytes = number * unit as f64;
    if bytes >= 1.0 {
        Ok(bytes as u64)
    } else {
        Err("the number of bytes must be positive".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shard_argument_parses_number_or_range() {
        assert_eq!(["3", "0-3", "7-7"].map(|text| shards(text).unwrap()), [3..=3, 0..=3, 7..=7]);
        assert!(
            ["", "-", "0-", "-1", "0-3-5", "all", "1..2"].iter().all(|text| shards(text).is_err())
        );
    }

    #[test]
    fn size_argument_parses_units() {
        let sizes = ["7", "500M", "8G", "8g", "1.5GiB", "2KB"].map(|text| bytes(text).unwrap());
        assert_eq!(sizes, [7, 500 << 20, 8 << 30, 8 << 30, 3 << 29, 2048]);
        assert!(["", "G", "8X", "-1G", "0"].iter().all(|text| bytes(text).is_err()));
    }
}
