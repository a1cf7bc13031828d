//! Counts written down as they are asked for, and answered again without an index.
//!
//! A recording is a file of JSON lines: how large the corpus is, `{"corpus": {"tokens", "documents"}}`, then one [`Lookup`]
//! a line. It holds whole counts, whatever a query said was `enough`, so that it also answers a rule whose thresholds have
//! changed since. The first line may be left out.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use corver_core::{CorpusSize, Count, Counter, Lookup, PartError, Query};
use serde::{Deserialize, Serialize};

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
    /// A line is no lookup.
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

/// The first line of a recording.
#[derive(Serialize, Deserialize)]
struct Header {
    corpus: CorpusSize,
}

/// A recording holds whole counts: they serve whatever is enough.
fn in_full(query: &Query) -> Query {
    query.clone().with_enough(None)
}

/// Passes queries on to another counter and writes each answer down once.
pub struct Recorder {
    inner: Box<dyn Counter>,
    path: PathBuf,
    file: BufWriter<File>,
    written: HashSet<Query>,
}

impl Recorder {
    /// Records to a new file.
    ///
    /// # Errors
    /// Where the file exists already or cannot be written.
    pub fn create(path: &Path, inner: Box<dyn Counter>) -> Result<Self, RecordingError> {
        let file = File::create_new(path).map_err(|source| match source.kind() {
            ErrorKind::AlreadyExists => RecordingError::Exists { path: path.to_owned() },
            _ => RecordingError::Write { path: path.to_owned(), source },
        })?;
        let header = Header { corpus: inner.size() };
        let mut recorder = Self { inner, path: path.to_owned(), file: BufWriter::new(file), written: HashSet::new() };
        recorder.write([header])?;
        Ok(recorder)
    }

    fn write<T: Serialize>(&mut self, lines: impl IntoIterator<Item = T>) -> Result<(), RecordingError> {
        let write = || -> std::io::Result<()> {
            for line in lines {
                serde_json::to_writer(&mut self.file, &line)?;
                self.file.write_all(b"\n")?;
            }
            self.file.flush()
        };
        write().map_err(|source| RecordingError::Write { path: self.path.clone(), source })
    }
}

impl Counter for Recorder {
    fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, PartError> {
        let all: Vec<Query> = queries.iter().map(in_full).collect();
        let counts = self.inner.count(&all)?;
        let mut new = Vec::new();
        for (query, &count) in all.into_iter().zip(&counts) {
            if self.written.insert(query.clone()) {
                new.push(Lookup { query, count });
            }
        }
        self.write(new)?;
        Ok(counts)
    }

    fn size(&self) -> CorpusSize {
        self.inner.size()
    }
}

/// Answers from a recording, and from nothing else.
#[derive(Debug)]
pub struct Recording {
    path: PathBuf,
    size: CorpusSize,
    counts: HashMap<Query, Count>,
}

impl Recording {
    /// Reads a recording.
    ///
    /// # Errors
    /// Where the file cannot be read, a line is no count, or two lines contradict each other.
    pub fn open(path: &Path) -> Result<Self, RecordingError> {
        let read = |source| RecordingError::Read { path: path.to_owned(), source };
        let mut recording = Self { path: path.to_owned(), size: CorpusSize::default(), counts: HashMap::new() };
        for (line, text) in (1..).zip(BufReader::new(File::open(path).map_err(read)?).lines()) {
            let text = text.map_err(read)?;
            if line == 1
                && let Ok(header) = serde_json::from_str::<Header>(&text)
            {
                recording.size = header.corpus;
                continue;
            }
            let Lookup { query, count } = serde_json::from_str(&text).map_err(|source| RecordingError::Line {
                path: path.to_owned(),
                line,
                source,
            })?;
            let query = query.with_enough(None);
            if *recording.counts.entry(query.clone()).or_insert(count) != count {
                return Err(RecordingError::Conflict { path: path.to_owned(), line, query: query.to_string() });
            }
        }
        Ok(recording)
    }
}

impl Counter for Recording {
    fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, PartError> {
        let answer = |query: &Query| {
            let held = self.counts.get(&in_full(query)).copied();
            held.ok_or_else(|| RecordingError::NotHeld { path: self.path.clone(), query: query.to_string() }.into())
        };
        queries.iter().map(answer).collect()
    }

    fn size(&self) -> CorpusSize {
        self.size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: CorpusSize = CorpusSize { tokens: Some(1_000), documents: None };

    /// Counts letters, up to `enough`.
    struct Letters;

    impl Counter for Letters {
        fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, PartError> {
            let count = |query: &Query| {
                let letters = query.to_string().len() as u64;
                let occurrences = letters.min(query.enough.unwrap_or(u64::MAX));
                Count { occurrences: Some(occurrences), exact: occurrences == letters }
            };
            Ok(queries.iter().map(count).collect())
        }

        fn size(&self) -> CorpusSize {
            SIZE
        }
    }

    fn query(word: &str, enough: Option<u64>) -> Query {
        Query::new([[word]]).with_enough(enough)
    }

    #[test]
    fn what_was_asked_is_answered_again_in_full() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("counts.jsonl");
        let mut recorder = Recorder::create(&path, Box::new(Letters)).unwrap();
        for enough in [Some(2), Some(3)] {
            assert_eq!(recorder.count(&[query("Paris", enough)]).unwrap()[0].occurrences, Some(5));
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 2);

        let mut recording = Recording::open(&path).unwrap();
        assert_eq!(recording.size(), SIZE);
        let counts = recording.count(&[query("Paris", Some(4)), query("Paris", None)]).unwrap();
        assert_eq!(counts.iter().map(|count| count.occurrences).collect::<Vec<_>>(), [Some(5), Some(5)]);
        let error = recording.count(&[query("Rome", None)]).unwrap_err().to_string();
        assert!(error.contains("does not hold the query \"Rome\"") && error.contains("--record"), "{error}");
        assert!(
            matches!(Recorder::create(&path, Box::new(Letters)), Err(RecordingError::Exists { .. })),
            "never overwritten"
        );
    }

    #[test]
    fn a_bad_recording_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("counts.jsonl");
        let header = r#"{"corpus":{"tokens":7,"documents":null}}"#;
        let line = |count: u64| format!(r#"{{"query":{{"all_of":[["Rome"]]}},"occurrences":{count},"exact":true}}"#);
        let open = |text: &str| {
            std::fs::write(&path, text).unwrap();
            Recording::open(&path).map(|recording| recording.size())
        };
        assert_eq!(open(&line(1)).unwrap(), CorpusSize::default(), "written by hand, without a header");
        let open = |text: &str| open(text).unwrap_err();
        assert!(matches!(open(&format!("{}\n{{}}\n", line(1))), RecordingError::Line { line: 2, .. }));
        assert!(matches!(open(&format!("{header}\n{header}\n")), RecordingError::Line { line: 2, .. }));
        assert!(matches!(open(&format!("{}\n{}\n", line(1), line(2))), RecordingError::Conflict { line: 2, .. }));
    }
}
