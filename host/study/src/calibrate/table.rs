//! P(correct) by count, and whether it rises.

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, Normal};

use super::bucket::Bucket;
use super::label::{Agreement, Label};
use super::sheet::Annotated;
use crate::eval::wilson;

/// A share, and how sure it is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Share {
    /// All of them.
    pub n: u64,
    /// Those that are correct.
    pub correct: u64,
    /// Correct ones of all.
    pub share: f64,
    /// Lower end of Wilson's 95 % interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Share {
    /// `None` of nothing.
    #[must_use]
    pub fn of(correct: u64, n: u64) -> Option<Self> {
        let (low, high) = wilson(correct, n);
        (n > 0).then(|| Self { n, correct, share: correct as f64 / n as f64, low, high })
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
    /// For a plot.
    #[must_use]
    pub fn point(&self) -> Point {
        Point { label: self.bucket.to_string(), share: self.share }
    }
}

/// The Cochran–Armitage test: do the shares rise with the bucket's rank by more than chance? Of two buckets it is the test of two
/// proportions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Trend {
    /// Standard normal where nothing rises or falls; positive where the shares rise.
    pub z: f64,
    /// Two-sided.
    pub p: f64,
}

impl Trend {
    /// Of shares in order; `None` where nothing can rise: of one share, and where all are correct or none is.
    #[must_use]
    pub fn of(shares: &[Share]) -> Option<Self> {
        let sum = |of: &dyn Fn(f64, &Share) -> f64| -> f64 {
            shares.iter().enumerate().map(|(rank, share)| of(rank as f64, share)).sum()
        };
        let n = sum(&|_, share| share.n as f64);
        let mean = sum(&|_, share| share.correct as f64) / n;
        let rise = sum(&|rank, share| rank * (share.correct as f64 - share.n as f64 * mean));
        let mean_rank = sum(&|rank, share| rank * share.n as f64) / n;
        let spread = sum(&|rank, share| share.n as f64 * (rank - mean_rank).powi(2));
        let variance = mean * (1.0 - mean) * spread;
        (variance > 0.0).then(|| {
            let z = rise / variance.sqrt();
            Self { z, p: (2.0 * Normal::standard().sf(z.abs())).min(1.0) }
        })
    }
}

/// What the labels say of the counts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Calibration {
    /// Buckets with a sentence that is correct or incorrect, lowest counts first.
    pub buckets: Vec<BucketShare>,
    /// Whether no bucket has a smaller share than the one before.
    pub monotone: bool,
    /// `None` where nothing can rise.
    pub trend: Option<Trend>,
    /// Sentences that nobody can judge; they are in no bucket.
    pub unclear: u64,
    /// Sentences without a label.
    pub unlabelled: u64,
    /// Where several people labelled the same sentences.
    pub agreement: Option<Agreement>,
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
    #[error("the buckets {one} and {other} overlap; read sheets together that were drawn with the same buckets")]
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
        rows.iter().filter(|row| row.label == label && bucket.is_none_or(|bucket| row.bucket == bucket)).count() as u64
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
        monotone: rises(&buckets),
        trend: trend(&buckets),
        buckets,
        unclear: number(None, Some(Label::Unclear)),
        unlabelled: number(None, None),
        agreement: annotated.agreement,
    })
}

/// Whether no bucket has a smaller share than the one before.
#[must_use]
pub fn rises(buckets: &[BucketShare]) -> bool {
    buckets.is_sorted_by(|one, other| one.share.share <= other.share.share)
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
        let all = table.iter().flat_map(|&(count, correct, of)| (0..of).map(move |n| (count, label(n < correct))));
        let rows: Vec<Row> = all.enumerate().map(|(n, (count, label))| row(n, count, Some(label))).collect();
        Annotated { rows, agreement: None }
    }

    /// The paper's (Tab. calibration).
    pub const PAPER: [(u64, u64, u64); 5] = [(0, 48, 200), (3, 53, 100), (9, 70, 100), (10, 73, 100), (20, 162, 200)];

    #[test]
    fn the_papers_table_is_reproduced() {
        let calibration = calibrate(&annotated(&PAPER)).unwrap();
        let percent = |share: f64| (1000.0 * share).round() / 10.0;
        let rows: Vec<_> = calibration
            .buckets
            .iter()
            .map(|row| {
                let Share { n, correct, share, low, high } = row.share;
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
        assert_eq!(rows, expected.map(|(label, n, correct, share, low, high)| (label.to_owned(), n, correct, share, low, high)));
        assert!(calibration.monotone);
        let trend = calibration.trend.unwrap();
        // z² is the χ² of Armitage (1955), here from his formula in Python.
        assert!((trend.z * trend.z - 140.266_375).abs() < 1e-6 && trend.p < 1e-30, "{trend:?}");
    }

    #[test]
    fn a_trend_of_two_is_the_test_of_two_proportions() {
        let share = |correct, n| Share::of(correct, n).unwrap();
        let trend = Trend::of(&[share(53, 100), share(70, 100)]).unwrap();
        let expected = 0.17 / (0.615f64 * 0.385 * 0.02).sqrt();
        assert!((trend.z - expected).abs() < 1e-12 && (trend.p - 0.013_5).abs() < 1e-3, "{trend:?}");
        assert!(Trend::of(&[share(70, 100), share(53, 100)]).unwrap().z < 0.0);
        for flat in [&[][..], &[share(1, 2)], &[share(3, 3), share(2, 2)], &[share(0, 3), share(0, 2)]] {
            assert_eq!(Trend::of(flat), None, "{flat:?}");
        }
        assert_eq!(Trend::of(&[share(1, 2), share(1, 2)]).unwrap(), Trend { z: 0.0, p: 1.0 });
    }

    #[test]
    fn what_is_not_labelled_is_in_no_bucket() {
        let labels = [Some(Label::Unclear), None, Some(Label::Correct), Some(Label::Unclear)];
        let rows = labels.iter().enumerate().map(|(n, &label)| row(n, 3 * n as u64, label)).collect();
        let calibration = calibrate(&Annotated { rows, agreement: None }).unwrap();
        assert_eq!((calibration.unclear, calibration.unlabelled, calibration.buckets.len()), (2, 1, 1));
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
