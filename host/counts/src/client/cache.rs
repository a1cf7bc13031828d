//! Answers kept on disk, one file of JSON lines per server and index.
//!
//! The file is only ever appended to, whole lines at a time and under a lock, so that several processes may share it. A
//! line that a killed process left unfinished is no JSON object; it is ignored, and the next append closes it.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use corver_core::CorpusSize;
use corver_corpus::{CnfCount, CnfOptions, Mode};
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
    path: PathBuf,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    file: File,
    counts: HashMap<Key, CnfCount>,
    size: Option<CorpusSize>,
}

impl Inner {
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
        let file = File::options().create(true).read(true).append(true).open(&path).map_err(failed("open"))?;
        let mut inner = Inner { file: file.try_clone().map_err(failed("open"))?, counts: HashMap::new(), size: None };
        let mut unreadable = 0_u64;
        for line in BufReader::new(file).split(b'\n') {
            let line = line.map_err(failed("read"))?;
            match serde_json::from_slice(&line) {
                Ok(line) => inner.learn(line),
                Err(_) => unreadable += u64::from(!line.is_empty()),
            }
        }
        tracing::debug!(path = %path.display(), answers = inner.counts.len(), unreadable, "opened a cache of counts");
        Ok(Self { path, inner: Mutex::new(inner) })
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
        let mut bytes = serde_json::to_vec(&line).expect("a line is plain JSON");
        bytes.push(b'\n');
        let mut inner = self.lock();
        append(&inner.file, bytes).map_err(|source| RemoteError::Cache {
            action: "append to",
            path: self.path.clone(),
            source,
        })?;
        inner.learn(line);
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) // answers are inserted whole
    }
}

/// Appends whole lines, after closing one that a killed process left open.
fn append(mut file: &File, mut bytes: Vec<u8>) -> std::io::Result<()> {
    file.lock()?; // other processes wait; in this one the caller's mutex does it
    let result = (|| {
        if file.metadata()?.len() > 0 {
            file.seek(SeekFrom::End(-1))?;
            let mut last = [0];
            file.read_exact(&mut last)?;
            if last != *b"\n" {
                bytes.insert(0, b'\n');
            }
        }
        file.write_all(&bytes)
    })();
    file.unlock()?;
    result
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

    fn put(cache: &Cache, query: &str, count: u64) {
        cache.put_count(query, &CnfOptions::default(), CnfCount { count, ..CnfCount::default() }).unwrap();
    }

    fn get(cache: &Cache, query: &str) -> Option<u64> {
        cache.count(query, &CnfOptions::default()).map(|count| count.count)
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

    #[test]
    fn a_torn_line_is_dropped_wherever_it_was_torn() {
        let folder = tempfile::tempdir().unwrap();
        let cache = open(folder.path());
        put(&cache, "red", 1);
        put(&cache, "fox", 23);
        let whole = std::fs::read(&cache.path).unwrap();
        let first = whole.iter().position(|&byte| byte == b'\n').unwrap() + 1;
        for length in first..whole.len() - 1 {
            std::fs::write(&cache.path, &whole[..length]).unwrap();
            let torn = open(folder.path());
            assert_eq!((get(&torn, "red"), get(&torn, "fox")), (Some(1), None), "{length}");
            put(&torn, "den", 4);
            let fixed = open(folder.path());
            assert_eq!((get(&fixed, "red"), get(&fixed, "den")), (Some(1), Some(4)), "{length}");
        }
    }

    #[test]
    fn writers_at_the_same_time_lose_nothing() {
        let folder = tempfile::tempdir().unwrap();
        // Two open files are what two processes have.
        let writers = [open(folder.path()), open(folder.path())];
        std::thread::scope(|scope| {
            for (writer, cache) in writers.iter().enumerate() {
                for thread in 0..2 {
                    scope.spawn(move || (0..200).for_each(|n| put(cache, &format!("{writer} {thread} {n}"), n)));
                }
            }
        });
        let all = open(folder.path());
        assert_eq!(all.lock().counts.len(), 800);
        assert_eq!(get(&all, "1 1 199"), Some(199));
    }
}
