//! Precision and recall of an extractor on annotated sentences.

use std::collections::HashSet;
use std::hash::Hash;
use std::path::Path;

use corver_core::Triplet;
use serde::{Deserialize, Deserializer, Serialize};

use crate::lines::{self, LinesError, for_each_json_line};
use crate::wilson;

/// A sentence annotated with all facts that it states.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GoldSentence {
    /// Text of the sentence, as the extractor receives it.
    pub sentence: String,
    /// Head, relation and tail of each fact; may be empty. Read from lists of three, or from the
    /// objects that `extract --json` prints.
    #[serde(deserialize_with = "read_triplets")]
    pub triplets: Vec<[String; 3]>,
}

fn read_triplets<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<[String; 3]>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum TripletForm {
        List([String; 3]),
        Object(Triplet),
    }
    let mut triplets = Vec::new();
    for form in Vec::<TripletForm>::deserialize(deserializer)? {
        triplets.push(match form {
            TripletForm::List(list) => list,
            TripletForm::Object(Triplet { head, relation, tail }) => [head, relation, tail],
        });
    }
    Ok(triplets)
}

/// Content of a file of annotated sentences, for messages.
const WHAT: &str = "sentences";
/// Form of a line, for messages.
const FORM: &str = r#"a line is {"sentence": …, "triplets": [[head, relation, tail], …]}"#;

/// Reads a file with one [`GoldSentence`] as JSON per line; empty lines are skipped.
///
/// # Errors
/// Fails if the file cannot be read, or a line has another form.
pub fn read_gold(path: &Path) -> Result<Vec<GoldSentence>, LinesError> {
    let mut sentences = Vec::new();
    let file = lines::open(path, WHAT)?;
    for_each_json_line(file, path, WHAT, FORM, |_, mut gold: GoldSentence| {
        gold.sentence = gold.sentence.trim().to_owned();
        sentences.push(gold);
        Ok(())
    })?;
    Ok(sentences)
}

/// Number of extracted and annotated items, and of those that are both.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct MatchCounts {
    /// Extracted items that are annotated.
    pub right: u64,
    /// Number of extracted items.
    pub found: u64,
    /// Number of annotated items.
    pub gold: u64,
}

impl MatchCounts {
    /// Returns the share of extracted items that are annotated, with Wilson's 95 % interval; 1 if
    /// nothing was extracted.
    #[must_use]
    pub fn precision(&self) -> (f64, (f64, f64)) {
        (share(self.right, self.found), wilson(self.right, self.found))
    }

    /// Returns the share of annotated items that were extracted, with Wilson's 95 % interval; 1 if none
    /// is annotated.
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

fn share(part: u64, total: u64) -> f64 {
    if total == 0 { 1.0 } else { part as f64 / total as f64 }
}

/// Matches between extracted and annotated triplets, without regard to case and outer spaces.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ExtractionQuality {
    /// Matches of head, relation and tail.
    pub triplets: MatchCounts,
    /// Matches of head and tail, the words of a query.
    pub pairs: MatchCounts,
}

/// Compares extracted triplets with annotated ones, sentence by sentence.
#[must_use]
pub fn compare_triplets(gold: &[GoldSentence], found: &[Vec<Triplet>]) -> ExtractionQuality {
    let mut quality = ExtractionQuality::default();
    for (sentence, extracted) in gold.iter().zip(found) {
        let mut gold_triplets = HashSet::new();
        for [head, relation, tail] in &sentence.triplets {
            gold_triplets.insert([head, relation, tail].map(|part| normalized(part)));
        }
        let mut found_triplets = HashSet::new();
        for Triplet { head, relation, tail } in extracted {
            found_triplets.insert([head, relation, tail].map(|part| normalized(part)));
        }
        quality.triplets.add(&found_triplets, &gold_triplets);
        quality.pairs.add(&pairs(&found_triplets), &pairs(&gold_triplets));
    }
    quality
}

/// Returns head and tail of each triplet.
fn pairs(triplets: &HashSet<[String; 3]>) -> HashSet<[&str; 2]> {
    triplets.iter().map(|[head, _, tail]| [head.as_str(), tail]).collect()
}

fn normalized(text: &str) -> String {
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
        assert_eq!(quality.triplets, MatchCounts { right: 1, found: 3, gold: 2 });
        assert_eq!(quality.pairs, MatchCounts { right: 2, found: 3, gold: 2 });
        assert_eq!(quality.pairs.recall().0, 1.0);
        assert!((quality.pairs.precision().0 - 2.0 / 3.0).abs() < 1e-12);
        assert_eq!(MatchCounts::default().precision().0, 1.0);
    }

    #[test]
    fn triplets_are_lists_or_objects() {
        let read = |triplets: &str| {
            let line = format!("{{\"sentence\": \"x\", \"triplets\": [{triplets}]}}");
            serde_json::from_str::<GoldSentence>(&line).map(|gold| gold.triplets)
        };
        let list = read(r#"["a", "r", "b"]"#).unwrap();
        assert_eq!(read(r#"{"head": "a", "relation": "r", "tail": "b"}"#).unwrap(), list);
        assert!(read(r#"["a", "b"]"#).is_err());
        assert!(read(r#"{"head": "a", "tail": "b"}"#).is_err());
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
