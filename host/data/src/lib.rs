//! Question files: finding them, reading them, and making a training pool of them.
//!
//! ```text
//! hub           OWNER/NAME ─▶ a folder that Hugging Face's tools have downloaded
//! location      a file, or a split of a dataset's folder ─▶ files
//! record        a file ─▶ questions, in the layouts of published sets
//! golds         a trainer's label ─▶ golds
//! curriculum    question sets ─▶ the phases of a run
//! demonstration a question and its gold ─▶ a completion to imitate
//! duplicates    questions that are equal or nearly equal
//! grounding     questions that the corpus has no text about
//! pool          question sets ─▶ a training pool: without duplicates, and grounded in a corpus
//! ```

pub mod curriculum;
pub mod demonstration;
pub mod duplicates;
pub mod golds;
pub mod grounding;
pub mod hub;
pub mod location;
pub mod pool;
pub mod record;

pub use curriculum::{Curriculum, FileShare, TooFewQuestions};
pub use golds::GoldsField;
pub use grounding::{Grounding, GroundingError};
pub use location::QuestionLocation;
pub use pool::{PoolSettings, PoolSummary, QuestionPool, SourceFile, pool};
pub use record::{QuestionError, QuestionRecord, read_questions};
