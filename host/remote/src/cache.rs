//! Answers kept on disk, one file of JSON lines per server and index.
//!
//! The file is only ever appended to, whole lines at a time and under a lock, so that several processes may share it. A
//! line that a killed process left unfinished is no JSON object; it is passed over, and closed by the next one to append.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use corver_corpus::{CnfOptions, Mode, WordCount};
use serde::{Deserialize, Serialize};

use crate::error::RemoteError;

/// What an answer depends on, the server and its index aside.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Key {
    query: String,
    max_clause_freq: u64,
    max_diff_tokens: u64,
    exact: bool,
}

impl Key {
    pub(crate) fn new(query: &str, options: &CnfOptions) -> Self {
        let CnfOptions { max_clause_freq, max_diff_tokens, mode } = *options;
        Self { query: query.to_owned(), max_clause_freq, max_diff_tokens, exact: mode == Mode::Exact }
    }
}

/// One line of the file.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    #[serde(flatten)]
    key: Key,
    count: u64,
    approx: bool,
    sampled: bool,
}

#[derive(Debug)]
pub(crate) struct Cache {
    path: PathBuf,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    file: File,
    known: HashMap<Key, WordCount>,
}

impl Cache {
    /// Opens the file of a server's index in `dir`, which is created if need be.
    pub(crate) fn open(dir: &Path, url: &str, index: &str) -> Result<Self, RemoteError> {
        let path = dir.join(file_name(url, index));
        let failed = |action| {
            let path = path.clone();
            move |source| RemoteError::Cache { action, path, source }
        };
        std::fs::create_dir_all(dir).map_err(failed("create"))?;
        let file = File::options().create(true).read(true).append(true).open(&path).map_err(failed("open"))?;
        let mut known = HashMap::new();
        let mut foreign = 0_u64;
        for line in BufReader::new(&file).split(b'\n') {
            let line = line.map_err(failed("read"))?;
            match serde_json::from_slice::<Line>(&line) {
                Ok(Line { key, count, approx, sampled }) => {
                    known.insert(key, WordCount { count, approx, sampled, at_least: false });
                }
                Err(_) => foreign += u64::from(!line.is_empty()),
            }
        }
        tracing::debug!(path = %path.display(), answers = known.len(), unreadable = foreign, "opened a cache of counts");
        Ok(Self { path, inner: Mutex::new(Inner { file, known }) })
    }

    pub(crate) fn get(&self, key: &Key) -> Option<WordCount> {
        self.lock().known.get(key).copied()
    }

    pub(crate) fn put(&self, key: Key, count: WordCount) -> Result<(), RemoteError> {
        let mut inner = self.lock();
        let line = Line { key, count: count.count, approx: count.approx, sampled: count.sampled };
        let mut bytes = serde_json::to_vec(&line).expect("a line is plain JSON");
        bytes.push(b'\n');
        append(&inner.file, bytes).map_err(|source| RemoteError::Cache {
            action: "append to",
            path: self.path.clone(),
            source,
        })?;
        inner.known.insert(line.key, count);
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) // answers are inserted whole
    }
}

/// Appends whole lines, after closing one that somebody else left open.
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

/// Names server and index for people, and says them exactly for the machine.
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

    fn key(query: &str) -> Key {
        Key::new(query, &CnfOptions::default())
    }

    fn count(count: u64) -> WordCount {
        WordCount { count, ..WordCount::default() }
    }

    #[test]
    fn answers_outlive_the_process_and_depend_on_everything_asked() {
        let folder = tempfile::tempdir().unwrap();
        let about = WordCount { count: 9, approx: true, sampled: true, at_least: false };
        open(folder.path()).put(key("red AND fox"), about).unwrap();
        let cache = open(folder.path());
        assert_eq!(cache.get(&key("red AND fox")), Some(about));
        assert_eq!(cache.get(&key("red AND hen")), None);
        for other in [
            CnfOptions { max_clause_freq: 7, ..CnfOptions::default() },
            CnfOptions { max_diff_tokens: 7, ..CnfOptions::default() },
            CnfOptions { mode: Mode::Exact, ..CnfOptions::default() },
        ] {
            assert_eq!(cache.get(&Key::new("red AND fox", &other)), None);
        }
        for (url, index) in [("http://other/", "wiki"), ("http://host/", "wiki2")] {
            assert_eq!(Cache::open(folder.path(), url, index).unwrap().get(&key("red AND fox")), None);
        }
    }

    #[test]
    fn a_torn_line_is_dropped_wherever_it_was_torn() {
        let folder = tempfile::tempdir().unwrap();
        let cache = open(folder.path());
        cache.put(key("red"), count(1)).unwrap();
        cache.put(key("fox"), count(23)).unwrap();
        let whole = std::fs::read(&cache.path).unwrap();
        let first = whole.iter().position(|&byte| byte == b'\n').unwrap() + 1;
        for length in first..whole.len() - 1 {
            std::fs::write(&cache.path, &whole[..length]).unwrap();
            let torn = open(folder.path());
            assert_eq!((torn.get(&key("red")), torn.get(&key("fox"))), (Some(count(1)), None), "{length}");
            torn.put(key("den"), count(4)).unwrap();
            let mended = open(folder.path());
            assert_eq!(
                (mended.get(&key("red")), mended.get(&key("den"))),
                (Some(count(1)), Some(count(4))),
                "{length}"
            );
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
                    scope.spawn(move || {
                        for number in 0..200 {
                            cache.put(key(&format!("{writer} {thread} {number}")), count(number)).unwrap();
                        }
                    });
                }
            }
        });
        let all = open(folder.path());
        assert_eq!(all.lock().known.len(), 800);
        assert_eq!(all.get(&key("1 1 199")), Some(count(199)));
    }
}
