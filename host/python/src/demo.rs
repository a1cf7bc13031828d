//! The built-in demo, for examples and tests.

use std::path::PathBuf;

use corver_core::Question;
use pyo3::prelude::*;

use crate::{error, thread};

/// A question and its golds.
type Asked = (String, Vec<String>);

/// The demo's files and questions: `(policy, extractor, train, eval)`.
#[pyfunction]
pub fn demo(py: Python<'_>) -> PyResult<(PathBuf, PathBuf, Vec<Asked>, Vec<Asked>)> {
    let (paths, (train, eval)) =
        thread::without_gil(py, || (corver_reward::parts::demo(), corver_demo::demo_questions()))?;
    let paths = paths.map_err(error::corver)?;
    let asked = |questions: Vec<Question>| {
        questions.into_iter().map(|one| (one.question, one.golds)).collect()
    };
    Ok((paths.policy, paths.extractor, asked(train), asked(eval)))
}
