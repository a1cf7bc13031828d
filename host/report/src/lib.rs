//! HTML pages about runs and completions. Each is one self-contained file, without scripts and
//! without requests; only the playground of a rule needs a server.
//!
//! ```text
//! run's folder ─▶ run ─▶ tally ─▶ hacks ─▶ report ─▶ page
//!                  └──▶ explain ──────────────────▶ page
//! ```
//!
//! `run` reads a run's folder, `tally` its traces, and `hacks` checks for reward hacking.
//! `playground` has a form for a rule's settings. `comparison` shows arms side by side,
//! `calibration` the results of labelled sentences. `chart` and `scatter` draw, `completion` colours
//! sentences, and `page` is the frame of every page.

pub mod calibration;
pub mod chart;
pub mod comparison;
pub mod completion;
mod curves;
mod error;
pub mod explain;
pub mod hacks;
mod headline;
pub mod number;
pub mod page;
pub mod playground;
pub mod report;
mod reported;
pub mod run;
pub mod scatter;
pub mod tally;
#[cfg(test)]
mod testing;
mod trend;

pub use error::ReportError;
pub use explain::explain;
pub use report::report;
pub use run::LoadedRun;
