//! Question files: where they are.

pub mod place;

pub use place::{DatasetError, QuestionPlace};
