//! Counts written down as they are asked for, and answered again without an index.
//!
//! A recording has one [`Count`] per line. It holds full counts, whatever a query said was `enough`, so that it also
//! answers a rule whose thresholds have changed since.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use corver_core::{Count, Counter, PartError, Query};

/// Why counts cannot be recorded, or a recording not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// There is one already, which is not overwritten.
    #[error("the recording {} exists already: delete it, or take its counts with --replay", path.display())]
    Exists {
        /// Which file.
        path: PathBuf,
    },
    /// The recording cannot be created or written.
    #[error("cannot write the recording {}: {source}", path.display())]
    Write {
        /// Which file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The recording cannot be read.
    #[error("cannot read the recording {}: {source}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A line is no count.
    #[error(
        "{}:{line}: {source}; a line is {{\"query\": {{\"all_of\": [[WORD, …], …]}}, \"occurrences\", \"exact\"}}",
        path.display()
    )]
    Line {
        /// Which file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// Two lines answer one query differently.
    #[error("{}:{line}: the query {query:?} was answered differently before", path.display())]
    Conflict {
        /// Which file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// The query.
        query: String,
    },
    /// A query that was not asked when the recording was made.
    #[error("the recording {} does not hold the query {query:?}: record it with --record against an index", path.display())]
    NotHeld {
        /// Which file.
        path: PathBuf,
        /// The query.
        query: String,
    },
}

/// Passes queries on to another counter and writes each answer down once.
pub struct Recorder<C> {
    inner: C,
    path: PathBuf,
    file: BufWriter<File>,
    written: HashSet<Query>,
}

impl<C> Recorder<C> {
    /// Records to a new file.
    ///
    /// # Errors
    /// Where the file exists already or cannot be created.
    pub fn create(path: &Path, inner: C) -> Result<Self, RecordingError> {
        let path = path.to_owned();
        let file = match File::create_new(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Err(RecordingError::Exists { path }),
            Err(source) => return Err(RecordingError::Write { path, source }),
        };
        Ok(Self { inner, path, file: BufWriter::new(file), written: HashSet::new() })
    }

    fn write(&mut self, counts: &[Count]) -> std::io::Result<()> {
        for count in counts {
            if self.written.insert(count.query.clone()) {
                serde_json::to_writer(&mut self.file, count)?;
                self.file.write_all(b"\n")?;
            }
        }
        self.file.flush()
    }
}

impl<C: Counter> Counter for Recorder<C> {
    fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, PartError> {
        let all: Vec<Query> = queries.iter().map(in_full).collect();
        let found = self.inner.count(&all)?;
        let counts: Vec<Count> = all.into_iter().zip(found).map(|(query, count)| Count { query, ..count }).collect();
        self.write(&counts).map_err(|source| RecordingError::Write { path: self.path.clone(), source })?;
        Ok(counts)
    }
}

/// A recording holds whole counts: they serve whatever is enough.
fn in_full(query: &Query) -> Query {
    query.clone().with_enough(None)
}

/// Answers from a recording, and from nothing else.
#[derive(Debug)]
pub struct Recording {
    path: PathBuf,
    counts: HashMap<Query, Count>,
}

impl Recording {
    /// Reads a recording.
    ///
    /// # Errors
    /// Where the file cannot be read, a line is no count, or two lines contradict each other.
    pub fn open(path: &Path) -> Result<Self, RecordingError> {
        let read = |source| RecordingError::Read { path: path.to_owned(), source };
        let mut counts = HashMap::new();
        for (number, text) in BufReader::new(File::open(path).map_err(read)?).lines().enumerate() {
            let text = text.map_err(read)?;
            let at = |source| RecordingError::Line { path: path.to_owned(), line: number + 1, source };
            let count: Count = serde_json::from_str(&text).map_err(at)?;
            let query = count.query.to_string();
            if counts.insert(in_full(&count.query), count.clone()).is_some_and(|before| before != count) {
                return Err(RecordingError::Conflict { path: path.to_owned(), line: number + 1, query });
            }
        }
        Ok(Self { path: path.to_owned(), counts })
    }
}

impl Counter for Recording {
    fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, PartError> {
        let answer = |query: &Query| {
            let held = self.counts.get(&in_full(query)).cloned();
            held.ok_or_else(|| RecordingError::NotHeld { path: self.path.clone(), query: query.to_string() }.into())
        };
        queries.iter().map(answer).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts letters, up to `enough`.
    struct Letters;

    impl Counter for Letters {
        fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, PartError> {
            let count = |query: &Query| {
                let letters = query.to_string().len() as u64;
                let occurrences = letters.min(query.enough.unwrap_or(u64::MAX));
                Count { query: query.clone(), occurrences: Some(occurrences), exact: occurrences == letters }
            };
            Ok(queries.iter().map(count).collect())
        }
    }

    fn query(word: &str, enough: Option<u64>) -> Query {
        Query::new([[word]]).with_enough(enough)
    }

    #[test]
    fn what_was_asked_is_answered_again_in_full() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("counts.jsonl");
        let mut recorder = Recorder::create(&path, Letters).unwrap();
        for enough in [Some(2), Some(3)] {
            assert_eq!(recorder.count(&[query("Paris", enough)]).unwrap()[0].occurrences, Some(5));
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 1);

        let mut recording = Recording::open(&path).unwrap();
        let counts = recording.count(&[query("Paris", Some(4)), query("Paris", None)]).unwrap();
        assert_eq!(counts.iter().map(|count| count.occurrences).collect::<Vec<_>>(), [Some(5), Some(5)]);
        let error = recording.count(&[query("Rome", None)]).unwrap_err().to_string();
        assert!(error.contains("does not hold the query \"Rome\"") && error.contains("--record"), "{error}");
        assert!(matches!(Recorder::create(&path, Letters), Err(RecordingError::Exists { .. })), "never overwritten");
    }

    #[test]
    fn a_bad_recording_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("counts.jsonl");
        let line = |count: u64| format!(r#"{{"query":{{"all_of":[["Rome"]]}},"occurrences":{count},"exact":true}}"#);
        let open = |text: &str| {
            std::fs::write(&path, text).unwrap();
            Recording::open(&path).map(|_| ()).unwrap_err()
        };
        assert!(matches!(open(&format!("{}\n{{}}\n", line(1))), RecordingError::Line { line: 2, .. }));
        assert!(matches!(open(&format!("{}\n{}\n", line(1), line(2))), RecordingError::Conflict { line: 2, .. }));
    }
}
