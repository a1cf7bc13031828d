//! Resumes a run whose metrics or traces are the input. What remains of the log is a prefix of it in
//! complete lines; a second resume changes nothing.
#![no_main]

use std::sync::LazyLock;

use corver_runs::folder::{METRICS_LOG, TRACES};
use corver_runs::{RunDir, RunManifest};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

static RUN: LazyLock<(tempfile::TempDir, RunDir)> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("there is a folder for temporary files");
    let run = RunDir::create(folder.path(), "", &RunManifest::default());
    (folder, run.expect("the folder is empty"))
});

fuzz_target!(|input: (bool, u8, &[u8])| {
    let (is_metrics, steps, content) = input;
    let steps = usize::from(steps);
    let (_, run) = &*RUN;
    let name = if is_metrics { METRICS_LOG } else { TRACES };
    let path = run.path().join(name);
    std::fs::write(&path, content).expect("the folder is writable");
    let last_step = run.rewind(name, steps).expect("it can be read and shortened");
    assert!(last_step <= steps);
    let remaining = std::fs::read(&path).expect("it was written");
    assert!(content.starts_with(&remaining));
    assert!(remaining.is_empty() || remaining.ends_with(b"\n"));
    run.read_lines::<Value>(name).expect("complete lines are JSON");
    assert_eq!(run.rewind(name, steps).expect("it was read before"), last_step);
    assert_eq!(std::fs::read(&path).expect("it was written"), remaining);
});
