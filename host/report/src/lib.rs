//! Pages about runs and completions: one self-contained HTML file each, without scripts and without
//! requests.
//!
//! ```text
//! run's folder ─▶ run ─▶ tally ─▶ hacks ─▶ report ─▶ page
//!                  └──▶ explain ──────────────────▶ page
//! ```
//!
//! `run` reads a run's folder, `tally` its traces, `hacks` says what is suspicious. `comparison`
//! sets arms side by side, `calibration` shows what labels say. `chart` and `scatter` draw,
//! `completion` colours, and `page` has what every page has: its frame, its style, and how it
//! becomes a file.

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
pub mod report;
mod reported;
pub mod run;
pub mod scatter;
pub mod tally;
#[cfg(test)]
mod testing;

pub use error::ReportError;
pub use explain::explain;
pub use report::report;
pub use run::Run;
