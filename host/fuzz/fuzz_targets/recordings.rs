//! Opens the input as a recording, and resumes it: it is replayed, or refused with an error.
#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;

use corver_backends::recording::{self, Recording};
use libfuzzer_sys::fuzz_target;

static FOLDER: LazyLock<tempfile::TempDir> =
    LazyLock::new(|| tempfile::tempdir().expect("there is a folder for temporary files"));

fuzz_target!(|content: &[u8]| {
    let path: PathBuf = FOLDER.path().join("recording.jsonl");
    std::fs::write(&path, content).expect("the folder is writable");
    let Ok(recording) = Recording::open(&path) else { return };
    // The truncated last line is removed, and all others are replayed as before.
    let resumed = recording::resume(&path, recording.backends()).expect("it was read before");
    drop(resumed);
    Recording::open(&path).expect("it was read before");
});
