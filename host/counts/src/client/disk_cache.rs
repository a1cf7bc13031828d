//! The on-disk cache of counts: one file of JSON lines for each server and index.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use corver_corpus::CnfOptions;
use corver_http::JsonLines;
use serde::{Deserialize, Serialize};

use super::RemoteError;
use crate::wire::{CountResult, ServerInfo};

/// A line of the file: a query of the index, and its count.
#[derive(Debug, Serialize, Deserialize)]
struct CacheRecord {
    query: String,
    options: CnfOptions,
    /// Limit of the query; `None` if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    limit: Option<u64>,
    #[serde(flatten)]
    result: CountResult,
}

/// The cached counts of a server's index, for one set of options.
#[derive(Debug)]
pub(super) struct DiskCache {
    lines: JsonLines,
    options: CnfOptions,
    /// Counts by query and limit.
    results: Mutex<HashMap<(String, Option<u64>), CountResult>>,
}

impl DiskCache {
    /// Opens the cache of a server's index in the folder `dir`, which is created if it is missing.
    /// `info` is the server's description; `None` if it has none.
    pub(super) fn open(
        dir: &Path,
        url: &str,
        index: &str,
        info: Option<&ServerInfo>,
        options: CnfOptions,
    ) -> Result<Self, RemoteError> {
        let path = dir.join(file_name(url, index, info));
        std::fs::create_dir_all(dir).map_err(|error| io_error("create", &path, error))?;
        let mut results = HashMap::new();
        let lines = JsonLines::open(&path, |record: CacheRecord| {
            if record.options == options {
                results.insert((record.query, record.limit), record.result);
            }
        })
        .map_err(|error| io_error("open", &path, error))?;
        Ok(Self { lines, options, results: Mutex::new(results) })
    }

    pub(super) fn get(&self, query: &str, limit: Option<u64>) -> Option<CountResult> {
        self.lock().get(&(query.to_owned(), limit)).copied()
    }

    pub(super) fn put(
        &self,
        query: &str,
        limit: Option<u64>,
        result: CountResult,
    ) -> Result<(), RemoteError> {
        let record = CacheRecord { query: query.to_owned(), options: self.options, limit, result };
        self.lines
            .append(&record)
            .map_err(|error| io_error("append to", self.lines.path(), error))?;
        self.lock().insert((record.query, limit), result);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(String, Option<u64>), CountResult>> {
        // Nothing panics between the parts of an insertion, so a poisoned lock is usable.
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn io_error(action: &'static str, path: &Path, source: std::io::Error) -> RemoteError {
    RemoteError::Io { action, path: path.to_owned(), source }
}

/// Returns the file name of an index's cache: the index's name, made portable, and a hash of server
/// and index. What the server describes of the index is hashed too, so a rebuilt index has another
/// file.
fn file_name(url: &str, index: &str, info: Option<&ServerInfo>) -> String {
    let mut readable = String::new();
    for c in index.chars().take(64) {
        let is_portable = c.is_ascii_alphanumeric() || c == '.' || c == '-';
        readable.push(if is_portable { c } else { '_' });
    }
    let key = match info {
        Some(ServerInfo { documents, tokens, tokenizer, part, .. }) => {
            format!("{url}#{index} {documents} {tokens} {tokenizer:?} {part:?}")
        }
        None => format!("{url}#{index}"),
    };
    format!("{readable}-{:016x}.jsonl", fnv1a(key.as_bytes()))
}

/// Returns the FNV-1a hash, which suffices to distinguish a few servers.
fn fnv1a(bytes: &[u8]) -> u64 {
    let mut hash = 0xCBF2_9CE4_8422_2325;
    for &byte in bytes {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
    }
    hash
}

#[cfg(test)]
mod tests {
    use corver_corpus::Mode;

    use corver_core::CountPrecision;

    use super::*;

    #[test]
    fn count_cache_survives_restart_and_keys_every_option() {
        let folder = tempfile::tempdir().unwrap();
        let open = |url, index, options| {
            DiskCache::open(folder.path(), url, index, None, options).unwrap()
        };
        let (query, options) = ("red AND fox", CnfOptions::default());
        let counted = CountResult { count: 9, approx: true, precision: CountPrecision::Estimate };
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
