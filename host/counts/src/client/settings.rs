//! How to deal with a server.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The section `corpus.remote` of a configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RemoteSettings {
    /// Requests under way at the same time.
    pub connections: usize,
    /// Requests begun per second; 0 sets no limit. Ten is polite towards a public server.
    pub requests_per_second: f64,
    /// Seconds that one attempt may take: longer than our server takes at most, so that its answer is heard.
    pub timeout_s: f64,
    /// Seconds that a query is tried again and again, before the error that stops the run. Waiting for its turn among
    /// `requests_per_second` is not counted.
    pub patience_s: f64,
    /// Whether answers are kept on disk, for ever, by server, index, query and options.
    pub cache: bool,
    /// A file with the bearer token that the server asks for. Not set: what the environment variable `CORVER_TOKEN` holds, if
    /// anything.
    pub token_file: Option<PathBuf>,
}

impl Default for RemoteSettings {
    fn default() -> Self {
        Self {
            connections: 8,
            requests_per_second: 0.0,
            timeout_s: 60.0,
            patience_s: 180.0,
            cache: true,
            token_file: None,
        }
    }
}

impl RemoteSettings {
    /// The first setting with a value that cannot work, with what it may be.
    pub(super) fn problem(&self) -> Option<(&'static str, &'static str)> {
        let seconds = |value: f64| Duration::try_from_secs_f64(value).is_ok_and(|value| !value.is_zero());
        let checks = [
            (self.connections > 0, "connections", "at least 1"),
            (
                self.requests_per_second.is_finite() && self.requests_per_second >= 0.0,
                "requests_per_second",
                "0 or more",
            ),
            (seconds(self.timeout_s), "timeout_s", "more than 0 seconds"),
            (seconds(self.patience_s), "patience_s", "more than 0 seconds"),
        ];
        checks.into_iter().find(|(good, ..)| !good).map(|(_, setting, expected)| (setting, expected))
    }
}
