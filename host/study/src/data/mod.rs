//! Question files: where they are, and what of them belongs in a training pool.

pub mod duplicates;
pub mod grounding;
pub mod place;
pub mod pool;

pub use grounding::{Grounding, GroundingError};
pub use place::{DatasetError, QuestionPlace};
pub use pool::{Dropped, Entry, Finding, Pool, PoolSettings, Reason, Source, Summary, pool};
