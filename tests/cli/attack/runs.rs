//! Run folders that others wrote, or that a crash has damaged.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::Value;

use super::print_row;
use crate::host::{Cost, Finished, lines, measured_host, run_dir, short_run, short_run_args};

/// Resumes a run up to a step, and measures it.
fn resume(run: &Path, steps: &str) -> (Finished, Cost) {
    measured_host(&short_run_args(run, steps, &["--resume"]))
}

#[test]
fn half_a_line_of_metrics_is_repaired() {
    let run = run_dir("half-a-line");
    short_run(&run, 2, &[]).good();
    let metrics = run.join("metrics.jsonl");
    let mut text = fs::read_to_string(&metrics).unwrap();
    text.push_str("{\"step\": 3, \"rewa");
    fs::write(&metrics, text).unwrap();
    let (finished, cost) = resume(&run, "4");
    finished.good();
    assert_eq!(lines(&metrics).len(), 4);
    print_row(
        "reading before repairing",
        "a disk that fills within a line of metrics",
        "incomplete lines are removed first",
        &cost,
        "the run resumes",
    );
}

#[test]
fn logs_that_contradict_the_checkpoint_are_refused() {
    let run = run_dir("lost-lines");
    short_run(&run, 2, &[]).good();
    let metrics = run.join("metrics.jsonl");
    let text = fs::read_to_string(&metrics).unwrap();
    fs::write(&metrics, text.split_inclusive('\n').next().unwrap()).unwrap();
    let (finished, cost) = resume(&run, "4");
    let finished = finished.found(1);
    assert!(finished.stderr.contains("metrics.jsonl ends with step 1"), "{finished}");
    assert!(!finished.stderr.contains("resumes it"), "resuming alone would fail again: {finished}");
    assert!(finished.stderr.contains("remove the checkpoints after step 1"), "{finished}");
    // The advice holds.
    fs::remove_dir_all(run.join("checkpoints/step-000002")).unwrap();
    let (finished, _) = resume(&run, "4");
    finished.good();
    assert_eq!(lines(&metrics).len(), 4);
    print_row(
        "two records of one truth",
        "metrics that end before the checkpoint",
        "logs are compared with the checkpoint",
        &cost,
        "refused, with advice",
    );
}

#[test]
fn trained_policy_is_not_evaluated_as_raw() {
    let run = run_dir("lost-evaluation");
    short_run(&run, 2, &[]).good();
    fs::remove_file(run.join("evaluation_before.json")).unwrap();
    let (finished, cost) = resume(&run, "4");
    let finished = finished.good();
    assert_eq!(finished.json()["before"], Value::Null);
    assert!(finished.stderr.contains("evaluation_before.json is missing"), "{finished}");
    print_row(
        "two records of one truth",
        "a lost evaluation before training",
        "only the raw policy is evaluated as raw",
        &cost,
        "a warning, no figure",
    );
}

#[test]
fn links_in_a_run_folder_are_not_followed() {
    let run = run_dir("links");
    short_run(&run, 2, &[]).good();
    let folder = tempfile::tempdir().unwrap();
    let (precious, absent) = (folder.path().join("precious"), folder.path().join("absent"));
    fs::write(&precious, "text").unwrap();
    for (name, target) in [("traces.jsonl", &precious), (".lock", &absent)] {
        let path = run.join(name);
        let original = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        symlink(target, &path).unwrap();
        let (finished, cost) = resume(&run, "4");
        finished.found(1);
        assert_eq!(fs::read_to_string(&precious).unwrap(), "text");
        assert!(!absent.exists());
        fs::remove_file(&path).unwrap();
        fs::write(&path, original).unwrap();
        print_row(
            "links in folders of others",
            &format!("{name} is a link"),
            "links are not followed",
            &cost,
            "refused, the target is unchanged",
        );
    }
}
