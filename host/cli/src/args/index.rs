//! Arguments of `corver-host index`.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use corver_corpus::Mode;

use super::{CorpusArgs, ServerArgs, SettingsArgs};

#[derive(Debug, Args)]
pub struct IndexArgs {
    #[command(subcommand)]
    pub command: IndexCommand,
}

#[derive(Debug, Subcommand)]
pub enum IndexCommand {
    /// Build an index from JSON lines, CSV, TSV, Parquet, WikiExtractor files or a dump of MediaWiki.
    ///
    /// The same command resumes an interrupted build.
    Build(BuildArgs),
    /// Adopt an index of another program, so that it is opened like one that was built here.
    ///
    /// A sample of its documents is decoded and encoded again, and an index of another tokenizer is
    /// refused. Tokenizer, prefix files and the manifest with checksums are written into the folder.
    Adopt(AdoptArgs),
    /// Count co-occurrences, for example of 'Philadelphia Flyers AND Stanley Cup'.
    Count(CountArgs),
    /// Serve counts of an index over HTTP, with Infini-gram's API.
    ///
    /// Prints the address that clients use as corpus.index. Ctrl-C stops the server.
    Serve(IndexServeArgs),
    /// Count the queries of recordings, into a small file that is used without the index
    /// (corpus.pack).
    Pack(Box<PackArgs>),
    /// Print an index's size, pointer widths and tokenizer.
    Info(InfoArgs),
    /// Split an index's documents into passages, for rules that search (backends.passages)
    ///
    /// The passages are written next to the index, in NAME.passages, and replace existing ones.
    /// An interrupted run leaves the existing ones in place.
    #[command(verbatim_doc_comment)]
    Passages(PassagesArgs),
    /// Search the passages of an index by BM25, as rules do.
    Search(SearchArgs),
    /// Verify an index: checksums, document offsets, order of the suffix array.
    Verify(VerifyArgs),
}

#[derive(Debug, Args)]
pub struct BuildArgs {
    /// Files (.jsonl, .ndjson, .json, .csv, .tsv, wiki_00, .xml, plain or with .bz2, .gz or .zst;
    /// .parquet), folders of them, or a downloaded dataset, OWNER/NAME or OWNER/NAME/FOLDER;
    /// indexed in order of name.
    #[arg(required = true)]
    pub inputs: Vec<PathBuf>,
    /// Tokenizer of the index, a Hugging Face tokenizer.json, or a folder with it.
    #[arg(long, value_name = "FILE|DIR")]
    pub tokenizer: PathBuf,
    /// Folder of the index: new, empty, or a link to an empty one.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Number of shards that the documents are split into.
    #[arg(long, default_value_t = 1)]
    pub shards: usize,
    /// Name of the field with a document's text.
    #[arg(long, default_value = "text", value_name = "NAME")]
    pub text_field: String,
    /// Memory limit, such as 8G or 500M; larger texts are sorted in parts. Default: three quarters
    /// of free memory.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub memory: Option<u64>,
    /// Write no metadata files, which have the source file and line of each document.
    #[arg(long)]
    pub no_metadata: bool,
    /// Discard an interrupted build in the same folder instead of resuming it.
    #[arg(long)]
    pub restart: bool,
}

#[derive(Debug, Args)]
pub struct PackArgs {
    /// Recordings (--record of train, score or eval) with the queries.
    #[arg(required = true, value_name = "RECORDING")]
    pub recordings: Vec<PathBuf>,
    /// File of the pack; must not exist.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    #[command(flatten)]
    pub corpus: CorpusArgs,
    #[command(flatten)]
    pub settings: SettingsArgs,
}

#[derive(Debug, Args)]
pub struct AdoptArgs {
    /// Index folder, in Infini-gram's format.
    #[arg(value_name = "DIR")]
    pub index: PathBuf,
    /// Tokenizer that the index was built with, a Hugging Face tokenizer.json, or a folder with it. It
    /// replaces one that is in the index's folder.
    #[arg(long, value_name = "FILE|DIR")]
    pub tokenizer: PathBuf,
    /// Memory limit, such as 8G or 500M. Default: three quarters of free memory.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub memory: Option<u64>,
}

#[derive(Debug, Args)]
pub struct CountArgs {
    /// Words joined by AND and OR; several words in a row are a phrase.
    pub query: String,
    /// Index folder, or URL#NAME of an index on a server. Repeatable; counts are summed. Default:
    /// the demo's.
    #[arg(long, value_name = "DIR|NAME|URL#NAME")]
    pub index: Vec<String>,
    /// Tokenizer (tokenizer.json, or a folder with it), for an index without one.
    #[arg(long, value_name = "FILE|DIR")]
    pub tokenizer: Option<PathBuf>,
    /// Counting mode. Default: exact; for the demo's index, the demo's mode, compatible.
    #[arg(long, value_enum)]
    pub mode: Option<CountModeArg>,
    /// Same as --mode exact.
    #[arg(long, conflicts_with = "mode")]
    pub exact: bool,
    /// Largest number of occurrences of a clause before it is sub-sampled, as in Infini-gram.
    #[arg(long, default_value_t = 500_000)]
    pub max_clause_freq: u64,
    /// Co-occurrence window in tokens. Default: 1,000; for the demo's index, the demo's window.
    #[arg(long)]
    pub max_diff_tokens: Option<u64>,
    /// Also print N matching passages, spread evenly over all matches.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub show: usize,
    /// File with the server's bearer token. Default: the environment variable CORVER_TOKEN.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum CountModeArg {
    /// Infini-gram's count, with its sub-sampling.
    Compatible,
    /// Number of occurrences of the rarest clause that have all others within the window in the
    /// same document.
    Exact,
    /// Number of minimal spans, within the window, that contain all words.
    Span,
}

impl From<CountModeArg> for Mode {
    fn from(mode: CountModeArg) -> Self {
        match mode {
            CountModeArg::Compatible => Self::Compatible,
            CountModeArg::Exact => Self::Exact,
            CountModeArg::Span => Self::Span,
        }
    }
}

#[derive(Debug, Args)]
pub struct IndexServeArgs {
    /// Index folder. Default: the demo's.
    #[arg(long, value_name = "DIR|NAME")]
    pub index: Option<PathBuf>,
    /// Tokenizer (tokenizer.json, or a folder with it), for an index without one.
    #[arg(long, value_name = "FILE|DIR")]
    pub tokenizer: Option<PathBuf>,
    /// Serve only these shards, such as 3 or 0-3, from 0. The others' files may be absent.
    #[arg(long, value_name = "N|FIRST-LAST", value_parser = parse_shards)]
    pub shards: Option<RangeInclusive<usize>>,
    #[command(flatten)]
    pub server: ServerArgs,
    /// Name of the index for clients. Default: the folder's name, with the numbers of --shards
    /// appended: wiki-0-3.
    #[arg(long)]
    pub name: Option<String>,
    /// Cache size for the sorted positions of frequent words, such as 2G or 500M.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "256M")]
    pub cache: u64,
}

#[derive(Debug, Args)]
pub struct PassagesArgs {
    /// Index folder. Default: the demo's.
    #[arg(long, value_name = "DIR|NAME")]
    pub index: Option<PathBuf>,
    /// Output folder. Default: the parent folder of the index.
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// Longest passage in words.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub words: usize,
}

#[derive(Debug, Args)]
pub struct SearchArgs {
    /// Text to search for; rarer words have more weight.
    pub query: String,
    /// Index folder. Repeatable; several are searched as one. Default: the demo's.
    #[arg(long, value_name = "DIR")]
    pub index: Vec<PathBuf>,
    /// Folder of the passages. Default: next to each index.
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// Search only documents with this title (case-insensitive).
    #[arg(long)]
    pub title: Option<String>,
    /// Largest number of passages to print.
    #[arg(short, value_name = "N", default_value_t = 5)]
    pub k: u32,
}

#[derive(Debug, Args)]
pub struct InfoArgs {
    /// Index folder. Default: the demo's.
    #[arg(long, value_name = "DIR|NAME")]
    pub index: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// Index folder. Default: the demo's.
    #[arg(long, value_name = "DIR|NAME")]
    pub index: Option<PathBuf>,
    /// Verify only these shards, such as 3 or 0-3, from 0. The others' files may be absent.
    #[arg(long, value_name = "N|FIRST-LAST", value_parser = parse_shards)]
    pub shards: Option<RangeInclusive<usize>>,
    /// Verify the order of every pair of adjacent suffixes instead of a sample.
    #[arg(long)]
    pub full: bool,
}

/// Parses a shard number or an inclusive range of them.
fn parse_shards(text: &str) -> Result<RangeInclusive<usize>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) => Ok(first..=last),
        _ => Err("not the numbers of shards; write 3 or 0-3".to_owned()),
    }
}

/// Parses a number of bytes, with K, M, G or T for powers of 1,024.
pub(super) fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[digits.len()..]
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
        digits.parse().map_err(|_| "not a number of bytes; write 500M or 8G".to_owned())?;
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
        let ranges = ["3", "0-3", "7-7"].map(|text| parse_shards(text).unwrap());
        assert_eq!(ranges, [3..=3, 0..=3, 7..=7]);
        for text in ["", "-", "0-", "-1", "0-3-5", "all", "1..2"] {
            assert!(parse_shards(text).is_err(), "{text}");
        }
    }

    #[test]
    fn size_argument_parses_units() {
        let sizes =
            ["7", "500M", "8G", "8g", "1.5GiB", "2KB"].map(|text| parse_bytes(text).unwrap());
        assert_eq!(sizes, [7, 500 << 20, 8 << 30, 8 << 30, 3 << 29, 2048]);
        for text in ["", "G", "8X", "-1G", "0"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }
}
