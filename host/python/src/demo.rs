//! The built-in demo, for examples and tests.

use std::path::PathBuf;

use corver_core::Question;
use pyo3::prelude::*;

use crate::{error, thread};

/// Question with its golds.
type QuestionWithGolds = (String, Vec<String>);

/// Unpacks the demo: `(policy, extractor, train, eval)`.
#[pyfunction]
pub fn unpack_demo(
    py: Python<'_>,
) -> PyResult<(PathBuf, PathBuf, Vec<QuestionWithGolds>, Vec<QuestionWithGolds>)> {
    let unpacked = thread::without_gil(py, corver_reward::parts::unpack_demo)?;
    let paths = unpacked.map_err(error::corver)?;
    let (train, eval) = thread::without_gil(py, corver_demo::demo_questions)?;
    Ok((paths.policy, paths.extractor, with_golds(train), with_golds(eval)))
}

fn with_golds(questions: Vec<Question>) -> Vec<QuestionWithGolds> {
    questions.into_iter().map(|question| (question.question, question.golds)).collect()
}
