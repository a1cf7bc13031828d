//! P(correct) by count, and whether it rises.

use std::collections::BTreeMap;

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, Normal};

use super::annotated::Annotated;
use super::bucket::Bucket;
use super::label::{Agreement, Label};
use corver_eval::wilson_of;

/// What chance makes less often than this is taken for more than chance.
pub const LEVEL: f64 = 0.05;

/// A share, and how sure it is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Share {
    /// All of them.
    pub n: u64,
    /// Those that are correct.
    pub correct: u64,
    /// Correct ones of all.
    pub share: f64,
    /// As many independent sentences would say as much; those of one question are alike.
    pub effective: f64,
    /// Lower end of Wilson's 95 % interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Share {
    /// Of independent sentences; `None` of nothing.
    #[must_use]
    pub fn of(correct: u64, n: u64) -> Option<Self> {
        (n > 0).then(|| Self::new(correct, n, n as f64))
    }

    /// Of sentences, each with the number of its question; `None` of nothing. The variance is that
    /// of the questions' sums, and Wilson's interval that of as many independent sentences as have
    /// this variance (Korn and Graubard 1998).
    #[must_use]
    pub fn of_questions(sentences: impl IntoIterator<Item = (usize, bool)>) -> Option<Self> {
        let mut questions: BTreeMap<usize, (u64, u64)> = BTreeMap::new();
        for (question, is_correct) in sentences {
            let (correct, n) = questions.entry(question).or_default();
            *correct += u64::from(is_correct);
            *n += 1;
        }
        let (correct, n) =
            questions.values().fold((0, 0), |sum, own| (sum.0 + own.0, sum.1 + own.1));
        let (share, clusters) = (correct as f64 / n as f64, questions.len() as f64);
        let squares: f64 = questions
            .values()
            .map(|&(own_correct, own_n)| (own_correct as f64 - share * own_n as f64).powi(2))
            .sum();
        let variance = squares / (n as f64).powi(2) * clusters / (clusters - 1.0);
        let of_one = share * (1.0 - share);
        // Where all are alike, or of one question, no variance can be seen.
        let effective = if of_one > 0.0 && clusters > 1.0 {
            (of_one / variance).min(n as f64)
        } else {
            clusters
        };
        (n > 0).then(|| Self::new(correct, n, effective))
    }

    fn new(correct: u64, n: u64, effective: f64) -> Self {
        let share = correct as f64 / n as f64;
        let (low, high) = wilson_of(share, effective);
        Self { n, correct, share, effective, low, high }
    }
}

/// What a reliability plot draws.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Point {
    /// Its place on the axis.
    pub label: String,
    /// Its height.
    #[serde(flatten)]
    pub share: Share,
}

/// One bucket's sentences.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct BucketShare {
    /// Their counts.
    #[serde(flatten)]
    pub bucket: Bucket,
    /// How many are correct.
    #[serde(flatten)]
    pub share: Share,
}

impl BucketShare {
    /// For a plot, where there is little room.
    #[must_use]
    pub fn point(&self) -> Point {
        let Bucket { from, to } = self.bucket;
        let label = match to {
            None => format!("{from}+"),
            Some(to) if to == from => from.to_string(),
            Some(to) => format!("{from}–{to}"),
        };
        Point { label, share: self.share }
    }
}

/// The Cochran–Armitage test: do the shares rise with the bucket's rank by more than chance? Of two
/// buckets it is the test of two proportions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Trend {
    /// Standard normal where nothing rises or falls; positive where the shares rise.
    pub z: f64,
    /// Two-sided.
    pub p: f64,
}

impl Trend {
    /// Of shares in order; `None` where nothing can rise: of one share, and where all are correct
    /// or none is.
    #[must_use]
    pub fn of(shares: &[Share]) -> Option<Self> {
        let sum = |of: &dyn Fn(f64, &Share) -> f64| -> f64 {
            shares.iter().enumerate().map(|(rank, share)| of(rank as f64, share)).sum()
        };
        let n = sum(&|_, share| share.effective);
        let mean = sum(&|_, share| share.share * share.effective) / n;
        let rise = sum(&|rank, share| rank * share.effective * (share.share - mean));
        let mean_rank = sum(&|rank, share| rank * share.effective) / n;
        let spread = sum(&|rank, share| share.effective * (rank - mean_rank).powi(2));
        let variance = mean * (1.0 - mean) * spread;
        (variance > 0.0).then(|| {
            let z = rise / variance.sqrt();
            Self { z, p: (2.0 * Normal::standard().sf(z.abs())).min(1.0) }
        })
    }
}

/// Whether shares rise from bucket to bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// None has a smaller share than the one before.
    Kept,
    /// Some have, by no more than chance.
    Unclear,
    /// Some have, by more than chance.
    Broken,
}

/// What the labels say of the counts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Calibration {
    /// Buckets with a sentence that is correct or incorrect, lowest counts first.
    pub buckets: Vec<BucketShare>,
    /// Whether the shares rise from bucket to bucket.
    pub order: Order,
    /// `None` where nothing can rise.
    pub trend: Option<Trend>,
    /// Sentences that nobody can judge; they are in no bucket.
    pub unclear: u64,
    /// Sentences without a label.
    pub unlabelled: u64,
    /// Sentences whose label a model gave, or one of the labels.
    pub by_model: u64,
    /// Where several people labelled the same sentences.
    pub agreement: Option<Agreement>,
}

impl Calibration {
    /// Whether the shares rise with the count, in a sentence.
    #[must_use]
    pub fn summary(&self) -> String {
        let Some(Trend { z, p }) = self.trend else {
            return "nothing can rise: there is one bucket alone, or one label".to_owned();
        };
        let direction = if z < 0.0 { "fall" } else { "rise" };
        let chance = if p < LEVEL { "by more than" } else { "by no more than" };
        let p = match p {
            p if p < 1e-99 => "p < 1e-99".to_owned(),
            p if p < 1e-3 => format!("p = {p:.1e}"),
            p => format!("p = {p:.3}"),
        };
        let order = match self.order {
            Order::Kept => "no bucket has a smaller share than the one before",
            Order::Unclear => {
                "some have a smaller share than the one before, by no more than chance"
            }
            Order::Broken => "some have a smaller share than the one before, by more than chance",
        };
        format!(
            "the shares {direction} with the count {chance} chance (Cochran–Armitage, {p}); {order}"
        )
    }
}

/// Why there is no table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// No label says anything.
    #[error(
        "none of the {sentences} sentences is labelled correct or incorrect; write one of the two into the column `label`"
    )]
    NoLabels {
        /// All of the sheets.
        sentences: usize,
    },
    /// Buckets of different draws.
    #[error(
        "the buckets {one} and {other} overlap; read sheets together that were drawn with the same buckets"
    )]
    Overlap {
        /// The lower one.
        one: Bucket,
        /// The higher one.
        other: Bucket,
    },
}

/// Counts the labels by bucket.
///
/// # Errors
/// Where no label says anything, or buckets overlap.
pub fn calibrate(annotated: &Annotated) -> Result<Calibration, TableError> {
    let rows = &annotated.rows;
    let mut all: Vec<Bucket> = rows.iter().map(|row| row.bucket).collect();
    all.sort_unstable();
    all.dedup();
    if let Some(pair) = all.windows(2).find(|pair| pair[0].holds(pair[1].from)) {
        return Err(TableError::Overlap { one: pair[0], other: pair[1] });
    }
    let number = |bucket: Option<Bucket>, label: Option<Label>| {
        rows.iter()
            .filter(|row| row.label == label && bucket.is_none_or(|bucket| row.bucket == bucket))
            .count() as u64
    };
    let share = |bucket: Bucket| {
        let [correct, incorrect] =
            [Label::Correct, Label::Incorrect].map(|label| number(Some(bucket), Some(label)));
        Share::of(correct, correct + incorrect).map(|share| BucketShare { bucket, share })
    };
    let buckets: Vec<BucketShare> = all.into_iter().filter_map(share).collect();
    if buckets.is_empty() {
        return Err(TableError::NoLabels { sentences: rows.len() });
    }
    Ok(Calibration {
        order: order(&buckets),
        trend: trend(&buckets),
        buckets,
        unclear: number(None, Some(Label::Unclear)),
        unlabelled: number(None, None),
        by_model: annotated.by_model,
        agreement: annotated.agreement,
    })
}

/// Whether the shares rise from bucket to bucket.
#[must_use]
pub fn order(buckets: &[BucketShare]) -> Order {
    let falls = buckets.windows(2).filter(|pair| pair[1].share.share < pair[0].share.share);
    let by_more_than_chance =
        |pair: &[BucketShare]| trend(pair).is_some_and(|trend| trend.p < LEVEL);
    falls
        .map(by_more_than_chance)
        .map(|more| if more { Order::Broken } else { Order::Unclear })
        .max()
        .unwrap_or(Order::Kept)
}

/// See [`Trend`].
#[must_use]
pub fn trend(buckets: &[BucketShare]) -> Option<Trend> {
    Trend::of(&buckets.iter().map(|bucket| bucket.share).collect::<Vec<_>>())
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::sheet::{Row, tests::row};
    use super::*;

    /// A sheet with so many correct sentences of all, by count.
    pub fn annotated(table: &[(u64, u64, u64)]) -> Annotated {
        let label = |correct| if correct { Label::Correct } else { Label::Incorrect };
        let all = table
            .iter()
            .flat_map(|&(count, correct, of)| (0..of).map(move |n| (count, label(n < correct))));
        let rows: Vec<Row> =
            all.enumerate().map(|(n, (count, label))| row(n, count, Some(label))).collect();
        Annotated { rows, ..Annotated::default() }
    }

    /// The paper's (Tab. calibration).
    pub const PAPER: [(u64, u64, u64); 5] =
        [(0, 48, 200), (3, 53, 100), (9, 70, 100), (10, 73, 100), (20, 162, 200)];

    #[test]
    fn calibration_table_matches_paper() {
        let calibration = calibrate(&annotated(&PAPER)).unwrap();
        let percent = |share: f64| (1000.0 * share).round() / 10.0;
        let rows: Vec<_> = calibration
            .buckets
            .iter()
            .map(|row| {
                let Share { n, correct, share, low, high, .. } = row.share;
                (row.bucket.to_string(), n, correct, percent(share), percent(low), percent(high))
            })
            .collect();
        let expected = [
            ("0", 200, 48, 24.0, 18.6, 30.4),
            ("1 to 4", 100, 53, 53.0, 43.3, 62.5),
            ("5 to 9", 100, 70, 70.0, 60.4, 78.1),
            ("10 to 19", 100, 73, 73.0, 63.6, 80.7),
            ("20 or more", 200, 162, 81.0, 75.0, 85.8),
        ];
        assert_eq!(
            rows,
            expected.map(|(label, n, correct, share, low, high)| (
                label.to_owned(),
                n,
                correct,
                share,
                low,
                high
            ))
        );
        assert_eq!(calibration.order, Order::Kept);
        let trend = calibration.trend.unwrap();
        // z² is the χ² of Armitage (1955), here from his formula in Python.
        assert!((trend.z * trend.z - 140.266_375).abs() < 1e-6 && trend.p < 1e-30, "{trend:?}");
    }

    #[test]
    fn trend_of_two_buckets_equals_proportion_test() {
        let share = |correct, n| Share::of(correct, n).unwrap();
        let trend = Trend::of(&[share(53, 100), share(70, 100)]).unwrap();
        let expected = 0.17 / (0.615f64 * 0.385 * 0.02).sqrt();
        assert!(
            (trend.z - expected).abs() < 1e-12 && (trend.p - 0.013_5).abs() < 1e-3,
            "{trend:?}"
        );
        assert!(Trend::of(&[share(70, 100), share(53, 100)]).unwrap().z < 0.0);
        for flat in
            [&[][..], &[share(1, 2)], &[share(3, 3), share(2, 2)], &[share(0, 3), share(0, 2)]]
        {
            assert_eq!(Trend::of(flat), None, "{flat:?}");
        }
        assert_eq!(Trend::of(&[share(1, 2), share(1, 2)]).unwrap(), Trend { z: 0.0, p: 1.0 });
    }

    #[test]
    fn insignificant_fall_leaves_order_unclear() {
        let of = |table: &[(u64, u64, u64)]| calibrate(&annotated(table)).unwrap().order;
        assert_eq!(of(&[(0, 50, 100), (3, 45, 100), (9, 90, 100)]), Order::Unclear);
        assert_eq!(of(&[(0, 50, 100), (3, 45, 100), (9, 90, 100), (20, 50, 100)]), Order::Broken);
        assert_eq!(of(&[(0, 50, 100), (3, 50, 100)]), Order::Kept);
    }

    #[test]
    fn clustered_sentences_reduce_effective_sample_size() {
        let of =
            |sentences: &[(usize, bool)]| Share::of_questions(sentences.iter().copied()).unwrap();
        let alone: Vec<(usize, bool)> = (0..100).map(|n| (n, n % 4 > 0)).collect();
        // Exact but for k / (k − 1).
        assert!(
            (of(&alone).effective - 99.0).abs() < 1e-9 && of(&alone).n == 100,
            "{:?}",
            of(&alone)
        );
        let five_times: Vec<(usize, bool)> = (0..500).map(|n| (n / 5, n / 5 % 4 > 0)).collect();
        let share = of(&five_times);
        assert_eq!((share.n, share.correct), (500, 375));
        assert!(
            (share.effective - 99.0).abs() < 1e-9 && (share.low - of(&alone).low).abs() < 1e-12,
            "{share:?}"
        );
        assert_eq!(of(&[(1, true), (1, true), (2, true)]).effective, 2.0);
        assert_eq!(of(&[(1, true), (1, false)]).effective, 1.0);
        assert_eq!(Share::of_questions([]), None);
    }

    #[test]
    fn unlabelled_sentences_enter_no_bucket() {
        let labels = [Some(Label::Unclear), None, Some(Label::Correct), Some(Label::Unclear)];
        let rows =
            labels.iter().enumerate().map(|(n, &label)| row(n, 3 * n as u64, label)).collect();
        let calibration = calibrate(&Annotated { rows, ..Annotated::default() }).unwrap();
        assert_eq!(
            (calibration.unclear, calibration.unlabelled, calibration.buckets.len()),
            (2, 1, 1)
        );
        assert_eq!(calibration.buckets[0].bucket.from, 5);
        assert_eq!(calibration.trend, None);

        let mut none = annotated(&[(0, 1, 2)]);
        none.rows.iter_mut().for_each(|row| row.label = None);
        assert_eq!(calibrate(&none), Err(TableError::NoLabels { sentences: 2 }));
        let mut mixed = annotated(&PAPER);
        mixed.rows[0].bucket = Bucket { from: 0, to: Some(2) };
        assert!(matches!(calibrate(&mixed), Err(TableError::Overlap { .. })));
    }
}
