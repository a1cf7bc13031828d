//! A run with its statistics, for a report.

use std::collections::BTreeSet;

use crate::ReportError;
use crate::hacks::{Hack, HackCheck, checks};
use crate::run::LoadedRun;
use crate::tally::RunTally;

/// Number of best and of worst completions that are shown.
const SHOWN: usize = 3;

/// A run, with statistics of its traces and checks for hacks.
pub(crate) struct Reported {
    pub run: LoadedRun,
    /// Name of the run; if two have the same, preceded by enough of the path to be distinct.
    pub name: String,
    pub tally: RunTally,
    pub checks: Vec<HackCheck>,
}

impl Reported {
    pub fn of(run: LoadedRun, name: String) -> Result<Self, ReportError> {
        let mut tally = RunTally::default();
        let text = run.settings.reward.text();
        run.for_each_trace(|step, trace| tally.add(step, trace, text, SHOWN))?;
        let checks = checks(&run, &tally);
        Ok(Self { run, name, tally, checks })
    }

    /// Returns the names of the hacks that the run shows.
    pub fn flagged(&self) -> Vec<&'static str> {
        let mut names = Vec::new();
        for check in &self.checks {
            if check.flagged {
                names.push(check.hack.name);
            }
        }
        names
    }

    /// Returns the check for a hack; of several, one that is flagged.
    pub fn check(&self, hack: Hack) -> Option<&HackCheck> {
        let of_hack = self.checks.iter().filter(|check| check.hack == hack);
        of_hack.min_by_key(|check| !check.flagged)
    }
}

/// Returns the names of the folders, with as many parent folders as make all names distinct.
pub(crate) fn distinct_names(runs: &[LoadedRun]) -> Vec<String> {
    let path =
        |run: &LoadedRun| std::path::absolute(&run.path).unwrap_or_else(|_| run.path.clone());
    let parts: Vec<Vec<String>> = runs
        .iter()
        .map(|run| {
            path(run)
                .components()
                .map(|part| part.as_os_str().to_string_lossy().into_owned())
                .collect()
        })
        .collect();
    let names = |deep: usize| -> Vec<String> {
        parts.iter().map(|parts| parts[parts.len().saturating_sub(deep)..].join("/")).collect()
    };
    let deepest = parts.iter().map(Vec::len).max().unwrap_or(1);
    let is_distinct =
        |deep: &usize| names(*deep).iter().collect::<BTreeSet<_>>().len() == runs.len();
    names((1..=deepest).find(is_distinct).unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::run_folder;

    #[test]
    fn flagged_check_of_several_watched_rules_is_shown() {
        let folder = run_folder(8, |_| Vec::new());
        let mut run = LoadedRun::open(folder.path()).unwrap();
        for (step, line) in run.metrics.iter_mut().enumerate() {
            line["rewards/first/mean"] = step.into();
            line.insert("watched/max/mean".to_owned(), step.into());
            line.insert("watched/min/mean".to_owned(), (8 - step).into());
            line.insert("watched/pmi/mean".to_owned(), step.into());
        }
        let reported = Reported::of(run, "run".to_owned()).unwrap();
        let opposed = reported.checks.last().unwrap().hack;
        assert_eq!(reported.flagged(), [opposed.name]);
        let shown = reported.check(opposed).unwrap();
        assert!(shown.flagged && shown.first.contains("min"), "{shown:?}");
    }

    #[test]
    fn equally_named_runs_are_labelled_by_folder() {
        let folder = tempfile::tempdir().unwrap();
        let run = |place: &str| {
            let (made, path) = (run_folder(1, |_| Vec::new()), folder.path().join(place));
            std::fs::create_dir_all(&path).unwrap();
            for file in ["config.toml", "manifest.json", "metrics.jsonl"] {
                std::fs::copy(made.path().join(file), path.join(file)).unwrap();
            }
            LoadedRun::open(&path).unwrap()
        };
        let names = distinct_names(&[run("first/seed-1"), run("min/seed-1"), run("min/seed-2")]);
        assert_eq!(names, ["first/seed-1", "min/seed-1", "min/seed-2"]);
        assert_eq!(distinct_names(&[run("min/seed-1"), run("min/seed-2")]), ["seed-1", "seed-2"]);
    }
}
