//! Passages of a corpus by BM25: the replies to a rule's searches.
//!
//! [`build`] cuts the documents of an Infini-gram index into passages, and writes a search index
//! of their words next to it. [`PassageIndex`] opens one or several of these search indexes and is
//! a [`corver_core::Retriever`].
//!
//! ```text
//! wiki/            the Infini-gram index
//! wiki.passages/   corver-passages.json, and Tantivy's files
//! ```
//!
//! A word is a run of letters and digits in normal form, or a single character of a script without
//! spaces (`words.rs`). There are no stop words and no stemming, so all languages are treated alike.
//! A passage's score for a query
//! is BM25 with k1 = 1.2 and b = 0.75,
//!
//! ```text
//! Σ over the query's words w
//!     ln(1 + (N − n(w) + ½) / (n(w) + ½)) · f(w) · (k1 + 1) / (f(w) + k1 · (1 − b + b · length / mean length))
//! ```
//!
//! where N is the number of passages, n(w) the number of passages that contain w, and f(w) the
//! number of times that w occurs in this one. As in Lucene, lengths of more than 40 words are
//! rounded down, by less than an eighth. A word that a query repeats counts each time.

mod build;
mod cut;
mod error;
mod location;
mod manifest;
mod open;
mod read_only;
mod schema;
mod search;
mod words;

pub use build::PassageOptions;
pub use build::build;
pub use error::PassageError;
pub use location::PassageLocation;
pub use manifest::{PassageManifest, VERSION};
pub use open::PassageIndex;
