//! A run's folder, as pages read it. The run may still be training: nothing is locked, and an
//! incomplete last line is ignored.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use corver_core::Trace;
use corver_core::response::{StringMatch, ThinkThenAnswer};
use corver_eval::Evaluation;
use corver_runs::RunManifest;
use corver_runs::folder::{
    CONFIG, EVALUATION_AFTER, EVALUATION_BEFORE, MANIFEST, METRICS_LOG, SUMMARY, TRACES, read_json,
    read_text,
};
use corver_settings::{GraderSection, PluginRef, Settings, WeightedPlugin};
use corver_train::{RewardNames, RunSummary};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::ReportError;

/// A run's folder without its traces, which [`LoadedRun::for_each_trace`] reads.
#[derive(Debug)]
pub struct LoadedRun {
    /// Path of the folder.
    pub path: PathBuf,
    /// Last component of the path.
    pub name: String,
    /// Resolved settings of the run.
    pub settings: Settings,
    /// Text of the settings file.
    pub config: String,
    /// Fingerprints of everything that decides the run's result.
    pub manifest: RunManifest,
    /// Metrics by name, one map per step.
    pub metrics: Vec<Map<String, Value>>,
    /// Evaluation before training. `None` if the run has none, or not yet.
    pub before: Option<Evaluation>,
    /// Evaluation after training. `None` if the run has none, or not yet.
    pub after: Option<Evaluation>,
    /// Summary of the run. `None` if it is not finished.
    pub summary: Option<RunSummary>,
}

/// Returns the rules that reward the completions, by the names of their files.
fn reward_names(settings: &Settings) -> RewardNames {
    let mut plugins: Vec<WeightedPlugin> =
        settings.rule.plugin.iter().filter_map(|text| text.parse().ok()).collect();
    if plugins.iter().any(|plugin| !plugin.is_watched()) {
        plugins.retain(|plugin| !plugin.is_watched());
    }
    let names: Vec<String> = plugins.iter().map(WeightedPlugin::name).collect();
    let grader = |section: &GraderSection, built_in: &str| match &section.plugin {
        Some(plugin) => {
            plugin.parse().map_or_else(|_| plugin.clone(), |parsed: PluginRef| parsed.name())
        }
        None => built_in.to_owned(),
    };
    RewardNames {
        rule: names.join("+"),
        weights: plugins.iter().map(|plugin| plugin.weight).collect(),
        judge: grader(&settings.judge, StringMatch::NAME),
        format: grader(&settings.format, ThinkThenAnswer::NAME),
    }
}

/// Returns the name of the metric of a rule of weight 0.
pub(crate) fn watched_mean(rule: &str) -> String {
    format!("watched/{rule}/mean")
}

impl LoadedRun {
    /// Reads everything but the traces.
    ///
    /// # Errors
    /// Fails if the folder has no run, or a file cannot be read or is malformed.
    pub fn open(path: &Path) -> Result<Self, ReportError> {
        for missing in [MANIFEST, CONFIG] {
            if !path.join(missing).is_file() {
                return Err(ReportError::NotThere(match first_run_of_comparison(path) {
                    Some(run) => format!(
                        "{} holds a comparison; name one of its runs, such as {}",
                        path.display(),
                        run.display()
                    ),
                    None => format!("{} holds no run: it has no {missing}", path.display()),
                }));
            }
        }
        let config = read_text(&path.join(CONFIG))?.unwrap_or_default();
        let settings: Settings = toml::from_str(&config).map_err(|error| {
            ReportError::Damaged(format!("{} is damaged: {error}", path.join(CONFIG).display()))
        })?;
        let mut metrics = Vec::new();
        for_each_line(&path.join(METRICS_LOG), |line| {
            metrics.push(line.parse()?);
            Ok(ControlFlow::Continue(()))
        })?;
        let name = std::path::absolute(path)
            .ok()
            .and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
        Ok(Self {
            path: path.to_owned(),
            name: name.unwrap_or_else(|| path.display().to_string()),
            settings,
            config,
            manifest: read_json(&path.join(MANIFEST))?.unwrap_or_default(),
            metrics,
            before: read_json(&path.join(EVALUATION_BEFORE))?,
            after: read_json(&path.join(EVALUATION_AFTER))?,
            summary: read_json(&path.join(SUMMARY))?,
        })
    }

    /// Returns the names of the rules of weight 0.
    pub fn watched(&self) -> impl Iterator<Item = &str> {
        let names = self.metrics.first().into_iter().flat_map(|line| line.keys());
        names.filter_map(|name| name.strip_prefix("watched/")?.strip_suffix("/mean"))
    }

    /// Returns the names of the rules that reward the completions.
    #[must_use]
    pub fn rewards(&self) -> RewardNames {
        self.summary
            .as_ref()
            .map_or_else(|| reward_names(&self.settings), |summary| summary.rewards.clone())
    }

    /// Returns a metric as (step, value), for the steps that have it.
    #[must_use]
    pub fn metric(&self, name: &str) -> Vec<(u64, f64)> {
        let value = |line: &Map<String, Value>| {
            Some((line.get("step")?.as_f64()? as u64, line.get(name)?.as_f64()?))
        };
        self.metrics.iter().filter_map(value).collect()
    }

    /// Returns the last step with metrics; 1 if there is none.
    #[must_use]
    pub fn last_step(&self) -> usize {
        self.metric("step").last().map_or(1, |(number, _)| *number as usize)
    }

    /// Returns the mean of a metric over all steps; it is 0 in a step that lacks it.
    #[must_use]
    pub fn mean(&self, name: &str) -> f64 {
        let values = self.metric(name);
        values.iter().fold(0.0, |sum, (_, value)| sum + value) / self.metrics.len().max(1) as f64
    }

    /// Calls `each` with every trace and its step, from 1. Only one trace is in memory at a time.
    ///
    /// # Errors
    /// Fails if the traces cannot be read or are malformed.
    pub fn for_each_trace(&self, mut each: impl FnMut(usize, Trace)) -> Result<(), ReportError> {
        for_each_line(&self.path.join(TRACES), |line| {
            let TraceLine { step, trace } = line.parse()?;
            each(step, trace);
            Ok(ControlFlow::Continue(()))
        })
    }

    /// Returns all traces of a step, from 1, in the order of sampling: group after group.
    ///
    /// # Errors
    /// Fails if the run has no such step, or the traces cannot be read or are malformed.
    pub fn traces_of(&self, step: usize) -> Result<Vec<Trace>, ReportError> {
        let path = self.path.join(TRACES);
        let mut traces = Vec::new();
        let mut steps = None;
        for_each_line(&path, |line| {
            let TraceStep { step: current } = line.parse()?;
            let (first, _) = steps.unwrap_or((current, current));
            steps = Some((first, current));
            if current == step {
                let TraceLine { trace, .. } = line.parse()?;
                traces.push(trace);
            }
            // Without traces of the step, the last step is wanted for the message.
            let is_complete = current > step && !traces.is_empty();
            Ok(if is_complete { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        if traces.is_empty() {
            let available = match steps {
                Some((first, last)) => format!("steps {first} to {last}"),
                None => "none yet".to_owned(),
            };
            let path = path.display();
            return Err(ReportError::NotThere(format!(
                "{path} has no step {step}: it has {available}"
            )));
        }
        Ok(traces)
    }
}

#[derive(Deserialize)]
struct TraceLine {
    step: usize,
    trace: Trace,
}

/// The step of a line of traces. Skipping the trace is much faster than parsing it.
#[derive(Deserialize)]
struct TraceStep {
    step: usize,
}

/// A complete line of a log.
struct LogLine<'a> {
    path: &'a Path,
    /// Number of the line, from 1.
    number: usize,
    text: &'a [u8],
}

impl LogLine<'_> {
    fn parse<T: DeserializeOwned>(&self) -> Result<T, ReportError> {
        serde_json::from_slice(self.text).map_err(|error| {
            let path = self.path.display();
            ReportError::Damaged(format!("{path}:{} is damaged: {error}", self.number))
        })
    }
}

/// Calls `each` with the lines of a file until it breaks; with none if the file does not exist. A
/// last line without a line break is ignored: it is still being written, or the run was killed.
fn for_each_line(
    path: &Path,
    mut each: impl FnMut(LogLine<'_>) -> Result<ControlFlow<()>, ReportError>,
) -> Result<(), ReportError> {
    let failed = |source| ReportError::Io { action: "read", path: path.to_owned(), source };
    let file = match File::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        opened => opened.map_err(failed)?,
    };
    let mut lines = BufReader::with_capacity(1 << 20, file);
    let mut text = Vec::new();
    let mut number = 0;
    loop {
        text.clear();
        number += 1;
        lines.read_until(b'\n', &mut text).map_err(failed)?;
        if !text.ends_with(b"\n") || each(LogLine { path, number, text: &text })?.is_break() {
            return Ok(());
        }
    }
}

/// Returns the first run of a comparison's folder, whose runs are in `ARM/seed-N`.
fn first_run_of_comparison(folder: &Path) -> Option<PathBuf> {
    let mut runs = Vec::new();
    for arm in fs::read_dir(folder).ok()?.flatten() {
        for run in fs::read_dir(arm.path()).into_iter().flatten().flatten() {
            if run.path().join(MANIFEST).is_file() {
                runs.push(run.path());
            }
        }
    }
    runs.into_iter().min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{run_folder, trace};

    #[test]
    fn unfinished_run_with_torn_trace_is_readable() {
        let folder = run_folder(3, |step| vec![trace("q", "A.", step as f64)]);
        let traces = folder.path().join(TRACES);
        let text = fs::read_to_string(&traces).unwrap();
        fs::write(&traces, &text[..text.len() - 9]).unwrap();
        let run = LoadedRun::open(folder.path()).unwrap();
        assert!(run.summary.is_none() && run.metrics.len() == 3);
        let mut steps = Vec::new();
        run.for_each_trace(|step, trace| steps.push((step, trace.mean_return))).unwrap();
        assert_eq!(steps, [(1, 1.0), (2, 2.0)]);
        assert_eq!(run.traces_of(2).unwrap()[0].mean_return, 2.0);
        let message = run.traces_of(3).unwrap_err().to_string();
        assert!(message.ends_with("has no step 3: it has steps 1 to 2"), "{message}");
    }

    #[test]
    fn error_of_missing_step_names_all_steps() {
        let folder = run_folder(3, |step| vec![trace("q", "A.", step as f64)]);
        let run = LoadedRun::open(folder.path()).unwrap();
        let message = run.traces_of(0).unwrap_err().to_string();
        assert!(message.ends_with("has no step 0: it has steps 1 to 3"), "{message}");
    }

    #[test]
    fn missing_or_damaged_run_file_is_named() {
        let folder = run_folder(2, |_| vec![trace("q", "A.", 0.0)]);
        let message = |name: &str, text: &str| {
            let whole = fs::read(folder.path().join(name)).unwrap_or_default();
            fs::write(folder.path().join(name), text).unwrap();
            let opened =
                LoadedRun::open(folder.path()).and_then(|run| run.for_each_trace(|_, _| ()));
            fs::write(folder.path().join(name), whole).unwrap();
            opened.unwrap_err().to_string()
        };
        for (name, text, place) in [
            (CONFIG, "run = 7", "config.toml is damaged"),
            (MANIFEST, "{", "manifest.json is damaged"),
            (METRICS_LOG, "{}\n{\n", "metrics.jsonl:2 is damaged"),
            (TRACES, "{}\n", "traces.jsonl:1 is damaged"),
        ] {
            let message = message(name, text);
            assert!(message.contains(place), "{message}");
        }
        fs::remove_file(folder.path().join(MANIFEST)).unwrap();
        let message = LoadedRun::open(folder.path()).unwrap_err().to_string();
        assert!(message.ends_with("holds no run: it has no manifest.json"), "{message}");
    }

    #[test]
    fn reward_names_come_from_config_before_summary() {
        let settings = "run = { seed = 7, steps = 2 }\nrule.plugin = [\"a/first.wasm:0.7\", \"min.wasm\"]\njudge.plugin = \"token-f1.wasm\"";
        let names = reward_names(&toml::from_str(settings).unwrap());
        assert_eq!((names.rule.as_str(), names.weights.as_slice()), ("first+min", &[0.7, 1.0][..]));
        assert_eq!(
            (names.judge.as_str(), names.format.as_str()),
            ("token-f1", "think-then-answer")
        );
    }
}
