//! P(correct) by count, with a test of its trend.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, Normal};

use super::annotated::Annotated;
use super::bucket::CountBucket;
use super::label::{RaterAgreement, TruthLabel};
use corver_eval::wilson_of;

/// Significance level: a smaller p is called more than chance.
pub const LEVEL: f64 = 0.05;

/// Share of correct sentences, with its uncertainty.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CorrectShare {
    /// Number of labelled sentences.
    pub n: u64,
    /// Number of correct sentences.
    pub correct: u64,
    /// Share of correct sentences, 0 to 1.
    pub share: f64,
    /// Effective sample size: the number of independent sentences with the same variance. Sentences
    /// of one question are correlated.
    pub effective: f64,
    /// Lower end of Wilson's 95 % interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

impl CorrectShare {
    /// Computes the share of independent sentences; `None` without sentences.
    #[must_use]
    pub fn of_independent(correct: u64, n: u64) -> Option<Self> {
        (n > 0).then(|| Self::new(correct, n, n as f64))
    }

    /// Computes the share of sentences that are clustered by question, each given with its
    /// question; `None` without sentences. Wilson's interval is that of as many independent
    /// sentences as have the variance of the questions' sums (Korn and Graubard 1998).
    #[must_use]
    pub fn of_questions<Q: Ord>(sentences: impl IntoIterator<Item = (Q, bool)>) -> Option<Self> {
        let mut questions: BTreeMap<Q, (u64, u64)> = BTreeMap::new();
        for (question, is_correct) in sentences {
            let (correct, n) = questions.entry(question).or_default();
            *correct += u64::from(is_correct);
            *n += 1;
        }
        let correct: u64 = questions.values().map(|(correct, _)| correct).sum();
        let n: u64 = questions.values().map(|(_, n)| n).sum();
        let share = correct as f64 / n as f64;
        let clusters = questions.len() as f64;
        let mut squares = 0.0;
        for &(question_correct, question_n) in questions.values() {
            squares += (question_correct as f64 - share * question_n as f64).powi(2);
        }
        let variance = squares / (n as f64).powi(2) * clusters / (clusters - 1.0);
        let variance_of_sentence = share * (1.0 - share);
        // The variance is unknown if all sentences are alike, or answer one question.
        let effective = if variance_of_sentence > 0.0 && clusters > 1.0 {
            (variance_of_sentence / variance).min(n as f64)
        } else {
            clusters
        };
        (n > 0).then(|| Self::new(correct, n, effective))
    }

    /// Returns the share of the sentences of two buckets, which are taken as independent.
    pub(super) fn merge(self, other: Self) -> Self {
        let effective = self.effective + other.effective;
        Self::new(self.correct + other.correct, self.n + other.n, effective)
    }

    fn new(correct: u64, n: u64, effective: f64) -> Self {
        let share = correct as f64 / n as f64;
        let (low, high) = wilson_of(share, effective);
        Self { n, correct, share, effective, low, high }
    }
}

/// Point of a reliability plot.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReliabilityPoint {
    /// Label on the axis.
    pub label: String,
    /// Height of the point, with its interval.
    #[serde(flatten)]
    pub share: CorrectShare,
}

/// Share of correct sentences in one bucket.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct BucketShare {
    /// Range of counts of the bucket.
    #[serde(flatten)]
    pub bucket: CountBucket,
    /// Share of correct sentences, with its uncertainty.
    #[serde(flatten)]
    pub share: CorrectShare,
}

impl BucketShare {
    /// Returns the point of a plot, with a short label.
    #[must_use]
    pub fn point(&self) -> ReliabilityPoint {
        let CountBucket { from, to } = self.bucket;
        let label = match to {
            None => format!("{from}+"),
            Some(to) if to == from => from.to_string(),
            Some(to) => format!("{from}–{to}"),
        };
        ReliabilityPoint { label, share: self.share }
    }
}

/// Cochran–Armitage test of a linear trend of the shares with the bucket's rank. For two buckets it is
/// the test of two proportions. The number of sentences of each share is
/// [`CorrectShare::effective`]; shares of different buckets are taken as independent.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Trend {
    /// Test statistic: standard normal without a trend, positive for rising shares.
    pub z: f64,
    /// Two-sided p-value of the test.
    pub p: f64,
}

impl Trend {
    /// Tests shares in order; `None` if there is only one, or all sentences have the same label.
    #[must_use]
    pub fn new(shares: &[CorrectShare]) -> Option<Self> {
        let mut n = 0.0;
        let mut correct = 0.0;
        let mut ranks = 0.0;
        for (rank, share) in shares.iter().enumerate() {
            n += share.effective;
            correct += share.share * share.effective;
            ranks += rank as f64 * share.effective;
        }
        let mean = correct / n;
        let mean_rank = ranks / n;
        let mut rise = 0.0;
        let mut spread = 0.0;
        for (rank, share) in shares.iter().enumerate() {
            rise += rank as f64 * share.effective * (share.share - mean);
            spread += share.effective * (rank as f64 - mean_rank).powi(2);
        }
        let variance = mean * (1.0 - mean) * spread;
        (variance > 0.0).then(|| {
            let z = rise / variance.sqrt();
            Self { z, p: (2.0 * Normal::standard().sf(z.abs())).min(1.0) }
        })
    }
}

/// Order of the shares of neighbouring buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ShareOrder {
    /// No bucket has a smaller share than the one before.
    Rising,
    /// Some buckets have a smaller share than the one before, by no more than chance.
    Unclear,
    /// Some buckets have a smaller share than the one before, by more than chance.
    Broken,
}

/// Relation of counts to labels.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Calibration {
    /// Buckets with a sentence labelled correct or incorrect, lowest counts first.
    pub buckets: Vec<BucketShare>,
    /// Order of the shares of the buckets.
    pub order: ShareOrder,
    /// Trend of the shares; `None` if there is only one bucket or one label.
    pub trend: Option<Trend>,
    /// Number of sentences labelled unclear; they are in no bucket.
    pub unclear: u64,
    /// Number of sentences without a label.
    pub unlabelled: u64,
    /// Number of sentences whose label is a model's.
    pub by_model: u64,
    /// Agreement of people; `None` if no sentence has the labels of two.
    pub agreement: Option<RaterAgreement>,
}

impl Calibration {
    /// Describes the trend and the order of the shares in a sentence.
    #[must_use]
    pub fn summary(&self) -> String {
        let Some(Trend { z, p }) = self.trend else {
            return "no trend can be tested: there is only one bucket, or one label".to_owned();
        };
        let direction = if z < 0.0 { "fall" } else { "rise" };
        let chance = if p < LEVEL { "by more than" } else { "by no more than" };
        let p_text = match p {
            p if p < 1e-99 => "p < 1e-99".to_owned(),
            p if p < 1e-3 => format!("p = {p:.1e}"),
            p => format!("p = {p:.3}"),
        };
        let order = match self.order {
            ShareOrder::Rising => "no bucket has a smaller share than the one before",
            ShareOrder::Unclear => {
                "some have a smaller share than the one before, by no more than chance"
            }
            ShareOrder::Broken => {
                "some have a smaller share than the one before, by more than chance"
            }
        };
        format!(
            "the shares {direction} with the count {chance} chance (Cochran–Armitage, {p_text}); \
             {order}"
        )
    }
}

/// Error of a calibration table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// No sentence is labelled correct or incorrect.
    #[error(
        "none of the {sentences} sentences is labelled correct or incorrect; write one of the two \
         into the column `label`"
    )]
    NoLabels {
        /// Number of sentences in the sheets.
        sentences: usize,
    },
    /// The sheets were drawn with different buckets.
    #[error(
        "the buckets {lower} and {higher} overlap; read sheets together that were drawn with the \
         same buckets"
    )]
    Overlap {
        /// Bucket that begins first.
        lower: CountBucket,
        /// Bucket that overlaps it.
        higher: CountBucket,
    },
}

/// Counts the labels by bucket. Sentences of one question are correlated: see
/// [`CorrectShare::of_questions`].
///
/// # Errors
/// If no sentence is labelled correct or incorrect, or buckets overlap.
pub fn calibrate(annotated: &Annotated) -> Result<Calibration, TableError> {
    let rows = &annotated.rows;
    // Questions of the sentences of each bucket, lowest counts first; true for a correct sentence.
    let mut by_bucket: BTreeMap<CountBucket, Vec<(&str, bool)>> = BTreeMap::new();
    let mut unclear = 0;
    let mut unlabelled = 0;
    for row in rows {
        let sentences = by_bucket.entry(row.bucket).or_default();
        match row.label {
            Some(TruthLabel::Correct) => sentences.push((row.question.as_str(), true)),
            Some(TruthLabel::Incorrect) => sentences.push((row.question.as_str(), false)),
            Some(TruthLabel::Unclear) => unclear += 1,
            None => unlabelled += 1,
        }
    }
    let ranges: Vec<CountBucket> = by_bucket.keys().copied().collect();
    for pair in ranges.windows(2) {
        if pair[0].contains(pair[1].from) {
            return Err(TableError::Overlap { lower: pair[0], higher: pair[1] });
        }
    }
    let mut buckets = Vec::new();
    for (bucket, sentences) in by_bucket {
        if let Some(share) = clustered_share(&sentences) {
            buckets.push(BucketShare { bucket, share });
        }
    }
    if buckets.is_empty() {
        return Err(TableError::NoLabels { sentences: rows.len() });
    }
    Ok(Calibration {
        order: order(&buckets),
        trend: trend(&buckets),
        buckets,
        unclear,
        unlabelled,
        by_model: annotated.by_model,
        agreement: annotated.agreement,
    })
}

/// Returns the share of sentences, each given with its question; one with a blank question has a
/// question of its own. Without two of one question, they are independent. `None`: no sentences.
pub(crate) fn clustered_share(sentences: &[(&str, bool)]) -> Option<CorrectShare> {
    let mut clustered = Vec::with_capacity(sentences.len());
    for (number, &(question, is_correct)) in sentences.iter().enumerate() {
        let own = question.trim().is_empty().then_some(number);
        clustered.push(((own, question), is_correct));
    }
    let questions: BTreeSet<_> = clustered.iter().map(|(question, _)| *question).collect();
    if questions.len() < clustered.len() {
        return CorrectShare::of_questions(clustered);
    }
    let correct = clustered.iter().filter(|(_, is_correct)| *is_correct).count();
    CorrectShare::of_independent(correct as u64, clustered.len() as u64)
}

/// Compares the shares of neighbouring buckets.
#[must_use]
pub fn order(buckets: &[BucketShare]) -> ShareOrder {
    let mut order = ShareOrder::Rising;
    for pair in buckets.windows(2) {
        if pair[1].share.share < pair[0].share.share {
            let is_significant = trend(pair).is_some_and(|trend| trend.p < LEVEL);
            order =
                order.max(if is_significant { ShareOrder::Broken } else { ShareOrder::Unclear });
        }
    }
    order
}

/// Tests the shares of buckets for a trend; see [`Trend::new`].
#[must_use]
pub fn trend(buckets: &[BucketShare]) -> Option<Trend> {
    let shares: Vec<CorrectShare> = buckets.iter().map(|bucket| bucket.share).collect();
    Trend::new(&shares)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::sheet::{SheetRow, tests::row};
    use super::*;

    /// Returns a sheet from rows of (count, correct sentences, all sentences).
    pub fn annotated(table: &[(u64, u64, u64)]) -> Annotated {
        let label = |correct| if correct { TruthLabel::Correct } else { TruthLabel::Incorrect };
        let all = table
            .iter()
            .flat_map(|&(count, correct, of)| (0..of).map(move |n| (count, label(n < correct))));
        let rows: Vec<SheetRow> =
            all.enumerate().map(|(n, (count, label))| row(n, count, Some(label))).collect();
        Annotated { rows, ..Annotated::default() }
    }

    /// Returns a sheet from rows of (count, correct questions, all questions). Each question has
    /// ten sentences, all correct or all incorrect.
    pub fn of_ten_each(table: &[(u64, u64, u64)]) -> Annotated {
        let sentences: Vec<(u64, u64, u64)> =
            table.iter().map(|&(count, correct, of)| (count, 10 * correct, 10 * of)).collect();
        let mut clustered = annotated(&sentences);
        for (n, row) in clustered.rows.iter_mut().enumerate() {
            row.question = format!("q{}", n / 10);
        }
        clustered
    }

    /// Counts of the paper (Tab. calibration).
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
                let CorrectShare { n, correct, share, low, high, .. } = row.share;
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
        assert_eq!(calibration.order, ShareOrder::Rising);
        let trend = calibration.trend.unwrap();
        // z² is the χ² of Armitage (1955), here from his formula in Python.
        assert!((trend.z * trend.z - 140.266_375).abs() < 1e-6 && trend.p < 1e-30, "{trend:?}");
    }

    #[test]
    fn trend_of_two_buckets_equals_proportion_test() {
        let share = |correct, n| CorrectShare::of_independent(correct, n).unwrap();
        let trend = Trend::new(&[share(53, 100), share(70, 100)]).unwrap();
        let expected = 0.17 / (0.615f64 * 0.385 * 0.02).sqrt();
        assert!(
            (trend.z - expected).abs() < 1e-12 && (trend.p - 0.013_5).abs() < 1e-3,
            "{trend:?}"
        );
        assert!(Trend::new(&[share(70, 100), share(53, 100)]).unwrap().z < 0.0);
        for flat in
            [&[][..], &[share(1, 2)], &[share(3, 3), share(2, 2)], &[share(0, 3), share(0, 2)]]
        {
            assert_eq!(Trend::new(flat), None, "{flat:?}");
        }
        assert_eq!(Trend::new(&[share(1, 2), share(1, 2)]).unwrap(), Trend { z: 0.0, p: 1.0 });
    }

    #[test]
    fn insignificant_fall_leaves_order_unclear() {
        let of = |table: &[(u64, u64, u64)]| calibrate(&annotated(table)).unwrap().order;
        assert_eq!(of(&[(0, 50, 100), (3, 45, 100), (9, 90, 100)]), ShareOrder::Unclear);
        assert_eq!(
            of(&[(0, 50, 100), (3, 45, 100), (9, 90, 100), (20, 50, 100)]),
            ShareOrder::Broken
        );
        assert_eq!(of(&[(0, 50, 100), (3, 50, 100)]), ShareOrder::Rising);
    }

    #[test]
    fn clustered_sentences_reduce_effective_sample_size() {
        let of = |sentences: &[(usize, bool)]| {
            CorrectShare::of_questions(sentences.iter().copied()).unwrap()
        };
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
        assert_eq!(CorrectShare::of_questions([(1, true); 0]), None);
    }

    /// Oracle: Wilson's interval of 9 sentences, and the test of two proportions of 9 each, in
    /// Python.
    #[test]
    fn sentences_of_one_question_are_not_independent() {
        let percent = |share: f64| (1000.0 * share).round() / 10.0;
        let mut all = of_ten_each(&[(0, 10, 20)]);
        for (n, row) in all.rows.iter_mut().enumerate() {
            row.question = format!("q{}", n / 20);
        }
        let share = calibrate(&all).unwrap().buckets[0].share;
        assert_eq!((share.n, share.correct), (200, 100));
        assert!((share.effective - 9.0).abs() < 1e-9, "{share:?}");
        assert_eq!([share.low, share.high].map(percent), [22.7, 77.3]);

        let falling = calibrate(&of_ten_each(&[(0, 7, 10), (3, 3, 10)])).unwrap();
        let trend = falling.trend.unwrap();
        assert!((trend.p - 0.089_686).abs() < 1e-6, "{trend:?}");
        assert_eq!(falling.order, ShareOrder::Unclear);
    }

    #[test]
    fn sentences_of_different_questions_are_independent() {
        for BucketShare { share, .. } in calibrate(&annotated(&PAPER)).unwrap().buckets {
            assert_eq!(Some(share), CorrectShare::of_independent(share.correct, share.n));
        }
    }

    #[test]
    fn sentences_without_question_are_independent_of_others() {
        let names: Vec<String> = (0..50).map(|n| format!("q{n}")).collect();
        let mut sentences = Vec::new();
        for n in 0..100 {
            sentences.push((names[n / 2].as_str(), n % 4 < 2));
        }
        for n in 0..400 {
            sentences.push(([" ", ""][n % 2], n % 10 < 8));
        }
        let share = clustered_share(&sentences).unwrap();
        assert!(share.effective > 300.0 && share.effective < 500.0, "{share:?}");
    }

    #[test]
    fn unlabelled_sentences_enter_no_bucket() {
        let labels =
            [Some(TruthLabel::Unclear), None, Some(TruthLabel::Correct), Some(TruthLabel::Unclear)];
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
        mixed.rows[0].bucket = CountBucket { from: 0, to: Some(2) };
        assert!(matches!(calibrate(&mixed), Err(TableError::Overlap { .. })));
    }
}
