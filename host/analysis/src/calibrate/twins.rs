//! Calibration without labels: facts of a corpus, and false twins of them.
//!
//! A twin is a fact whose tail is exchanged for that of another fact, of the same kind, if possible of
//! the same relation, and about as frequent, so that the two differ in truth and not in the frequency of
//! their words. A fact is counted without the document that states it.

use std::collections::BTreeMap;

use rand::SeedableRng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use corver_core::Triplet;

use super::annotated::Annotated;
use super::bucket::CountBuckets;
use super::label::TruthLabel;
use super::ranking::{Auc, RewardedSentence, auc};
use super::sheet::SheetRow;
use super::table::{Calibration, TableError, calibrate};

/// Lower bounds of the buckets after the first, fine enough for a corpus of any size:
/// [`suggest`](super::suggest::suggest)
/// merges neighbours that do not differ.
pub const EDGES: [u64; 14] = [1, 2, 3, 5, 8, 13, 20, 35, 60, 100, 200, 500, 1_000, 5_000];

/// Number of facts, above and below in the order of the tails' frequency, that a tail is taken from.
const NEIGHBOURS: usize = 5;

/// Facts of a relation from which their tails are exchanged among each other.
const MIN_OF_RELATION: usize = 4 * NEIGHBOURS;

/// Kind of a tail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TailKind {
    /// A year from 1000 to 2099.
    Year,
    /// Any other text with a digit and without a capital letter.
    Number,
    /// A text with a capital letter.
    Name,
    /// A text without capital letters and digits.
    Other,
}

impl TailKind {
    const ALL: [Self; 4] = [Self::Year, Self::Number, Self::Name, Self::Other];

    /// Returns the kind of a tail.
    #[must_use]
    pub fn of(tail: &str) -> Self {
        let is_year =
            tail.len() == 4 && tail.parse().is_ok_and(|year: u32| (1000..2100).contains(&year));
        if is_year {
            Self::Year
        } else if tail.chars().any(char::is_uppercase) {
            Self::Name
        } else if tail.chars().any(char::is_numeric) {
            Self::Number
        } else {
            Self::Other
        }
    }
}

/// Fact that a document states.
#[derive(Debug, Clone, PartialEq)]
pub struct CorpusFact {
    /// Number of the document. Facts of one document are not independent.
    pub document: u64,
    /// Title of the document; empty if it has none.
    pub title: String,
    /// Sentence that states the fact.
    pub sentence: String,
    /// Head, relation and tail of the fact.
    pub triplet: Triplet,
    /// Query of the rule for the fact.
    pub query: String,
    /// Number of matches in other documents.
    pub count: u64,
    /// Number of occurrences of the tail's words.
    pub tail_count: u64,
}

/// Fact with another tail, not yet counted.
#[derive(Debug, Clone, PartialEq)]
pub struct Twin {
    /// Index of the fact.
    pub fact: usize,
    /// Sentence of the fact with the other tail.
    pub sentence: String,
    /// The fact with the other tail.
    pub triplet: Triplet,
}

/// Returns a twin of every fact for which there is a tail of its kind and frequency that shares no
/// word with it. `seed` determines the choice.
#[must_use]
pub fn make_twins(facts: &[CorpusFact], seed: u64) -> Vec<Twin> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut twins = Vec::new();
    for mut alike in groups(facts) {
        alike.sort_by_key(|&number| (facts[number].tail_count, number));
        for (rank, &number) in alike.iter().enumerate() {
            let from = rank.saturating_sub(NEIGHBOURS);
            let to = (rank + NEIGHBOURS + 1).min(alike.len());
            let fact = &facts[number];
            let mut others: Vec<&str> = Vec::new();
            for &other in &alike[from..to] {
                let tail = facts[other].triplet.tail.as_str();
                if is_distinct(fact, tail) {
                    others.push(tail);
                }
            }
            if let Some(&tail) = others.choose(&mut rng) {
                twins.push(with_tail(fact, number, tail));
            }
        }
    }
    twins.sort_by_key(|twin| twin.fact);
    twins
}

/// Returns the indices of facts whose tails are of one kind: of each frequent relation, and of all other
/// relations together.
fn groups(facts: &[CorpusFact]) -> Vec<Vec<usize>> {
    let mut by_relation: BTreeMap<(TailKind, &str), Vec<usize>> = BTreeMap::new();
    for (number, fact) in facts.iter().enumerate() {
        let key = (TailKind::of(&fact.triplet.tail), fact.triplet.relation.as_str());
        by_relation.entry(key).or_default().push(number);
    }
    let mut groups = Vec::new();
    let mut rare: BTreeMap<TailKind, Vec<usize>> = BTreeMap::new();
    for ((kind, _), numbers) in by_relation {
        if numbers.len() >= MIN_OF_RELATION {
            groups.push(numbers);
        } else {
            rare.entry(kind).or_default().extend(numbers);
        }
    }
    groups.extend(rare.into_values());
    groups
}

/// True if a tail has no word in common with the sentence of a fact.
fn is_distinct(fact: &CorpusFact, tail: &str) -> bool {
    let words = |text: &str| {
        let separated = text.to_lowercase();
        let words = separated.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
        words.map(str::to_owned).collect::<Vec<String>>()
    };
    let mut known = words(&fact.sentence);
    known.extend(words(&fact.title));
    known.extend(words(&fact.triplet.head));
    words(tail).iter().all(|word| !known.contains(word))
}

fn with_tail(fact: &CorpusFact, number: usize, tail: &str) -> Twin {
    let sentence = fact.sentence.replacen(&fact.triplet.tail, tail, 1);
    Twin {
        fact: number,
        sentence,
        triplet: Triplet { tail: tail.to_owned(), ..fact.triplet.clone() },
    }
}

/// Counts of a fact and of its twin.
#[derive(Debug, Clone, PartialEq)]
pub struct TwinPair {
    /// The fact, counted in other documents.
    pub fact: CorpusFact,
    /// Same fact with another tail.
    pub twin: Twin,
    /// Query of the rule for the twin.
    pub twin_query: String,
    /// Number of matches of the twin.
    pub twin_count: u64,
}

/// Relation of counts to truth for one kind of tail.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KindAuc {
    /// Kind of the tail.
    pub kind: TailKind,
    /// Number of pairs of a fact and its twin.
    pub pairs: usize,
    /// Probability that a fact has a higher count than a twin.
    pub auc: Auc,
}

/// Calibration of counts against facts and their twins.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CorpusCalibration {
    /// Share of facts among facts and twins, by count.
    #[serde(flatten)]
    pub calibration: Calibration,
    /// Probability that a fact has a higher count than a twin. `None` without pairs.
    pub auc: Option<Auc>,
    /// AUC of each kind of tail that has pairs.
    pub by_kind: Vec<KindAuc>,
    /// Number of pairs of a fact and its twin.
    pub pairs: usize,
}

/// Calibrates counts on pairs of a fact and its twin, clustered by document. `seed` determines the
/// draws of the bootstrap.
///
/// # Errors
/// If there are no pairs.
pub fn calibrate_pairs(pairs: &[TwinPair], seed: u64) -> Result<CorpusCalibration, TableError> {
    let rows = sheet_rows(pairs);
    let calibration = calibrate(&Annotated { rows, ..Annotated::default() })?;
    let all: Vec<&TwinPair> = pairs.iter().collect();
    let mut by_kind = Vec::new();
    for kind in TailKind::ALL {
        let of_kind: Vec<&TwinPair> =
            pairs.iter().filter(|pair| TailKind::of(&pair.fact.triplet.tail) == kind).collect();
        if let Some(auc) = auc_of_counts(&of_kind, seed) {
            by_kind.push(KindAuc { kind, pairs: of_kind.len(), auc });
        }
    }
    Ok(CorpusCalibration {
        calibration,
        auc: auc_of_counts(&all, seed),
        by_kind,
        pairs: pairs.len(),
    })
}

fn auc_of_counts(pairs: &[&TwinPair], seed: u64) -> Option<Auc> {
    // Only the order of the counts matters, and ranks are exact in an f32.
    let mut counts: Vec<u64> =
        pairs.iter().flat_map(|pair| [pair.fact.count, pair.twin_count]).collect();
    counts.sort_unstable();
    counts.dedup();
    let rank = |count: u64| counts.partition_point(|&other| other < count) as f32;
    let mut documents: Vec<u64> = pairs.iter().map(|pair| pair.fact.document).collect();
    documents.sort_unstable();
    documents.dedup();
    let mut outcomes = Vec::with_capacity(2 * pairs.len());
    for pair in pairs {
        let question = documents.partition_point(|&other| other < pair.fact.document);
        for (count, is_true) in [(pair.fact.count, true), (pair.twin_count, false)] {
            outcomes.push(RewardedSentence { question, reward: rank(count), is_true });
        }
    }
    auc(&outcomes, seed)
}

/// Returns a labelled row of a sheet for each fact and each twin. Its question names the document,
/// so that [`calibrate`] clusters by document.
#[must_use]
pub fn sheet_rows(pairs: &[TwinPair]) -> Vec<SheetRow> {
    let buckets = CountBuckets::new(&EDGES).expect("the edges ascend");
    let ranges: Vec<_> = buckets.iter().collect();
    let mut rows = Vec::with_capacity(2 * pairs.len());
    for (number, pair) in pairs.iter().enumerate() {
        let TwinPair { fact, twin, twin_query, twin_count } = pair;
        let row = |kind: &str, label, count, sentence: &str, triplet: &Triplet, query: &str| {
            let bucket = ranges.iter().rfind(|range| count >= range.from);
            SheetRow {
                id: format!("{kind}-{number}"),
                bucket: *bucket.expect("the first bucket begins at 0"),
                count,
                question: document_name(fact),
                sentence: sentence.to_owned(),
                triplet: triplet.clone(),
                query: query.to_owned(),
                label: Some(label),
                note: String::new(),
            }
        };
        let (correct, incorrect) = (TruthLabel::Correct, TruthLabel::Incorrect);
        rows.push(row("fact", correct, fact.count, &fact.sentence, &fact.triplet, &fact.query));
        rows.push(row("twin", incorrect, *twin_count, &twin.sentence, &twin.triplet, twin_query));
    }
    rows
}

/// Returns the title of a fact's document with its number: documents may have the same title, or
/// none.
fn document_name(fact: &CorpusFact) -> String {
    format!("{} (document {})", fact.title, fact.document).trim_start().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fact(document: u64, head: &str, tail: &str, tail_count: u64) -> CorpusFact {
        CorpusFact {
            document,
            title: head.to_owned(),
            sentence: format!("{head} is from {tail}."),
            triplet: Triplet { head: head.into(), relation: "is from".into(), tail: tail.into() },
            query: format!("{head} AND {tail}"),
            count: 0,
            tail_count,
        }
    }

    #[test]
    fn kinds_of_tails_are_recognised() {
        let kinds =
            ["1954", "3,500", "12 May 1954", "the Alps", "a river", "2954"].map(TailKind::of);
        use TailKind::{Name, Number, Other, Year};
        assert_eq!(kinds, [Year, Number, Name, Name, Other, Number]);
    }

    #[test]
    fn twin_has_tail_of_like_kind_and_frequency() {
        let mut facts = Vec::new();
        for n in 0..100_u32 {
            facts.push(fact(n.into(), &format!("Person{n}"), &format!("Town{n}"), u64::from(n)));
            let year = (1900 + n).to_string();
            facts.push(fact(n.into(), &format!("Film{n}"), &year, u64::from(n)));
        }
        let found = make_twins(&facts, 1);
        assert_eq!(found.len(), facts.len());
        for twin in &found {
            let fact = &facts[twin.fact];
            let other = facts.iter().find(|other| other.triplet.tail == twin.triplet.tail).unwrap();
            assert_ne!(other.triplet.tail, fact.triplet.tail);
            assert_eq!(TailKind::of(&other.triplet.tail), TailKind::of(&fact.triplet.tail));
            assert!(other.tail_count.abs_diff(fact.tail_count) <= NEIGHBOURS as u64);
            assert_eq!(
                twin.sentence,
                format!("{} is from {}.", fact.triplet.head, twin.triplet.tail)
            );
        }
        assert_eq!(make_twins(&facts, 1), found);
        assert_ne!(make_twins(&facts, 2), found);
    }

    #[test]
    fn twin_of_frequent_relation_has_its_tails() {
        let mut facts = Vec::new();
        for n in 0..60 {
            let mut one = fact(n, &format!("Person{n}"), &format!("Town{n}"), 5);
            if n % 2 == 0 {
                one = fact(n, &format!("Person{n}"), &format!("Club{n}"), 5);
                one.triplet.relation = "plays for".to_owned();
            }
            facts.push(one);
        }
        let start = |text: &str| text.chars().take(4).collect::<String>();
        for twin in make_twins(&facts, 1) {
            assert_eq!(start(&twin.triplet.tail), start(&facts[twin.fact].triplet.tail));
        }
    }

    #[test]
    fn tail_that_the_sentence_mentions_makes_no_twin() {
        let mut facts = vec![fact(0, "Ada", "Rome", 5), fact(1, "Bob", "New Rome", 5)];
        assert_eq!(make_twins(&facts, 1), []);
        facts.push(fact(2, "Rome", "Oslo", 5));
        let tails: Vec<String> =
            make_twins(&facts, 1).into_iter().map(|twin| twin.triplet.tail).collect();
        assert_eq!(tails, ["Oslo", "Oslo"], "Rome itself gets no tail with its own name");
    }

    #[test]
    fn separated_counts_have_auc_of_one() {
        let mut pairs = Vec::new();
        for n in 0..60 {
            let fact = CorpusFact { count: 20 + n, ..fact(n, "Ada", "Rome", 5) };
            let twin = with_tail(&fact, n as usize, "Oslo");
            pairs.push(TwinPair {
                fact,
                twin,
                twin_query: "Ada AND Oslo".into(),
                twin_count: n % 3,
            });
        }
        let found = calibrate_pairs(&pairs, 1).unwrap();
        assert_eq!((found.pairs, found.auc.unwrap().value), (60, 1.0));
        assert_eq!(found.by_kind.len(), 1);
        let shares: Vec<f64> =
            found.calibration.buckets.iter().map(|bucket| bucket.share.share).collect();
        assert_eq!((shares.first(), shares.last()), (Some(&0.0), Some(&1.0)));
    }

    /// Each of ten documents states 20 facts. In five of the documents they all have a higher count
    /// than their twins, in the others a lower one.
    #[test]
    fn facts_of_one_document_are_not_independent() {
        let mut pairs = Vec::new();
        for n in 0..200 {
            let count = n / 20 % 2;
            let fact = CorpusFact { count, ..fact(n / 20, "Ada", "Rome", 5) };
            let twin = with_tail(&fact, n as usize, "Oslo");
            let twin_query = "Ada AND Oslo".to_owned();
            pairs.push(TwinPair { fact, twin, twin_query, twin_count: 1 - count });
        }
        let found = calibrate_pairs(&pairs, 1).unwrap();
        assert_eq!(found.calibration.buckets.len(), 2);
        for bucket in &found.calibration.buckets {
            let share = bucket.share;
            assert_eq!((share.n, share.correct), (200, 100));
            assert!((share.effective - 9.0).abs() < 1e-9, "{share:?}");
        }
    }
}
