//! What surrounds training.
//!
//! `data` finds question files and makes a pool of them, `eval` answers and grades question sets
//! and filters them, `judge` takes a second opinion of the grades, `run` drives a training run and
//! keeps everything that decided it, or came out of it, in the run's folder, `sft` drives the cold
//! start before one, `compare` sets runs side by side, and `calibrate` asks whether counts and
//! rewards say anything about truth. `whole` writes their files.

pub mod calibrate;
pub mod compare;
pub mod data;
pub mod eval;
pub mod judge;
pub mod run;
pub mod sft;
pub mod whole;
