//! Answers kept on disk, one file of JSON lines per server and index.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Mutex;

use corver_corpus::CnfOptions;
use corver_http::Lines;
use serde::{Deserialize, Serialize};

use super::RemoteError;
use crate::wire::Counted;

/// One line of the file: what was asked of the index, and the answer.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    query: String,
    options: CnfOptions,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    enough: Option<u64>,
    #[serde(flatten)]
    counted: Counted,
}

/// What the server's index answers with certain options.
#[derive(Debug)]
pub(super) struct Cache {
    lines: Lines,
    options: CnfOptions,
    /// By query, and what is enough.
    known: Mutex<HashMap<(String, Option<u64>), Counted>>,
}

impl Cache {
    /// Opens the file of a server's index in `dir`, which is created if need be.
    pub(super) fn open(
        dir: &Path,
        url: &str,
        index: &str,
        options: CnfOptions,
    ) -> Result<Self, RemoteError> {
        let path = dir.join(file_name(url, index));
        let failed = |action| {
            let path = path.clone();
            move |source| RemoteError::Io { action, path, source }
        };
        std::fs::create_dir_all(dir).map_err(failed("create"))?;
        let mut known = HashMap::new();
        let learn = |line: Line| {
            if line.options == options {
                known.insert((line.query, line.enough), line.counted);
            }
        };
        let lines = Lines::open(&path, learn).map_err(failed("open"))?;
        Ok(Self { lines, options, known: Mutex::new(known) })
    }

    pub(super) fn get(&self, query: &str, enough: Option<u64>) -> Option<Counted> {
        self.lock().get(&(query.to_owned(), enough)).copied()
    }

    pub(super) fn put(
        &self,
        query: &str,
        enough: Option<u64>,
        counted: Counted,
    ) -> Result<(), RemoteError> {
        let line = Line { query: query.to_owned(), options: self.options, enough, counted };
        self.lines.append(&line).map_err(|source| RemoteError::Io {
            action: "append to",
            path: self.lines.path().to_owned(),
            source,
        })?;
        self.lock().insert((line.query, enough), counted);
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<(String, Option<u64>), Counted>> {
        self.known.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) // answers are inserted whole
    }
}

/// The index's name for people, and a hash of server and index.
fn file_name(url: &str, index: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' || c == '-' { c } else { '_' };
    let readable: String = index.chars().map(plain).take(64).collect();
    format!("{readable}-{:016x}.jsonl", fnv1a(format!("{url}#{index}").as_bytes()))
}

/// Tells a handful of servers apart.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    })
}

#[cfg(test)]
mod tests {
    use corver_corpus::Mode;

    use super::*;

    #[test]
    fn count_cache_survives_restart_and_keys_every_option() {
        let folder = tempfile::tempdir().unwrap();
        let open = |url, index, options| Cache::open(folder.path(), url, index, options).unwrap();
        let (query, options) = ("red AND fox", CnfOptions::default());
        let counted = Counted { count: 9, approx: true, exact: false };
        open("http://host/", "wiki", options).put(query, None, counted).unwrap();
        let cache = open("http://host/", "wiki", options);
        assert_eq!(cache.get(query, None), Some(counted));
        assert_eq!((cache.get("red AND hen", None), cache.get(query, Some(9))), (None, None));
        for (url, index, options) in [
            ("http://other/", "wiki", options),
            ("http://host/", "wiki2", options),
            ("http://host/", "wiki", CnfOptions { max_clause_freq: 7, ..options }),
            ("http://host/", "wiki", CnfOptions { max_diff_tokens: 7, ..options }),
            ("http://host/", "wiki", CnfOptions { mode: Mode::Exact, ..options }),
            ("http://host/", "wiki", CnfOptions { mode: Mode::Span, ..options }),
        ] {
            assert_eq!(open(url, index, options).get(query, None), None);
        }
    }
}
