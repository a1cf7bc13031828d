//! How far an extractor's triplets are those that people found.

use std::collections::HashSet;
use std::fs::File;
use std::hash::Hash;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use corver_core::Triplet;
use serde::{Deserialize, Serialize};

use crate::wilson;

/// A sentence and all the facts that it states.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GoldSentence {
    /// As the extractor sees it.
    pub sentence: String,
    /// May be none.
    pub triplets: Vec<[String; 3]>,
}

/// Why a file of gold sentences cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GoldError {
    /// The file cannot be read.
    #[error("cannot read the sentences {}: {source}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A line is not what it should be.
    #[error("{}:{line}: {source}; a line is {{\"sentence\": …, \"triplets\": [[head, relation, tail], …]}}", path.display())]
    Line {
        /// Which file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

/// Reads JSONL, a [`GoldSentence`] a line; empty lines are skipped.
///
/// # Errors
/// A file that cannot be read, or a line of another form.
pub fn read_gold(path: &Path) -> Result<Vec<GoldSentence>, GoldError> {
    let read = |source| GoldError::Read { path: path.to_owned(), source };
    let mut sentences = Vec::new();
    for (n, line) in BufReader::new(File::open(path).map_err(read)?).lines().enumerate() {
        let line = line.map_err(read)?;
        if !line.trim().is_empty() {
            let wrong = |source| GoldError::Line { path: path.to_owned(), line: n + 1, source };
            sentences.push(serde_json::from_str(&line).map_err(wrong)?);
        }
    }
    Ok(sentences)
}

/// What was found of what is there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Found {
    /// Found, and gold.
    pub right: u64,
    /// Found.
    pub found: u64,
    /// Gold.
    pub gold: u64,
}

impl Found {
    /// Share of what was found that is gold, with Wilson's 95 % interval; 1 where nothing was
    /// found.
    #[must_use]
    pub fn precision(&self) -> (f64, (f64, f64)) {
        (share(self.right, self.found), wilson(self.right, self.found))
    }

    /// Share of the gold that was found, with Wilson's 95 % interval; 1 where there is none.
    #[must_use]
    pub fn recall(&self) -> (f64, (f64, f64)) {
        (share(self.right, self.gold), wilson(self.right, self.gold))
    }

    fn add<T: Eq + Hash>(&mut self, found: &HashSet<T>, gold: &HashSet<T>) {
        self.right += found.intersection(gold).count() as u64;
        self.found += found.len() as u64;
        self.gold += gold.len() as u64;
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 1.0 } else { part as f64 / whole as f64 }
}

/// Found triplets against gold ones, case and outer spaces aside.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ExtractionQuality {
    /// Head, relation and tail.
    pub triplets: Found,
    /// Head and tail: what is counted together.
    pub pairs: Found,
}

/// Compares what was found, sentence by sentence.
#[must_use]
pub fn compare_triplets(gold: &[GoldSentence], found: &[Vec<Triplet>]) -> ExtractionQuality {
    let mut quality = ExtractionQuality::default();
    for (gold_sentence, extracted) in gold.iter().zip(found) {
        let gold_set: HashSet<[String; 3]> = gold_sentence
            .triplets
            .iter()
            .map(|triplet| triplet.each_ref().map(|s| plain(s)))
            .collect();
        let found_set: HashSet<[String; 3]> = extracted
            .iter()
            .map(|triplet| [&triplet.head, &triplet.relation, &triplet.tail].map(|s| plain(s)))
            .collect();
        quality.triplets.add(&found_set, &gold_set);
        let pairs = |all: &HashSet<[String; 3]>| -> HashSet<[String; 2]> {
            all.iter().map(|[head, _, tail]| [head.clone(), tail.clone()]).collect()
        };
        quality.pairs.add(&pairs(&found_set), &pairs(&gold_set));
    }
    quality
}

fn plain(text: &str) -> String {
    text.trim().to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn triplet(head: &str, relation: &str, tail: &str) -> Triplet {
        Triplet { head: head.into(), relation: relation.into(), tail: tail.into() }
    }

    #[test]
    fn pair_quality_ignores_relation() {
        let gold = |triplets: &[[&str; 3]]| GoldSentence {
            sentence: "x".into(),
            triplets: triplets.iter().map(|triplet| triplet.map(str::to_owned)).collect(),
        };
        let gold =
            [gold(&[["Ada", "was born in", "London"], ["Ada", "wrote", "Notes"]]), gold(&[])];
        let found = [
            vec![
                triplet("ada ", "Was born in", "London"),
                triplet("Ada", "is the author of", "Notes"),
            ],
            vec![triplet("a", "b", "c")],
        ];
        let quality = compare_triplets(&gold, &found);
        assert_eq!(quality.triplets, Found { right: 1, found: 3, gold: 2 });
        assert_eq!(quality.pairs, Found { right: 2, found: 3, gold: 2 });
        assert_eq!(quality.pairs.recall().0, 1.0);
        assert!((quality.pairs.precision().0 - 2.0 / 3.0).abs() < 1e-12);
        assert_eq!(Found::default().precision().0, 1.0);
    }

    #[test]
    fn malformed_gold_line_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(
            file.path(),
            "{\"sentence\": \"a\", \"triplets\": []}\n\n{\"sentence\": 1}\n",
        )
        .unwrap();
        let error = read_gold(file.path()).unwrap_err().to_string();
        assert!(error.contains(":3:") && error.contains("triplets"), "{error}");
    }
}
