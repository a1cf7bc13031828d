//! Passages of a corpus by BM25: the answers to a rule's searches.
//!
//! [`build`] cuts the documents of an Infini-gram index into passages and writes a second index of their words beside it.
//! [`Passages`] opens one or several such indexes and is a [`corver_core::Retriever`].
//!
//! ```text
//! wiki/            the Infini-gram index
//! wiki.passages/   corver-passages.json, and Tantivy's files
//! ```
//!
//! A word is a run of letters and digits, in small letters; there are no stop words and no stems,
//! so every language that puts spaces between its words is treated alike. A passage's score for a
//! query is BM25 with k1 = 1.2 and b = 0.75,
//!
//! ```text
//! Σ over the query's words w   ln(1 + (N − n(w) + ½) / (n(w) + ½)) · f(w) · (k1 + 1) / (f(w) + k1 · (1 − b + b · length / average length))
//! ```
//!
//! where N is the number of passages, n(w) of those that hold w, and f(w) how often this one does.
//! As in Lucene, lengths of more than 40 words are rounded down, by less than an eighth. A word
//! that a query repeats counts as often.

mod build;
mod cut;
mod error;
mod manifest;
mod open;
mod place;
mod read_only;
mod schema;
mod search;

pub use build::BuildOptions;
pub use build::build;
pub use error::PassageError;
pub use manifest::PassageManifest;
pub use open::Passages;
pub use place::Place;
