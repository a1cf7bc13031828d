//! Problems of a configuration, reported together.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::absolute;

/// Keys of settings, each with its problem.
#[derive(Debug, Default)]
pub struct Problems(Vec<(String, String)>);

impl std::error::Error for Problems {}

impl Display for Problems {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.lines().collect::<Vec<_>>().join("; "))
    }
}

impl Problems {
    /// Returns one line for each problem.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|(key, problem)| format!("`{key}`: {problem}"))
    }

    /// Adds a problem of the setting `key`.
    pub fn add(&mut self, key: &str, problem: impl Display) {
        self.0.push((key.to_owned(), problem.to_string()));
    }

    /// Returns the value of a result, or adds its error as a problem.
    pub fn record<T, E: Display>(&mut self, key: &str, value: Result<T, E>) -> Option<T> {
        match value {
            Ok(value) => Some(value),
            Err(error) => {
                self.add(key, format!("{error:#}"));
                None
            }
        }
    }

    /// Returns the value of a setting that a command needs, or adds a problem if it is not set.
    /// `remedy` is a flag with its value.
    pub fn required<T>(&mut self, key: &str, value: Option<T>, remedy: &str) -> Option<T> {
        if value.is_none() && self.0.iter().all(|(known, _)| known != key) {
            self.add(
                key,
                format!("not set; {remedy} names one (--config demo: the built-in demo)"),
            );
        }
        value
    }

    /// Makes the path of a setting absolute, if it is set.
    pub fn make_absolute(&mut self, key: &str, path: &mut Option<PathBuf>) {
        if let Some(relative) = path
            && let Some(absolute) = self.record(key, absolute(relative))
        {
            *relative = absolute;
        }
    }

    /// Adds a problem if the path does not exist.
    pub fn require_path(&mut self, key: &str, path: &Path) {
        if !path.exists() {
            self.add(key, format!("there is no {}", path.display()));
        }
    }

    /// Returns the parts, or the problems as an error.
    ///
    /// # Errors
    /// If there is a problem.
    pub fn into_result<T>(self, parts: Option<T>) -> Result<T> {
        match parts {
            Some(parts) if self.0.is_empty() => Ok(parts),
            _ => Err(self.into()),
        }
    }
}
