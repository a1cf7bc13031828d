//! One file per subcommand.

pub mod calibrate;
pub mod check;
#[cfg(feature = "torch")]
pub mod compare;
pub mod data;
pub mod demo;
pub mod doctor;
pub mod eval;
pub mod explain;
pub mod extract;
pub mod filter;
pub mod index;
pub mod judge;
pub mod mcp;
#[cfg(feature = "torch")]
pub mod merge;
pub mod plugin;
pub mod report;
pub mod score;
pub mod serve;
pub mod settings;
#[cfg(feature = "torch")]
pub mod sft;
#[cfg(feature = "torch")]
pub mod train;
