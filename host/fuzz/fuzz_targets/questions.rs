//! Reads the input as a question file, in any format and encoding: it is an error, or questions that
//! are equal when they are written and read again.
#![no_main]

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use corver_data::{QuestionRecord, read_questions};
use libfuzzer_sys::fuzz_target;

static FOLDER: LazyLock<tempfile::TempDir> =
    LazyLock::new(|| tempfile::tempdir().expect("there is a folder for temporary files"));

fn write(name: &str, content: &[u8]) -> PathBuf {
    let path: &Path = FOLDER.path();
    let path = path.join(name);
    std::fs::write(&path, content).expect("the folder is writable");
    path
}

fuzz_target!(|content: &[u8]| {
    let Ok(questions) = read_questions(&write("given", content)) else { return };
    let records: Vec<QuestionRecord<'_>> = questions.iter().map(QuestionRecord::from).collect();
    let written = serde_json::to_vec(&records).expect("records are JSON");
    assert_eq!(read_questions(&write("written", &written)).expect("it was written"), questions);
});
