//! Pages about runs and completions: one self-contained HTML file each, without scripts and without requests.
//!
//! `run` reads a run's folder, `tally` its traces, `hacks` says what is suspicious, `comparison` sets arms side by side. `chart` draws, `completion` colours,
//! and `page` has what every page has: its frame, its style, and how it becomes a file.

pub mod chart;
pub mod comparison;
pub mod completion;
mod error;
pub mod hacks;
pub mod number;
pub mod page;
pub mod run;
pub mod tally;
#[cfg(test)]
mod testing;

pub use error::ReportError;
