//! Question files: where they are, and what of them belongs in a training pool.

pub mod curriculum;
pub mod duplicates;
pub mod grounding;
pub mod place;
pub mod pool;

pub use curriculum::{Curriculum, Share, TooFew};
pub use grounding::{Grounding, GroundingError};
pub use place::{DatasetError, QuestionPlace};
pub use pool::{Dropped, Entry, Finding, Pool, PoolSettings, Reason, Source, Summary, pool};
