//! Question files: where they are, what they hold, and what of them belongs in a training pool.
//!
//! ```text
//! hub           OWNER/NAME ─▶ a folder that Hugging Face's tools have downloaded
//! place         a file, or a split of a dataset's folder ─▶ files
//! record        a file ─▶ questions, in the layouts of published sets
//! golds         a trainer's label ─▶ gold answers
//! curriculum    question sets ─▶ the phases of a run
//! pool          question sets ─▶ a training pool: without duplicates, and grounded in a corpus
//! ```

pub mod curriculum;
pub mod duplicates;
pub mod golds;
pub mod grounding;
pub mod hub;
pub mod place;
pub mod pool;
pub mod record;

pub use curriculum::{Curriculum, Share, TooFew};
pub use grounding::{Grounding, GroundingError};
pub use place::{DatasetError, QuestionPlace};
pub use pool::{Dropped, Entry, Finding, Pool, PoolSettings, Reason, Source, Summary, pool};
pub use record::{Answers, QuestionError, QuestionRecord, read_questions};
