//! A suffix-array index of a text corpus: build, open and verify it, and count co-occurrences of
//! words.
//!
//! The files are those of Infini-gram v4, byte for byte. A published index opens here, and an index
//! built here opens in the official engine. Counting co-occurrences has three modes ([`Mode`]): the
//! official engine's numbers bit by bit, sampling included; the same rule without sampling; or the
//! shortest spans of text that hold all words.
//!
//! ```
//! use corver_corpus::{BuildOptions, Cnf, CnfOptions, Index, TokenWidth, build_from_tokens};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("index");
//! // Real corpora come as JSONL or Parquet with a tokenizer.json: see `build`. Here a document is a list of token ids.
//! let documents = [vec![7, 8, 1, 2, 9], vec![7, 8, 5, 5, 9]];
//! build_from_tokens(documents, TokenWidth::U16, &path, &BuildOptions::default())?;
//!
//! let index = Index::open(&path)?;
//! assert_eq!(index.count(&[7, 8])?, 2);
//! // (7 8) AND (1 OR 2), at most three tokens apart
//! let query = Cnf::new(vec![vec![vec![7, 8]], vec![vec![1], vec![2]]])?;
//! let options = CnfOptions { max_diff_tokens: 3, ..CnfOptions::default() };
//! assert_eq!(index.count_cnf(&query, &options, None)?.count, 1);
//! # Ok(())
//! # }
//! ```
//!
//! [`TextIndex`] takes queries in words instead of token ids, with the tokenizer saved in the index.

mod build;
mod error;
mod files;
mod fingerprint;
mod index;
mod json_value;
mod query;
mod rows;
mod suffix;
mod text;
mod token_width;
mod verify;

pub use build::BuildOptions;
pub use build::BuildProgress;
pub use build::available_memory;
pub use build::build;
pub use build::build_from_documents;
pub use build::build_from_streams;
pub use build::build_from_tokens;
pub use error::Error;
pub use error::Result;
pub use files::format::TOKENIZER;
pub use files::manifest::FileRecord;
pub use files::manifest::IndexManifest;
pub use files::manifest::MANIFEST;
pub use files::manifest::MANIFEST_VERSION;
pub use files::truncation::report_truncated_files;
pub use fingerprint::fingerprint;
pub use index::document::Document;
pub use index::open::Index;
pub use index::open::IndexInfo;
pub use index::open::OpenOptions;
pub use index::open::ShardInfo;
pub use index::part::Part;
pub use query::cnf::Cnf;
pub use query::cnf::CnfCount;
pub use query::cnf::CnfOptions;
pub use query::cnf::Mode;
pub use rows::parquet_records;
pub use text::corpus::TextIndex;
pub use text::corpus::parse_query;
pub use text::passage::MatchPassage;
pub use text::passage::Span;
pub use text::tokenizer::Tokenizer;
pub use token_width::TokenWidth;
pub use verify::VerifyLevel;
pub use verify::VerifyReport;
pub use verify::verify;
