//! What surrounds training. `compare` sets runs side by side, `data` finds question files and makes a pool of them, `eval` answers and grades question sets, and filters them, `run` drives a training run and keeps everything that
//! decided it, or came out of it, in the run's folder.

pub mod compare;
pub mod data;
pub mod eval;
pub mod run;
