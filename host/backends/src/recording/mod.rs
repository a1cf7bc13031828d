//! Recordings of rules' requests and replies, to be replayed without corpus, models or network.
//!
//! A recording is a file of JSON lines. The first line describes the corpus, `{"corpus":
//! {"tokens", "documents", "window"}}`, and is optional. Every other line is a request with its reply: a
//! [`Lookup`](corver_core::Lookup), or an [`Exchange`](corver_core::Exchange) with its `kind`; a
//! chat's line also has the `usage` of tokens. Counts are recorded without the query's limit
//! (`limit`), so that they also serve a rule whose thresholds have changed. A last line without a
//! line end comes from a killed process and is ignored.
//!
//! ```text
//! {"corpus":{"tokens":10612631,"documents":23131,"window":1000}}
//! {"query":{"all_of":[["Paris"],["France"]]},"occurrences":512,"precision":"exact"}
//! {"kind":"nli","premise":"Paris is in France.","hypothesis":"Paris is French.","entail":0.97,…}
//! ```

mod error;
mod line;
mod recorder;
mod replay;
mod replies;

pub use error::RecordingError;
pub use recorder::record;
pub use recorder::resume;
pub use replay::Recording;
