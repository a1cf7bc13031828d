//! What is wrong with settings, all of it at once.

use std::fmt::Display;
use std::path::Path;

use anyhow::Result;

/// Settings, and what is wrong with each.
#[derive(Debug, Default)]
pub struct Problems(Vec<(&'static str, String)>);

impl std::error::Error for Problems {}

impl Display for Problems {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.lines().collect::<Vec<_>>().join("; "))
    }
}

impl Problems {
    /// One line for each.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|(key, problem)| format!("`{key}`: {problem}"))
    }

    pub(super) fn add(&mut self, key: &'static str, problem: impl Display) {
        self.0.push((key, problem.to_string()));
    }

    /// Adds the problem unless the setting has one already.
    pub(super) fn add_first(&mut self, key: &'static str, problem: impl Display) {
        if self.0.iter().all(|(known, _)| *known != key) {
            self.add(key, problem);
        }
    }

    /// The value, or its error among the problems.
    pub(super) fn take<T, E: Display>(&mut self, key: &'static str, value: Result<T, E>) -> Option<T> {
        value.map_err(|error| self.add(key, format!("{error:#}"))).ok()
    }

    pub(super) fn look_for(&mut self, key: &'static str, path: &Path) {
        if !path.exists() {
            self.add(key, format!("there is no {}", path.display()));
        }
    }

    pub(super) fn none(self) -> Result<()> {
        if self.0.is_empty() { Ok(()) } else { Err(self.into()) }
    }
}
