//! Draws sentences to label, by the count of their entities (paper, App. calibration).

use std::collections::HashSet;
use std::io::BufRead;
use std::path::{Path, PathBuf};

use corver_core::{SentenceTrace, SentenceVerdict};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use serde::de::Error as _;
use serde::{Deserialize, Serialize};

use super::bucket::{CountBucket, CountBuckets, Placement};
use super::sheet::{SheetRow, sentence_id};
use corver_runs::folder::TRACES;

/// Error of drawing sentences.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DrawError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
    /// The file has another form, or no sentence with a count.
    #[error("{0}")]
    InvalidInput(String),
    /// The numbers of sentences are not as many as the buckets.
    #[error(
        "there are {got} numbers of sentences for {buckets} buckets; give one for all, or one for \
         each"
    )]
    Numbers {
        /// Length of the list of numbers.
        got: usize,
        /// Number of buckets to draw from.
        buckets: usize,
    },
}

/// Line with a trace in the field `trace` (`traces.jsonl`), or a line that is itself one (answers, and
/// the output of `score`).
#[derive(Deserialize)]
struct SentenceLine {
    trace: Option<ScoredText>,
    question: Option<String>,
    #[serde(default)]
    sentences: Vec<SentenceTrace>,
}

#[derive(Deserialize)]
struct ScoredText {
    question: String,
    sentences: Vec<SentenceTrace>,
}

impl SentenceLine {
    fn into_scored(self) -> Result<ScoredText, serde_json::Error> {
        match self {
            Self { trace: Some(trace), .. } => Ok(trace),
            Self { question: Some(question), sentences, .. } => {
                Ok(ScoredText { question, sentences })
            }
            Self { question: None, .. } => Err(serde_json::Error::missing_field("question")),
        }
    }
}

/// Sentences that can be drawn, each text once.
#[derive(Debug)]
pub struct SentencePool {
    buckets: CountBuckets,
    by_bucket: Vec<Vec<SheetRow>>,
    seen: HashSet<String>,
    left_out: LeftOut,
}

/// Numbers of sentences that are not in the pool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// Sentences whose text is already in the pool.
    pub repeated: usize,
    /// Sentences whose verdict has no count.
    pub uncounted: usize,
    /// Sentences whose counting stopped before the last bucket, so that their bucket is unknown.
    pub truncated: usize,
}

/// Numbers of a draw from one bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct DrawnBucket {
    /// Range of counts of the bucket.
    #[serde(flatten)]
    pub bucket: CountBucket,
    /// Number of sentences requested.
    pub wanted: usize,
    /// Number of sentences in the pool.
    pub available: usize,
    /// Number of sentences drawn.
    pub drawn: usize,
}

/// Result of a draw.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Drawn {
    /// Rows in random order, so that a labeller does not see one bucket after the other.
    #[serde(skip)]
    pub rows: Vec<SheetRow>,
    /// Numbers of each bucket, lowest counts first.
    pub buckets: Vec<DrawnBucket>,
    /// Sentences that could not be drawn.
    pub left_out: LeftOut,
}

impl SentencePool {
    /// Creates an empty pool.
    #[must_use]
    pub fn new(buckets: CountBuckets) -> Self {
        let by_bucket = vec![Vec::new(); buckets.number()];
        Self { buckets, by_bucket, seen: HashSet::new(), left_out: LeftOut::default() }
    }

    /// Adds the sentences of a run's folder or of a file.
    ///
    /// # Errors
    /// If a file cannot be read, a line has another form, or no sentence has a count.
    pub fn add(&mut self, path: &Path) -> Result<(), DrawError> {
        let file = if path.is_dir() { path.join(TRACES) } else { path.to_owned() };
        let io_error = |source| DrawError::Io { path: file.clone(), source };
        let mut reader = corver_files::open_text(&file).map_err(io_error)?;
        let mut line_number = 0;
        let mut num_counted = 0;
        let mut text = String::new();
        while reader.read_line(&mut text).map_err(io_error)? > 0 {
            line_number += 1;
            let scored = match serde_json::from_str(&text).and_then(SentenceLine::into_scored) {
                // The last line is incomplete: a run is writing it, or was killed.
                Err(error) if error.is_eof() && !text.ends_with('\n') => break,
                result => result.map_err(|error| {
                    DrawError::InvalidInput(format!(
                        "{}:{line_number}: {error}; sentences are drawn from a run's folder, its \
                         traces.jsonl or answers_*.jsonl, and what `eval --supported --out` writes",
                        file.display()
                    ))
                })?,
            };
            for sentence in scored.sentences {
                num_counted += usize::from(sentence.is_counted());
                self.add_sentence(&scored.question, sentence);
            }
            text.clear();
        }
        if num_counted == 0 {
            return Err(DrawError::InvalidInput(format!(
                "{} has no sentence with a count; `eval` counts with --supported",
                file.display()
            )));
        }
        Ok(())
    }

    fn add_sentence(&mut self, question: &str, sentence: SentenceTrace) {
        let verdict = sentence.verdict.unwrap_or_default();
        let index = match self.buckets.classify(&verdict) {
            Placement::In(index) => index,
            Placement::Truncated => return self.left_out.truncated += 1,
            Placement::Uncounted => return self.left_out.uncounted += 1,
        };
        let triplet = verdict.triplet.and_then(|n| sentence.triplets.get(n as usize));
        let (Some(triplet), Some(count)) = (triplet, verdict.count) else {
            return self.left_out.uncounted += 1;
        };
        if !self.seen.insert(sentence.text.clone()) {
            return self.left_out.repeated += 1;
        }
        let row = SheetRow {
            id: sentence_id(&sentence.text),
            bucket: self.buckets.iter().nth(index).expect("the index is a bucket's"),
            count,
            question: question.to_owned(),
            triplet: triplet.clone(),
            query: query(&verdict),
            sentence: sentence.text,
            label: None,
            note: String::new(),
        };
        self.by_bucket[index].push(row);
    }

    /// Draws `per_bucket` sentences from each bucket, or all if there are fewer. `per_bucket` is one
    /// number for all, or one for each.
    ///
    /// # Errors
    /// If `per_bucket` has neither one number nor as many as buckets.
    pub fn draw(self, per_bucket: &[usize], seed: u64) -> Result<Drawn, DrawError> {
        let number = self.by_bucket.len();
        let wanted_rows = match per_bucket {
            [all] => vec![*all; number],
            each if each.len() == number => each.to_vec(),
            other => return Err(DrawError::Numbers { got: other.len(), buckets: number }),
        };
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut rows = Vec::new();
        let mut buckets = Vec::new();
        let pools = self.buckets.iter().zip(self.by_bucket);
        for ((bucket, mut pool), wanted) in pools.zip(wanted_rows) {
            let available = pool.len();
            pool.shuffle(&mut rng);
            pool.truncate(wanted);
            buckets.push(DrawnBucket { bucket, wanted, available, drawn: pool.len() });
            rows.extend(pool);
        }
        rows.shuffle(&mut rng);
        Ok(Drawn { rows, buckets, left_out: self.left_out })
    }
}

/// Returns the query whose count decided the verdict.
fn query(verdict: &SentenceVerdict) -> String {
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

    fn sentence(text: &str, verdict: Option<SentenceVerdict>) -> SentenceTrace {
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
        let mut pool = SentencePool::new(CountBuckets::default());
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
                .all(|row| row.bucket.contains(row.count) && row.query == "Rome AND Italy")
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
            sentence("b", Some(SentenceVerdict::default())),
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
        assert_eq!(drawn.left_out, LeftOut { repeated: 0, uncounted: 2, truncated: 1 });
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
        assert!(error.contains(" has no sentence with a count; "), "{error}");
        let folder = tempfile::tempdir().unwrap();
        let error = SentencePool::new(CountBuckets::default()).add(folder.path()).unwrap_err();
        assert!(error.to_string().contains("traces.jsonl"), "{error}");
    }
}
