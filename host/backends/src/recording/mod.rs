//! What rules were answered, written down, and answered again without corpus, models or network.
//!
//! A recording is a file of JSON lines. The first says how large the corpus is, `{"corpus":
//! {"tokens", "documents"}}`, and may be left out. Each of the others is a question with its
//! answer: a [`Lookup`](corver_core::Lookup), or an [`Exchange`](corver_core::Exchange) under its
//! `kind`; that of a chat has the `usage` of tokens too. Counts are whole, whatever a query said
//! was `enough`, so that they also answer a rule whose thresholds have changed since. A last line
//! without an end is what a killed process left, and is ignored.
//!
//! ```text
//! {"corpus":{"tokens":10612631,"documents":23131}}
//! {"query":{"all_of":[["Paris"],["France"]]},"occurrences":512,"exact":true}
//! {"kind":"nli","premise":"Paris lies in France.","hypothesis":"Paris is French.","entail":0.97,"neutral":0.02,"contradict":0.01}
//! ```

mod answers;
mod error;
mod line;
mod recorder;
mod replay;

pub use error::RecordingError;
pub use recorder::go_on;
pub use recorder::record;
pub use replay::Recording;
