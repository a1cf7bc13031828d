//! Answers kept on disk, one file of JSON lines per server and index.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Mutex;

use corver_core::CorpusSize;
use corver_corpus::{CnfCount, CnfOptions, Mode};
use corver_http::Lines;
use serde::{Deserialize, Serialize};

use super::RemoteError;

/// What an answer depends on, the server and its index aside.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Key {
    query: String,
    max_clause_freq: u64,
    max_diff_tokens: u64,
    exact: bool,
}

impl Key {
    fn new(query: &str, options: &CnfOptions) -> Self {
        let CnfOptions { max_clause_freq, max_diff_tokens, mode } = *options;
        Self { query: query.to_owned(), max_clause_freq, max_diff_tokens, exact: mode == Mode::Exact }
    }
}

/// One line of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Line {
    Count {
        #[serde(flatten)]
        key: Key,
        count: u64,
        approx: bool,
        sampled: bool,
    },
    Size {
        corpus: CorpusSize,
    },
}

#[derive(Debug)]
pub(super) struct Cache {
    lines: Lines,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    counts: HashMap<Key, CnfCount>,
    size: Option<CorpusSize>,
}

impl Known {
    fn learn(&mut self, line: Line) {
        match line {
            Line::Count { key, count, approx, sampled } => {
                self.counts.insert(key, CnfCount { count, approx, sampled, at_least: false });
            }
            Line::Size { corpus } => self.size = Some(corpus),
        }
    }
}

impl Cache {
    /// Opens the file of a server's index in `dir`, which is created if need be.
    pub(super) fn open(dir: &Path, url: &str, index: &str) -> Result<Self, RemoteError> {
        let path = dir.join(file_name(url, index));
        let failed = |action| {
            let path = path.clone();
            move |source| RemoteError::Cache { action, path, source }
        };
        std::fs::create_dir_all(dir).map_err(failed("create"))?;
        let mut known = Known::default();
        let lines = Lines::open(&path, |line| known.learn(line)).map_err(failed("open"))?;
        Ok(Self { lines, known: Mutex::new(known) })
    }

    pub(super) fn count(&self, query: &str, options: &CnfOptions) -> Option<CnfCount> {
        self.lock().counts.get(&Key::new(query, options)).copied()
    }

    pub(super) fn put_count(&self, query: &str, options: &CnfOptions, count: CnfCount) -> Result<(), RemoteError> {
        let CnfCount { count, approx, sampled, .. } = count;
        self.put(Line::Count { key: Key::new(query, options), count, approx, sampled })
    }

    pub(super) fn size(&self) -> Option<CorpusSize> {
        self.lock().size
    }

    pub(super) fn put_size(&self, corpus: CorpusSize) -> Result<(), RemoteError> {
        self.put(Line::Size { corpus })
    }

    fn put(&self, line: Line) -> Result<(), RemoteError> {
        self.lines.append(&line).map_err(|source| RemoteError::Cache {
            action: "append to",
            path: self.lines.path().to_owned(),
            source,
        })?;
        self.lock().learn(line);
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
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
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: (&str, &str) = ("http://host/", "wiki");

    fn open(dir: &Path) -> Cache {
        Cache::open(dir, SERVER.0, SERVER.1).unwrap()
    }

    #[test]
    fn answers_outlive_the_process_and_depend_on_everything_asked() {
        let folder = tempfile::tempdir().unwrap();
        let (query, options) = ("red AND fox", CnfOptions::default());
        let about = CnfCount { count: 9, approx: true, sampled: true, at_least: false };
        let size = CorpusSize { tokens: Some(7), documents: None };
        let cache = open(folder.path());
        assert_eq!(cache.size(), None);
        cache.put_count(query, &options, about).unwrap();
        cache.put_size(size).unwrap();
        let cache = open(folder.path());
        assert_eq!((cache.count(query, &options), cache.size()), (Some(about), Some(size)));
        assert_eq!(cache.count("red AND hen", &options), None);
        for other in [
            CnfOptions { max_clause_freq: 7, ..options },
            CnfOptions { max_diff_tokens: 7, ..options },
            CnfOptions { mode: Mode::Exact, ..options },
        ] {
            assert_eq!(cache.count(query, &other), None);
        }
        for (url, index) in [("http://other/", "wiki"), ("http://host/", "wiki2")] {
            assert_eq!(Cache::open(folder.path(), url, index).unwrap().count(query, &options), None);
        }
    }
}
