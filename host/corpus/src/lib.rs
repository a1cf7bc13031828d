//! A suffix-array index of a text corpus: build it, open it, verify it, and ask how often words occur together.
//!
//! The files are those of Infini-gram v4, byte for byte, so that a published index opens here and an index built here
//! opens in the official engine. Counting co-occurrences has three modes ([`Mode`]): the official engine's numbers bit by
//! bit, sub-sampling included; the same rule without sampling; or the stretches of text that hold all the words.
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
//! Words instead of token ids, with the tokenizer that lies in the index: [`Corpus`].

mod boundary;
mod build;
mod bytes;
mod cache;
mod clause;
mod cnf;
mod counter;
mod document;
mod draw;
mod error;
mod first;
mod format;
mod index;
mod join;
mod keys;
mod passage;
mod positions;
mod query;
mod radix;
mod saved;
mod scan;
mod segment;
mod shard;
mod span;
mod tokenizer;
mod verify;
mod words;
mod zones;

pub use build::BuildOptions;
pub use build::Progress;
pub use build::available_memory;
pub use build::build;
pub use build::build_from_documents;
pub use build::build_from_streams;
pub use build::build_from_tokens;
pub use cnf::Cnf;
pub use cnf::CnfCount;
pub use cnf::CnfOptions;
pub use cnf::Mode;
pub use counter::Corpora;
pub use counter::CounterError;
pub use counter::WordCounter;
pub use counter::WordQuery;
pub use document::Document;
pub use error::Error;
pub use error::Result;
pub use format::FileRecord;
pub use format::MANIFEST;
pub use format::Manifest;
pub use format::TOKENIZER;
pub use format::TokenWidth;
pub use index::Index;
pub use index::Info;
pub use index::OpenOptions;
pub use index::ShardInfo;
pub use passage::Passage;
pub use passage::Span;
pub use query::Corpus;
pub use query::WordCount;
pub use query::parse_query;
pub use tokenizer::Tokenizer;
pub use verify::Level;
pub use verify::Verified;
pub use verify::verify;
