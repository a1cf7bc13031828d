//! What surrounds training: question sets are graded and filtered, a run is driven step by step, and everything that
//! decided or came out of it is written to its folder.

pub mod calibrate;
pub mod evaluate;
pub mod filter;
pub mod grade;
pub mod index_counter;
pub mod metrics;
pub mod recording;
pub mod run_dir;
pub mod schedule;
pub mod score_file;
pub mod train;
#[cfg(feature = "torch")]
mod trainee;

pub use evaluate::{Evaluation, evaluate};
pub use index_counter::IndexCounter;
pub use recording::{Recorder, Recording};
pub use run_dir::{Manifest, RunDir, RunDirError};
pub use score_file::{GivenTriplets, read_completions};
pub use train::{Observer, Plan, Summary, SystemPrompts, TrainError, Trainee, train};
