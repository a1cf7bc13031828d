//! A run's folder: the settings that decide the run, and its results.
//!
//! ```text
//! config.toml      the resolved configuration
//! manifest.json    hashes of plugin, index, model and data; seed; versions
//! metrics.jsonl    one line per step
//! events.out.…     the same for TensorBoard
//! traces.jsonl     one line per completion
//! checkpoints/     step-000050/ …
//! evaluation_….json, answers_….jsonl   of the policy before and after training
//! summary.json     written last: a run without it has not finished
//! ```

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::events;
use corver_files::TEMPORARY;

/// Error of a run's folder.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunDirError {
    /// A file cannot be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// Action that failed, as in the message.
        action: &'static str,
        /// Path of the file or folder.
        path: PathBuf,
        /// Error of the file system.
        source: std::io::Error,
    },
    /// The folder cannot be used for the run, or a file in it is damaged; the message says what to do.
    #[error("{0}")]
    Unusable(String),
    /// The run has no step left to take.
    #[error("the run in {} has finished its {steps} steps", path.display())]
    Finished {
        /// Folder of the run.
        path: PathBuf,
        /// Number of steps taken.
        steps: usize,
    },
    /// A setting or file that decides the run has changed since its start.
    #[error(
        "this run began with another {what} ({recorded}, now {now}); resume with the same one, or \
         start a new run"
    )]
    Changed {
        /// Entry of the manifest.
        what: String,
        /// Value at the start of the run.
        recorded: String,
        /// Value of this process.
        now: String,
    },
}

/// Everything that decides a run's result: hashes, seeds and versions by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunManifest(pub std::collections::BTreeMap<String, String>);

impl RunManifest {
    /// Sets the value of an entry.
    pub fn set(&mut self, what: &str, value: impl Into<String>) {
        self.0.insert(what.to_owned(), value.into());
    }

    /// Checks that the run in `path` began with this manifest. The `free` entries may differ.
    ///
    /// # Errors
    /// Fails if there is no run, or its manifest differs.
    pub fn check(&self, path: &Path, free: &[&str]) -> Result<(), RunDirError> {
        let recorded_at = path.join(MANIFEST);
        if !recorded_at.is_file() {
            return Err(RunDirError::Unusable(format!(
                "{} holds no run to resume: it has no {MANIFEST}",
                path.display()
            )));
        }
        let text = fs::read(&recorded_at).map_err(io("read", &recorded_at))?;
        let recorded: Self =
            serde_json::from_slice(&text).map_err(|error| damaged(&recorded_at, &error))?;
        for what in recorded.0.keys().chain(self.0.keys()) {
            let is_free = free.contains(&what.as_str());
            if !is_free && recorded.0.get(what) != self.0.get(what) {
                return Err(RunDirError::Changed {
                    what: what.clone(),
                    recorded: recorded.value(what),
                    now: self.value(what),
                });
            }
        }
        Ok(())
    }

    /// Returns the value of an entry, for messages.
    fn value(&self, what: &str) -> String {
        self.0.get(what).cloned().unwrap_or_else(|| "absent".to_owned())
    }
}

/// An open run folder.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
    _lock: File,
}

/// Folder of the checkpoints.
pub const CHECKPOINTS: &str = "checkpoints";
/// File of the resolved configuration.
pub const CONFIG: &str = "config.toml";
/// File of the [`RunManifest`], which the start of a run writes.
pub const MANIFEST: &str = "manifest.json";
/// File of the results, which the end of a run writes.
pub const SUMMARY: &str = "summary.json";
/// Log with the metrics of each step.
pub const METRICS_LOG: &str = "metrics.jsonl";
/// Log with the step and trace of each completion.
pub const TRACES: &str = "traces.jsonl";
/// File of the evaluation before training.
pub const EVALUATION_BEFORE: &str = "evaluation_before.json";
/// File of the evaluation after training.
pub const EVALUATION_AFTER: &str = "evaluation_after.json";
/// Log with the answers of the evaluation before training.
pub const ANSWERS_BEFORE: &str = "answers_before.jsonl";
/// Log with the answers of the evaluation after training.
pub const ANSWERS_AFTER: &str = "answers_after.jsonl";
const LOCK: &str = ".lock";
const LOGS: [&str; 2] = [METRICS_LOG, TRACES];

impl RunDir {
    /// Starts a run in a new or empty folder. A folder without a manifest has no run yet: the files of
    /// a start that was killed are replaced.
    ///
    /// # Errors
    /// Fails if the folder has other files or cannot be written.
    pub fn create(path: &Path, config: &str, manifest: &RunManifest) -> Result<Self, RunDirError> {
        if path.is_file() {
            return Err(RunDirError::Unusable(format!(
                "{} is a file; a run needs a folder of its own",
                path.display()
            )));
        }
        corver_files::create_folder(path).map_err(io("create the run folder", path))?;
        let run = Self::lock(path)?;
        let entries = fs::read_dir(path).map_err(io("read the run folder", path))?;
        if entries.flatten().any(|entry| !is_written_before_manifest(&entry.file_name())) {
            let has_run = path.join(MANIFEST).exists();
            let resume = if has_run { "resume that run with --resume, or " } else { "" };
            return Err(RunDirError::Unusable(format!(
                "{} is not empty; {resume}choose another folder with --out",
                path.display()
            )));
        }
        run.write(CONFIG, config.as_bytes())?;
        run.write_json(MANIFEST, manifest)?;
        Ok(run)
    }

    /// Opens the run in `path` to resume it.
    ///
    /// # Errors
    /// Fails if there is no run, or `manifest` differs from the recorded one.
    pub fn resume(path: &Path, manifest: &RunManifest) -> Result<Self, RunDirError> {
        manifest.check(path, &[])?;
        Self::lock(path)
    }

    /// Continues the run with this configuration, from step `steps_done` to `steps`. A finished run is
    /// open again.
    ///
    /// # Errors
    /// Fails if no step remains ([`RunDirError::Finished`]), or the folder cannot be written.
    pub fn continue_to(
        &self,
        config: &str,
        steps_done: usize,
        steps: usize,
    ) -> Result<(), RunDirError> {
        let has_finished = self.path.join(SUMMARY).exists();
        if steps < steps_done || (has_finished && steps == steps_done) {
            return Err(RunDirError::Finished { path: self.path.clone(), steps: steps_done });
        }
        self.reopen(config)
    }

    /// Continues the run with this configuration. A finished run is open again, without its results
    /// after training.
    ///
    /// # Errors
    /// Fails if the folder cannot be written.
    pub fn reopen(&self, config: &str) -> Result<(), RunDirError> {
        self.write(CONFIG, config.as_bytes())?;
        // The summary last: until then, the run is a finished one.
        for name in [EVALUATION_AFTER, ANSWERS_AFTER, SUMMARY] {
            let path = self.path.join(name);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(io("delete", &path)(error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Locks the folder against other processes until the value is dropped. The system releases the
    /// lock of a killed process.
    fn lock(path: &Path) -> Result<Self, RunDirError> {
        let name = path.join(LOCK);
        let lock = open_no_link(&name, File::options().create(true).append(true))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: lock }),
            Err(fs::TryLockError::WouldBlock) => Err(RunDirError::Unusable(format!(
                "another corver-host is working on the run in {}",
                path.display()
            ))),
            Err(fs::TryLockError::Error(source)) => Err(io("lock", &name)(source)),
        }
    }

    /// Returns the path of the folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the folder of the checkpoints.
    #[must_use]
    pub fn checkpoints(&self) -> PathBuf {
        self.path.join(CHECKPOINTS)
    }

    /// Drops everything that is logged after step `steps_done`, because those steps are taken again.
    ///
    /// # Errors
    /// Fails if a log cannot be rewritten, or ends before step `steps_done`.
    pub fn rewind_logs(&self, steps_done: usize) -> Result<(), RunDirError> {
        for name in LOGS {
            let last_step = self.rewind(name, steps_done)?;
            // Supervised fine-tuning has no traces.
            let is_absent = name == TRACES && !self.path.join(name).exists();
            if last_step < steps_done && !is_absent {
                return Err(RunDirError::Unusable(format!(
                    "{} ends with step {last_step}, before the checkpoint of step {steps_done}: \
                     part of it is lost; remove the checkpoints after step {last_step} to resume \
                     before it, or start a new run",
                    self.path.join(name).display()
                )));
            }
        }
        self.rewind_events(steps_done)
    }

    /// Truncates a log before the first line whose `step` is after `steps_done`, or that is incomplete
    /// because the run was killed. Returns the last step in the log, 0 without a log.
    ///
    /// # Errors
    /// Fails if the log cannot be rewritten.
    pub fn rewind(&self, name: &str, steps_done: usize) -> Result<usize, RunDirError> {
        let path = self.path.join(name);
        let file = match self.open_log(name, File::options().read(true).write(true)) {
            Err(RunDirError::Io { source, .. })
                if source.kind() == std::io::ErrorKind::NotFound =>
            {
                return Ok(0);
            }
            result => result?,
        };
        let mut length = 0;
        let mut last_step = 0;
        let mut line = Vec::new();
        let mut lines = BufReader::new(&file);
        loop {
            line.clear();
            lines.read_until(b'\n', &mut line).map_err(io("read", &path))?;
            // The next line would be appended to a line without its end.
            let is_complete = line.ends_with(b"\n");
            match step_of(&line) {
                Some(step) if is_complete && step <= steps_done => last_step = step,
                _ => break,
            }
            length += line.len() as u64;
        }
        file.set_len(length).map_err(io("shorten", &path))?;
        Ok(last_step)
    }

    /// Flushes the logs to disk. A checkpoint is written after this call, so that no crash leaves a
    /// checkpoint whose steps are in no log.
    ///
    /// # Errors
    /// Fails if a log cannot be flushed.
    pub fn sync_logs(&self) -> Result<(), RunDirError> {
        for name in [METRICS_LOG, TRACES, events::EVENTS] {
            let path = self.path.join(name);
            if path.exists() {
                let log = self.open_log(name, File::options().append(true))?;
                log.sync_all().map_err(io("flush", &path))?;
            }
        }
        corver_files::sync_folder(&self.path).map_err(io("flush", &self.path))
    }

    /// Opens a log. A link is refused: in a folder that others wrote, it can lead to any file.
    fn open_log(&self, name: &str, options: &mut OpenOptions) -> Result<File, RunDirError> {
        open_no_link(&self.path.join(name), options)
    }

    fn rewind_events(&self, steps_done: usize) -> Result<(), RunDirError> {
        let path = self.path.join(events::EVENTS);
        let written = match fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            result => result.map_err(io("read", &path))?,
        };
        match &written[..events::length_until(steps_done, &written)] {
            [] => self.write(events::EVENTS, &events::header()),
            events if events.len() < written.len() => self.write(events::EVENTS, events),
            _ => Ok(()),
        }
    }

    /// Appends a step's metrics to `metrics.jsonl` and to TensorBoard's file.
    ///
    /// # Errors
    /// Fails if a file cannot be written.
    pub fn append_metrics(&self, metrics: &Map<String, Value>) -> Result<(), RunDirError> {
        self.append(METRICS_LOG, [metrics])?;
        let mut file = self.open_log(events::EVENTS, File::options().create(true).append(true))?;
        let path = self.path.join(events::EVENTS);
        file.write_all(&events::step_events(metrics)).map_err(io("write", &path))
    }

    /// Appends JSON lines to a log, and flushes them to the system.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn append<T: Serialize>(
        &self,
        name: &str,
        lines: impl IntoIterator<Item = T>,
    ) -> Result<(), RunDirError> {
        let path = self.path.join(name);
        let file = self.open_log(name, File::options().create(true).append(true))?;
        let mut file = BufWriter::new(file);
        for line in lines {
            serde_json::to_writer(&mut file, &line)
                .map_err(|error| io("write", &path)(error.into()))?;
            file.write_all(b"\n").map_err(io("write", &path))?;
        }
        file.flush().map_err(io("write", &path))
    }

    /// Writes a JSON file atomically.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn write_json<T: Serialize>(&self, name: &str, value: &T) -> Result<(), RunDirError> {
        let path = self.path.join(name);
        let mut text =
            serde_json::to_vec_pretty(value).map_err(|error| io("write", &path)(error.into()))?;
        text.push(b'\n');
        self.write(name, &text)
    }

    /// Writes a file of JSON lines atomically.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn write_lines<T: Serialize>(&self, name: &str, lines: &[T]) -> Result<(), RunDirError> {
        let path = self.path.join(name);
        let mut text = Vec::new();
        for line in lines {
            serde_json::to_writer(&mut text, line)
                .map_err(|error| io("write", &path)(error.into()))?;
            text.push(b'\n');
        }
        self.write(name, &text)
    }

    /// Reads a JSON file of the run; `None` if it does not exist yet.
    ///
    /// # Errors
    /// Fails if it cannot be read or parsed.
    pub fn read_json<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, RunDirError> {
        read_json(&self.path.join(name))
    }

    /// Reads the JSON lines of a log; none if it does not exist yet.
    ///
    /// # Errors
    /// Fails if it cannot be read or parsed.
    pub fn read_lines<T: DeserializeOwned>(&self, name: &str) -> Result<Vec<T>, RunDirError> {
        let path = self.path.join(name);
        let text = read_text(&path)?.unwrap_or_default();
        let mut lines = Vec::new();
        for line in text.lines() {
            let parsed = serde_json::from_str(line);
            lines.push(parsed.map_err(|error| damaged(&path, &error))?);
        }
        Ok(lines)
    }

    /// Writes a file atomically.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), RunDirError> {
        let path = self.path.join(name);
        corver_files::replace(&path, bytes).map_err(io("write", &path))
    }

    /// Ends the run with its [`SUMMARY`].
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn finish<T: Serialize>(&self, summary: &T) -> Result<(), RunDirError> {
        self.write_json(SUMMARY, summary)
    }
}

/// Reads a text file of a run; `None` if it does not exist yet.
///
/// # Errors
/// Fails if it cannot be read.
pub fn read_text(path: &Path) -> Result<Option<String>, RunDirError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io("read", path)(error)),
    }
}

/// Reads a JSON file of a run; `None` if it does not exist yet.
///
/// # Errors
/// Fails if it cannot be read or parsed.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, RunDirError> {
    let Some(text) = read_text(path)? else { return Ok(None) };
    serde_json::from_str(&text).map(Some).map_err(|error| damaged(path, &error))
}

/// Returns the first path `parent/name-NNN` that does not exist.
#[must_use]
pub fn next_free(parent: &Path, name: &str) -> PathBuf {
    (1u32..)
        .map(|number| parent.join(format!("{name}-{number:03}")))
        .find(|path| !path.exists())
        .expect("some number below 2³² is free")
}

/// Returns true for the files that the start of a run writes before the manifest.
fn is_written_before_manifest(name: &OsStr) -> bool {
    name == LOCK || name == CONFIG || name.as_encoded_bytes().starts_with(TEMPORARY.as_bytes())
}

/// Opens a file that is no symbolic link.
fn open_no_link(path: &Path, options: &mut OpenOptions) -> Result<File, RunDirError> {
    let flags = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    options.custom_flags(flags).open(path).map_err(|source| {
        if path.is_symlink() {
            RunDirError::Unusable(format!("{} is a link, which is not followed", path.display()))
        } else {
            io("open", path)(source)
        }
    })
}

/// Returns the `step` of a line of a log.
fn step_of(line: &[u8]) -> Option<usize> {
    let step = serde_json::from_slice::<Value>(line).ok()?.get("step")?.as_f64()?;
    Some(step as usize)
}

/// Returns the error of a file that cannot be parsed.
fn damaged(path: &Path, error: &serde_json::Error) -> RunDirError {
    RunDirError::Unusable(format!("{} is damaged: {error}", path.display()))
}

/// Returns a function that adds the action and the path to an error of the file system.
pub(super) fn io<'a>(
    action: &'static str,
    path: &'a Path,
) -> impl Fn(std::io::Error) -> RunDirError + 'a {
    move |source| RunDirError::Io { action, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn run_folder_is_locked_by_one_process() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunDir::create(folder.path(), "", &manifest("a")).unwrap();
        let refused = RunDir::resume(folder.path(), &manifest("a")).unwrap_err().to_string();
        assert!(refused.contains("is working on the run"), "{refused}");
        drop(run);
        RunDir::resume(folder.path(), &manifest("a")).unwrap();
    }

    fn manifest(plugin: &str) -> RunManifest {
        let mut manifest = RunManifest::default();
        manifest.set("plugin", plugin);
        manifest
    }

    #[test]
    fn non_empty_run_folder_is_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        drop(RunDir::create(folder.path(), "", &manifest("a")).unwrap());
        let refused = RunDir::create(folder.path(), "", &manifest("a")).unwrap_err().to_string();
        assert!(refused.contains("is not empty"), "{refused}");
    }

    #[test]
    fn killed_start_leaves_reusable_run_folder() {
        let folder = tempfile::tempdir().unwrap();
        for name in [LOCK, CONFIG, ".tmpX7Yz"] {
            fs::write(folder.path().join(name), "half of").unwrap();
        }
        drop(RunDir::create(folder.path(), "whole", &manifest("a")).unwrap());
        assert_eq!(fs::read_to_string(folder.path().join(CONFIG)).unwrap(), "whole");
        fs::remove_file(folder.path().join(MANIFEST)).unwrap();
        fs::write(folder.path().join("notes.txt"), "mine").unwrap();
        let refused = RunDir::create(folder.path(), "", &manifest("a")).unwrap_err().to_string();
        assert!(refused.contains("is not empty"), "{refused}");
        assert!(!refused.contains("--resume"), "there is no run: {refused}");
    }

    #[test]
    fn resume_requires_unchanged_manifest() {
        let folder = tempfile::tempdir().unwrap();
        let refused = RunDir::resume(folder.path(), &manifest("a")).unwrap_err().to_string();
        assert!(refused.contains("holds no run to resume"), "{refused}");
        drop(RunDir::create(folder.path(), "", &manifest("a")).unwrap());
        let run = RunDir::resume(folder.path(), &manifest("a")).unwrap();
        let error = RunDir::resume(folder.path(), &manifest("b")).unwrap_err();
        assert!(error.to_string().contains("another plugin"), "{error}");
        run.finish(&json!({})).unwrap();

        let refused = run.continue_to("", 4, 4).unwrap_err().to_string();
        assert!(refused.contains("has finished its 4 steps"), "{refused}");
        run.continue_to("longer", 4, 6).unwrap();
        assert!(!folder.path().join(SUMMARY).exists());
        assert_eq!(fs::read_to_string(folder.path().join(CONFIG)).unwrap(), "longer");
        run.continue_to("longer", 6, 6).unwrap();
    }

    #[test]
    fn extended_run_drops_its_evaluation_after_training() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunDir::create(folder.path(), "", &manifest("a")).unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in [EVALUATION_BEFORE, EVALUATION_AFTER] {
            run.write_json(name, &json!({"accuracy": 0.5})).unwrap();
        }
        run.write_lines(ANSWERS_AFTER, &[json!({"question": "q"})]).unwrap();
        run.finish(&json!({})).unwrap();
        run.continue_to("longer", 4, 6).unwrap();
        for name in [EVALUATION_AFTER, ANSWERS_AFTER, SUMMARY] {
            assert!(!path(name).exists(), "{name}");
        }
        assert!(path(EVALUATION_BEFORE).exists());

        // A run that cannot be opened again is still a finished one.
        run.finish(&json!({})).unwrap();
        fs::create_dir(path(ANSWERS_AFTER)).unwrap();
        run.continue_to("longer", 6, 8).unwrap_err();
        assert!(path(SUMMARY).exists());
    }

    #[test]
    fn rewinding_drops_later_and_broken_lines() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunDir::create(folder.path(), "", &manifest("a")).unwrap();
        run.append(
            "metrics.jsonl",
            [json!({"step": 1.0}), json!({"step": 2.0}), json!({"step": 3.0})],
        )
        .unwrap();
        let path = folder.path().join("metrics.jsonl");
        let torn = [fs::read(&path).unwrap(), b"{\"step\": 2, \"text\": \"\xc3".to_vec()].concat();
        fs::write(&path, torn).unwrap();
        run.rewind_logs(2).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "{\"step\":1.0}\n{\"step\":2.0}\n");
        fs::write(&path, "{\"step\":1.0}\n{\"step\":2.0}").unwrap();
        let refused = run.rewind_logs(2).unwrap_err().to_string();
        assert!(
            refused.contains("metrics.jsonl ends with step 1, before the checkpoint of step 2")
        );
        assert_eq!(
            fs::read_to_string(&path).unwrap(),
            "{\"step\":1.0}\n",
            "the next line would join one without an end"
        );
        run.rewind_logs(1).unwrap();
    }

    #[test]
    fn logs_that_end_before_the_checkpoint_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunDir::create(folder.path(), "", &manifest("a")).unwrap();
        let steps = [1, 2, 3].map(|step| json!({"step": step}));
        run.append(METRICS_LOG, &steps).unwrap();
        run.append(TRACES, &steps[..2]).unwrap();
        let refused = run.rewind_logs(3).unwrap_err().to_string();
        assert!(refused.contains("traces.jsonl ends with step 2"), "{refused}");
        run.rewind_logs(2).unwrap();
        fs::remove_file(folder.path().join(TRACES)).unwrap();
        run.rewind_logs(2).unwrap();
        fs::remove_file(folder.path().join(METRICS_LOG)).unwrap();
        let refused = run.rewind_logs(2).unwrap_err().to_string();
        assert!(refused.contains("metrics.jsonl ends with step 0"), "{refused}");
    }

    #[test]
    fn links_in_run_folder_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let precious = folder.path().join("precious");
        fs::write(&precious, "text").unwrap();
        let path = folder.path().join("run");
        let run = RunDir::create(&path, "", &manifest("a")).unwrap();
        for name in [METRICS_LOG, TRACES, events::EVENTS] {
            std::os::unix::fs::symlink(&precious, path.join(name)).unwrap();
        }
        let step = json!({"step": 1}).as_object().unwrap().clone();
        for error in [
            run.append_metrics(&step).unwrap_err(),
            run.append(TRACES, [&step]).unwrap_err(),
            run.rewind(TRACES, 0).unwrap_err(),
            run.sync_logs().unwrap_err(),
        ] {
            assert!(error.to_string().ends_with("is a link, which is not followed"), "{error}");
        }
        drop(run);
        let target = folder.path().join("new");
        fs::remove_file(path.join(LOCK)).unwrap();
        std::os::unix::fs::symlink(&target, path.join(LOCK)).unwrap();
        RunDir::resume(&path, &manifest("a")).unwrap_err();
        assert_eq!(fs::read_to_string(&precious).unwrap(), "text");
        assert!(!target.exists());
    }

    #[test]
    fn next_run_name_counts_up() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(next_free(folder.path(), "first"), folder.path().join("first-001"));
        fs::create_dir(folder.path().join("first-001")).unwrap();
        assert_eq!(next_free(folder.path(), "first"), folder.path().join("first-002"));
    }
}
