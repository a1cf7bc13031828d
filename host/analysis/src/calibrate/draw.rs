//! Sentences to label, drawn by how often their entities occur together (paper, App. calibration).

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use corver_core::{SentenceTrace, Verdict};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use serde::de::Error as _;
use serde::{Deserialize, Serialize};

use super::bucket::{Bucket, Buckets, Place};
use super::sheet::Row;
use corver_runs::folder::TRACES;

/// Why no sentences can be drawn.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DrawError {
    /// A file that cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
    /// A file without sentences that a count decided.
    #[error("{0}")]
    InvalidInput(String),
    /// Numbers of sentences that are not as many as the buckets.
    #[error(
        "there are {got} numbers of sentences for {buckets} buckets; give one for all, or one for each"
    )]
    Numbers {
        /// Number of numbers that were given.
        got: usize,
        /// Number of buckets.
        buckets: usize,
    },
}

/// A line of `traces.jsonl` holds a trace; a line of answers, and of what `score` prints, is one.
#[derive(Deserialize)]
struct Line {
    trace: Option<Scored>,
    question: Option<String>,
    #[serde(default)]
    sentences: Vec<SentenceTrace>,
}

#[derive(Deserialize)]
struct Scored {
    question: String,
    sentences: Vec<SentenceTrace>,
}

impl Line {
    fn scored(self) -> Result<Scored, serde_json::Error> {
        match self {
            Self { trace: Some(trace), .. } => Ok(trace),
            Self { question: Some(question), sentences, .. } => Ok(Scored { question, sentences }),
            Self { question: None, .. } => Err(serde_json::Error::missing_field("question")),
        }
    }
}

/// All sentences that may be drawn, each text once.
#[derive(Debug)]
pub struct Pool {
    buckets: Buckets,
    by_bucket: Vec<Vec<Row>>,
    seen: HashSet<String>,
    left_out: LeftOut,
}

/// Sentences that are not in the pool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// Those that are in it already.
    pub repeated: usize,
    /// Those that no count decided.
    pub uncounted: usize,
    /// Those whose counting was stopped before the last bucket: their bucket is not known.
    pub cut_short: usize,
}

/// One bucket's part of a draw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct DrawnBucket {
    /// Which counts.
    #[serde(flatten)]
    pub bucket: Bucket,
    /// How many were asked for.
    pub wanted: usize,
    /// How many there are.
    pub available: usize,
    /// How many were drawn.
    pub drawn: usize,
}

/// What was drawn.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Drawn {
    /// In random order, so that who labels them does not go from bucket to bucket.
    #[serde(skip)]
    pub rows: Vec<Row>,
    /// Lowest counts first.
    pub buckets: Vec<DrawnBucket>,
    /// What could not be drawn.
    pub left_out: LeftOut,
}

impl Pool {
    /// An empty one.
    #[must_use]
    pub fn new(buckets: Buckets) -> Self {
        let by_bucket = vec![Vec::new(); buckets.number()];
        Self { buckets, by_bucket, seen: HashSet::new(), left_out: LeftOut::default() }
    }

    /// Adds the sentences of a run's folder or of a file.
    ///
    /// # Errors
    /// A file that cannot be read, a line of another form, or nothing that was counted.
    pub fn add(&mut self, path: &Path) -> Result<(), DrawError> {
        let path = if path.is_dir() { path.join(TRACES) } else { path.to_owned() };
        let read = |source| DrawError::Io { path: path.clone(), source };
        let mut lines = BufReader::new(File::open(&path).map_err(read)?);
        let (mut number, mut counted, mut text) = (0, 0, String::new());
        loop {
            text.clear();
            if lines.read_line(&mut text).map_err(read)? == 0 {
                break;
            }
            number += 1;
            let scored = match serde_json::from_str(&text).and_then(Line::scored) {
                // A run is writing it, or was killed while it did.
                Err(error) if error.is_eof() && !text.ends_with('\n') => break,
                scored => scored.map_err(|error| {
                    DrawError::InvalidInput(format!(
                        "{}:{number}: {error}; sentences are drawn from a run's folder, its \
                         traces.jsonl or answers_*.jsonl, and what `eval --supported --out` writes",
                        path.display()
                    ))
                })?,
            };
            for sentence in scored.sentences {
                counted += usize::from(sentence.is_counted());
                self.add_sentence(&scored.question, sentence);
            }
        }
        if counted == 0 {
            return Err(DrawError::InvalidInput(format!(
                "{} holds no sentence that a count decided; `eval` counts with --supported",
                path.display()
            )));
        }
        Ok(())
    }

    fn add_sentence(&mut self, question: &str, sentence: SentenceTrace) {
        let verdict = sentence.verdict.unwrap_or_default();
        let place = match self.buckets.place(&verdict) {
            Place::In(place) => place,
            Place::CutShort => return self.left_out.cut_short += 1,
            Place::Uncounted => return self.left_out.uncounted += 1,
        };
        let triplet = verdict.triplet.and_then(|n| sentence.triplets.get(n as usize));
        let (Some(triplet), Some(count)) = (triplet, verdict.count) else {
            return self.left_out.uncounted += 1;
        };
        if !self.seen.insert(sentence.text.clone()) {
            return self.left_out.repeated += 1;
        }
        let row = Row {
            id: id(&sentence.text),
            bucket: self.buckets.iter().nth(place).expect("a place is a bucket's"),
            count,
            question: question.to_owned(),
            triplet: triplet.clone(),
            query: query(&verdict),
            sentence: sentence.text,
            label: None,
            note: String::new(),
        };
        self.by_bucket[place].push(row);
    }

    /// Draws as many sentences from each bucket as `per_bucket` says, one number for all or one for
    /// each, or all that are there.
    ///
    /// # Errors
    /// Where there are neither one number nor as many as buckets.
    pub fn draw(self, per_bucket: &[usize], seed: u64) -> Result<Drawn, DrawError> {
        let number = self.by_bucket.len();
        let wanted_rows = match per_bucket {
            [all] => vec![*all; number],
            each if each.len() == number => each.to_vec(),
            other => return Err(DrawError::Numbers { got: other.len(), buckets: number }),
        };
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let (mut rows, mut buckets) = (Vec::new(), Vec::new());
        for ((bucket, mut own_rows), wanted) in
            self.buckets.iter().zip(self.by_bucket).zip(wanted_rows)
        {
            let available = own_rows.len();
            own_rows.shuffle(&mut rng);
            own_rows.truncate(wanted);
            buckets.push(DrawnBucket { bucket, wanted, available, drawn: own_rows.len() });
            rows.extend(own_rows);
        }
        rows.shuffle(&mut rng);
        Ok(Drawn { rows, buckets, left_out: self.left_out })
    }
}

/// The same for the same sentence in any sheet. The letter keeps spreadsheets from reading a
/// number.
fn id(sentence: &str) -> String {
    format!("s{}", &blake3::hash(sentence.as_bytes()).to_hex()[..12])
}

/// The words whose count decided.
fn query(verdict: &Verdict) -> String {
    let decided = verdict.lookups.iter().find(|lookup| lookup.count.occurrences == verdict.count);
    decided.map_or_else(String::new, |lookup| lookup.query.to_string())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use corver_core::{Section, Triplet};
    use serde_json::json;

    use super::super::bucket::tests::counted;
    use super::*;

    fn sentence(text: &str, verdict: Option<Verdict>) -> SentenceTrace {
        let triplet =
            Triplet { head: "Rome".into(), relation: "is in".into(), tail: "Italy".into() };
        SentenceTrace {
            text: text.into(),
            section: Section::Body,
            triplets: vec![triplet],
            verdict,
            tokens: None,
        }
    }

    fn file(lines: &[String]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(lines.concat().as_bytes()).unwrap();
        file
    }

    /// `number` sentences of each count.
    fn traces(counts: &[u64], number: usize) -> Vec<String> {
        let line = |n: usize| {
            let sentences: Vec<_> = counts
                .iter()
                .map(|&count| sentence(&format!("{count}-{n}"), Some(counted(count, 20))))
                .collect();
            format!("{}\n", json!({"step": 1, "trace": {"question": "q", "sentences": sentences}}))
        };
        (0..number).map(line).collect()
    }

    fn draw(lines: &[String], per_bucket: &[usize], seed: u64) -> Result<Drawn, DrawError> {
        let mut pool = Pool::new(Buckets::default());
        pool.add(file(lines).path())?;
        pool.draw(per_bucket, seed)
    }

    #[test]
    fn draw_takes_available_sentences_per_bucket() {
        let lines = traces(&[0, 3, 7, 25], 6);
        let drawn = draw(&lines, &[4, 10, 2, 1, 3], 1).unwrap();
        let numbers: Vec<_> =
            drawn.buckets.iter().map(|bucket| (bucket.available, bucket.drawn)).collect();
        assert_eq!(numbers, [(6, 4), (6, 6), (6, 2), (0, 0), (6, 3)]);
        assert_eq!(drawn.rows.len(), 15);
        assert!(
            drawn
                .rows
                .iter()
                .all(|row| row.bucket.holds(row.count) && row.query == "Rome AND Italy")
        );
        assert!(!drawn.rows.is_sorted_by_key(|row| row.count), "one bucket after the other");

        assert_eq!(draw(&lines, &[4, 10, 2, 1, 3], 1).unwrap(), drawn);
        assert_ne!(draw(&lines, &[4, 10, 2, 1, 3], 2).unwrap().rows, drawn.rows);
        assert!(matches!(draw(&lines, &[1, 2], 1), Err(DrawError::Numbers { got: 2, buckets: 5 })));
    }

    #[test]
    fn each_text_is_drawn_once() {
        let lines = [traces(&[0, 3], 2), traces(&[0], 2)].concat();
        let drawn = draw(&lines, &[9], 1).unwrap();
        assert_eq!((drawn.rows.len(), drawn.left_out.repeated), (4, 2));
        let ids: HashSet<&String> = drawn.rows.iter().map(|row| &row.id).collect();
        assert_eq!(ids.len(), 4);
    }

    #[test]
    fn draw_reads_answers_and_score_traces() {
        let sentences = [
            sentence("a", Some(counted(5, 5))),
            sentence("b", Some(Verdict::default())),
            sentence("c", None),
        ];
        let good = sentence("d", Some(counted(1, 5)));
        let lines = [
            format!("{}\n", json!({"grade": "GOOD", "question": "q", "sentences": sentences})),
            format!("{}\n", json!({"grade": "GOOD", "question": "q"})),
            format!("{}\n", json!({"question": "q", "sentences": [good], "mean_return": 1.0})),
            "{\"question\": \"half of a li".to_owned(),
        ];
        let drawn = draw(&lines, &[9], 1).unwrap();
        assert_eq!(drawn.rows.iter().map(|row| &row.sentence).collect::<Vec<_>>(), ["d"]);
        assert_eq!(drawn.left_out, LeftOut { repeated: 0, uncounted: 2, cut_short: 1 });
    }

    #[test]
    fn draw_rejects_unsuitable_files() {
        let error =
            draw(&["{\"step\": 1, \"loss\": 0.1}\n".to_owned()], &[1], 1).unwrap_err().to_string();
        assert!(
            error.contains(":1: missing field `question`; sentences are drawn from"),
            "{error}"
        );
        let uncounted = [format!("{}\n", json!({"question": "q"}))];
        let error = draw(&uncounted, &[1], 1).unwrap_err().to_string();
        assert!(error.contains(" holds no sentence that a count decided; "), "{error}");
        let folder = tempfile::tempdir().unwrap();
        let error = Pool::new(Buckets::default()).add(folder.path()).unwrap_err();
        assert!(error.to_string().contains("traces.jsonl"), "{error}");
    }
}
