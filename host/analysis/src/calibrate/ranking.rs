//! Rank statistics of rewards and truth: does a true sentence have a higher reward than a false one?

use std::collections::BTreeSet;
use std::fmt;

use corver_eval::interval::{DRAWS, percentile_interval};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

/// Minimum number of true sentences, and of false ones, for a conclusion.
///
/// With 30 of each, an AUC of one half has a standard error of √(61 / (12 · 30 · 30)) = 0.075
/// (Mann–Whitney), so an interval of ±0.15. The paper's 700 labels give its rule an AUC of 0.754:
/// with fewer sentences not even that could be distinguished from chance.
pub const MIN_SENTENCES: usize = 30;
/// Minimum number of questions, of the true sentences and of the false ones. The bootstrap draws
/// questions: with fewer, the draws are too similar, and the interval is too narrow.
pub const MIN_QUESTIONS: usize = 10;

/// Reward and truth of one sentence.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RewardedSentence {
    /// Index of the question. Sentences of one question are not independent.
    pub question: usize,
    /// Reward by the rule; finite.
    pub reward: f32,
    /// True if everything that the sentence states is true.
    pub is_true: bool,
}

/// Probability that a true sentence has a higher reward than a false one, ties counted half: the area
/// under the ROC curve, or Mann–Whitney's U as a share of all pairs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Auc {
    /// Share of all pairs, 0 to 1.
    pub value: f64,
    /// 95 % interval; `None` with too few sentences (see [`SampleSize::is_enough`]).
    pub interval: Option<Interval>,
}

/// 95 % interval of the bootstrap: questions are drawn with replacement, each with all its sentences.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Interval {
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

impl fmt::Display for Auc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.interval {
            Some(Interval { low, high }) => write!(f, "{:.3} ({low:.3} to {high:.3})", self.value),
            None => write!(f, "{:.3} (too few)", self.value),
        }
    }
}

/// Numbers of sentences and questions in a comparison.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct SampleSize {
    /// Number of true sentences.
    pub truths: usize,
    /// Number of questions with a true sentence.
    pub questions_with_truths: usize,
    /// Number of false sentences.
    pub falsehoods: usize,
    /// Number of questions with a false sentence.
    pub questions_with_falsehoods: usize,
}

impl SampleSize {
    /// Counts the sentences, and their questions.
    #[must_use]
    pub fn count(outcomes: &[RewardedSentence]) -> Self {
        let mut with_truths = BTreeSet::new();
        let mut with_falsehoods = BTreeSet::new();
        let mut evidence = Self::default();
        for outcome in outcomes {
            if outcome.is_true {
                evidence.truths += 1;
                with_truths.insert(outcome.question);
            } else {
                evidence.falsehoods += 1;
                with_falsehoods.insert(outcome.question);
            }
        }
        evidence.questions_with_truths = with_truths.len();
        evidence.questions_with_falsehoods = with_falsehoods.len();
        evidence
    }

    /// True if there are [`MIN_SENTENCES`] and [`MIN_QUESTIONS`] of each kind, enough for an interval
    /// and a conclusion.
    #[must_use]
    pub fn is_enough(&self) -> bool {
        self.truths.min(self.falsehoods) >= MIN_SENTENCES
            && self.questions_with_truths.min(self.questions_with_falsehoods) >= MIN_QUESTIONS
    }
}

/// Outcomes by question, each with the rank of its reward.
struct Ranking {
    outcomes: Vec<RewardedSentence>,
    /// Rank of each outcome's reward among the distinct rewards, lowest first.
    levels: Vec<usize>,
    num_levels: usize,
}

/// Numbers of `[false, true]` sentences of each distinct reward, lowest first.
type Histogram = Vec<[u64; 2]>;

impl Ranking {
    fn new(outcomes: &[RewardedSentence]) -> Self {
        let mut by_question = outcomes.to_vec();
        by_question.sort_by_key(|outcome| outcome.question);
        // + 0 turns −0 into 0.
        let mut rewards: Vec<f32> = outcomes.iter().map(|outcome| outcome.reward + 0.0).collect();
        rewards.sort_by(f32::total_cmp);
        rewards.dedup();
        let mut levels = Vec::with_capacity(by_question.len());
        for outcome in &by_question {
            levels.push(rewards.partition_point(|&reward| reward < outcome.reward));
        }
        Self { outcomes: by_question, levels, num_levels: rewards.len() }
    }

    fn histogram(&self) -> Histogram {
        let mut histogram = vec![[0; 2]; self.num_levels];
        for (outcome, &level) in self.outcomes.iter().zip(&self.levels) {
            histogram[level][usize::from(outcome.is_true)] += 1;
        }
        histogram
    }

    /// Returns the histograms of [`DRAWS`] draws of as many questions, with replacement.
    fn bootstrap(&self, seed: u64) -> Vec<Histogram> {
        // Of each question, the histogram cells of its sentences.
        let mut questions: Vec<Vec<(usize, usize)>> = Vec::new();
        let mut last_question = None;
        for (outcome, &level) in self.outcomes.iter().zip(&self.levels) {
            if last_question != Some(outcome.question) {
                last_question = Some(outcome.question);
                questions.push(Vec::new());
            }
            let cells = questions.last_mut().expect("pushed above");
            cells.push((level, usize::from(outcome.is_true)));
        }
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut histograms = Vec::with_capacity(DRAWS);
        for _ in 0..DRAWS {
            let mut histogram = vec![[0; 2]; self.num_levels];
            for _ in 0..questions.len() {
                for &(level, is_true) in &questions[rng.random_range(0..questions.len())] {
                    histogram[level][is_true] += 1;
                }
            }
            histograms.push(histogram);
        }
        histograms
    }
}

/// Computes the [`Auc`]; `None` unless there are true sentences and false ones. `seed` determines the
/// draws of the bootstrap.
#[must_use]
pub fn auc(outcomes: &[RewardedSentence], seed: u64) -> Option<Auc> {
    let ranking = Ranking::new(outcomes);
    let value = area(&ranking.histogram())?;
    let mut interval = None;
    if SampleSize::count(outcomes).is_enough() {
        let histograms = ranking.bootstrap(seed);
        interval = Some(Interval::new(histograms.iter().filter_map(|drawn| area(drawn)).collect()));
    }
    Some(Auc { value, interval })
}

/// Pairs of a true and a false sentence, and in how many the true one has the higher reward.
#[derive(Clone, Copy, Default)]
struct PairCount {
    won: f64,
    pairs: f64,
}

impl PairCount {
    /// Counts the pairs of one question; `None` if there are none.
    fn new(outcomes: &[RewardedSentence]) -> Option<Self> {
        let histogram = Ranking::new(outcomes).histogram();
        let [falsehoods, truths] = totals(&histogram);
        let area = area(&histogram)?;
        Some(Self { won: area * falsehoods * truths, pairs: falsehoods * truths })
    }

    fn add(&mut self, other: Self) {
        self.won += other.won;
        self.pairs += other.pairs;
    }

    fn share(self) -> f64 {
        self.won / self.pairs
    }
}

/// Computes the [`Auc`] over the pairs of sentences that answer one question, which GRPO compares;
/// `None` if no question has a true sentence and a false one.
#[must_use]
pub fn auc_within_questions(outcomes: &[RewardedSentence], seed: u64) -> Option<Auc> {
    let ranking = Ranking::new(outcomes);
    let mut questions = Vec::new();
    let mut compared = Vec::new();
    let mut total = PairCount::default();
    for group in ranking.outcomes.chunk_by(|one, other| one.question == other.question) {
        if let Some(pairs) = PairCount::new(group) {
            questions.push(pairs);
            compared.extend_from_slice(group);
            total.add(pairs);
        }
    }
    if questions.is_empty() {
        return None;
    }
    let mut interval = None;
    if SampleSize::count(&compared).is_enough() {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut shares = Vec::with_capacity(DRAWS);
        for _ in 0..DRAWS {
            let mut drawn = PairCount::default();
            for _ in 0..questions.len() {
                drawn.add(questions[rng.random_range(0..questions.len())]);
            }
            shares.push(drawn.share());
        }
        interval = Some(Interval::new(shares));
    }
    Some(Auc { value: total.share(), interval })
}

impl Interval {
    fn new(draws: Vec<f64>) -> Self {
        let (low, high) = percentile_interval(draws).unwrap_or((0.0, 1.0));
        Self { low, high }
    }
}

/// Returns the area under the ROC curve; `None` without pairs.
fn area(histogram: &[[u64; 2]]) -> Option<f64> {
    let totals = totals(histogram);
    let mut falsehoods_below = 0.0;
    let mut won = 0.0;
    for [falsehoods, truths] in histogram.iter().map(|level| level.map(|number| number as f64)) {
        won += truths * (falsehoods_below + falsehoods / 2.0);
        falsehoods_below += falsehoods;
    }
    let pairs = totals[0] * totals[1];
    (pairs > 0.0).then(|| won / pairs)
}

fn totals(histogram: &[[u64; 2]]) -> [f64; 2] {
    [0, 1].map(|is_true| histogram.iter().map(|level| level[is_true]).sum::<u64>() as f64)
}

/// Computes Spearman's ρ of reward and truth, ties at their mean rank; `None` if all rewards or all
/// truths are the same.
#[must_use]
pub fn rank_correlation(outcomes: &[RewardedSentence]) -> Option<f64> {
    let histogram = Ranking::new(outcomes).histogram();
    let [falsehoods, truths] = totals(&histogram);
    let mean_rank = (falsehoods + truths + 1.0) / 2.0;
    let mut below = 0.0;
    let mut covariance = 0.0;
    let mut variance = 0.0;
    for [false_here, true_here] in histogram.iter().map(|level| level.map(|number| number as f64)) {
        let number = false_here + true_here;
        let from_mean = below + (number + 1.0) / 2.0 - mean_rank;
        covariance += true_here * from_mean;
        variance += number * from_mean * from_mean;
        below += number;
    }
    let variance_of_truth = falsehoods * truths / (falsehoods + truths);
    let product = variance * variance_of_truth;
    (product > 0.0).then(|| covariance / product.sqrt())
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// One sentence of each question.
    pub fn outcomes(all: &[(f32, bool)]) -> Vec<RewardedSentence> {
        let outcome = |(question, &(reward, is_true)): (usize, &(f32, bool))| RewardedSentence {
            question,
            reward,
            is_true,
        };
        all.iter().enumerate().map(outcome).collect()
    }

    fn value(all: &[(f32, bool)]) -> Option<f64> {
        auc(&outcomes(all), 1).map(|auc| auc.value)
    }

    #[test]
    fn auc_counts_correctly_ordered_pairs() {
        assert_eq!(value(&[(0.1, true), (-0.3, false)]), Some(1.0));
        assert_eq!(value(&[(-0.3, true), (0.1, false)]), Some(0.0));
        assert_eq!(value(&[(0.0, true), (-0.0, false)]), Some(0.5));
        // Of six pairs 0.1 > 0.0 twice, 0.1 = 0.1 once, −0.3 < twice, −0.3 < once.
        let mixed = [(0.1, true), (-0.3, true), (0.0, false), (0.0, false), (0.1, false)];
        assert_eq!(value(&mixed), Some(2.5 / 6.0));
        assert_eq!(value(&[(0.1, true)]), None);
        assert_eq!(value(&[]), None);
    }

    #[test]
    fn auc_within_questions_ignores_question_difficulty() {
        // Famous questions have higher rewards and more true answers; within a question, the false
        // sentence has the higher reward.
        let famous = [(0.1, true), (0.1, true), (0.2, false)]
            .map(|(reward, is_true)| RewardedSentence { question: 1, reward, is_true });
        let obscure = [(-0.3, true), (-0.2, false), (-0.2, false)]
            .map(|(reward, is_true)| RewardedSentence { question: 2, reward, is_true });
        let all = [famous, obscure].concat();
        assert!(auc(&all, 1).unwrap().value > auc_within_questions(&all, 1).unwrap().value);
        assert_eq!(auc_within_questions(&all, 1), Some(Auc { value: 0.0, interval: None }));
        assert_eq!(auc_within_questions(&outcomes(&[(0.1, true), (0.0, false)]), 1), None);
    }

    #[test]
    fn constant_reward_has_auc_one_half() {
        let all = outcomes(&[(0.1, true), (0.1, false)].repeat(30));
        assert_eq!(
            auc(&all, 1),
            Some(Auc { value: 0.5, interval: Some(Interval { low: 0.5, high: 0.5 }) })
        );
        assert_eq!(rank_correlation(&all), None);
    }

    #[test]
    fn rank_correlation_matches_known_value() {
        let all = [
            (0.1, true),
            (-0.3, false),
            (0.0, true),
            (0.1, false),
            (-0.1, false),
            (0.1, true),
            (-0.3, true),
        ];
        let rho = rank_correlation(&outcomes(&all)).unwrap();
        assert!((rho - 0.226_871).abs() < 1e-6, "{rho}"); // Pearson of the ranks, in Python
        assert_eq!(rank_correlation(&outcomes(&[(1.0, true), (0.0, false)])), Some(1.0));
    }

    #[test]
    fn auc_interval_accounts_for_question_clusters() {
        let independent: Vec<(f32, bool)> =
            (0..400).map(|n| (if n % 5 < 3 { 0.1 } else { -0.3 }, n % 2 == 0)).collect();
        let alone = auc(&outcomes(&independent), 1).unwrap();
        let mut together = outcomes(&independent);
        together.iter_mut().enumerate().for_each(|(n, outcome)| outcome.question = n / 20);
        // Twenty times the same sentence is one sentence.
        let of_question = |n: usize| (if n.is_multiple_of(4) { -0.3 } else { 0.1 }, n % 2 == 1);
        together
            .iter_mut()
            .for_each(|outcome| (outcome.reward, outcome.is_true) = of_question(outcome.question));
        let together = auc(&together, 1).unwrap();
        let Interval { low, high } = alone.interval.unwrap();
        assert!(low < alone.value && alone.value < high, "{alone:?}");
        let wide = together.interval.unwrap();
        assert!(wide.high - wide.low > 3.0 * (high - low), "{alone:?} {together:?}");
        assert_eq!(auc(&outcomes(&independent), 1), Some(alone));
    }

    #[test]
    fn auc_of_two_sentences_has_no_interval() {
        let two = auc(&outcomes(&[(0.1, true), (-0.3, false)]), 1).unwrap();
        assert_eq!(
            (two, two.to_string()),
            (Auc { value: 1.0, interval: None }, "1.000 (too few)".into())
        );
    }

    #[test]
    fn auc_interval_needs_thirty_sentences_from_ten_questions() {
        let is_enough = |each: usize, questions: usize| {
            let mut all = outcomes(&[(0.1, true), (-0.3, false)].repeat(each));
            all.iter_mut()
                .enumerate()
                .for_each(|(n, outcome)| outcome.question = n / 2 % questions);
            let intervals = [auc(&all, 1), auc_within_questions(&all, 1)]
                .map(|auc| auc.unwrap().interval.is_some());
            assert_eq!(intervals, [SampleSize::count(&all).is_enough(); 2]);
            intervals[0]
        };
        assert_eq!([is_enough(30, 10), is_enough(29, 10), is_enough(30, 9)], [true, false, false]);
        let mut one_sided = outcomes(&[(0.1, true), (-0.3, false)].repeat(30));
        one_sided
            .iter_mut()
            .filter(|outcome| outcome.is_true)
            .for_each(|outcome| outcome.question = 0);
        let SampleSize { truths, questions_with_truths, falsehoods, questions_with_falsehoods } =
            SampleSize::count(&one_sided);
        assert_eq!(
            (truths, questions_with_truths, falsehoods, questions_with_falsehoods),
            (30, 1, 30, 30)
        );
        assert_eq!(auc(&one_sided, 1).unwrap().interval, None);
    }

    proptest! {
        #[test]
        fn auc_matches_brute_force_pairs(all in prop::collection::vec((-2i8..3, any::<bool>()), 0..30)) {
            let all: Vec<(f32, bool)> = all.into_iter().map(|(reward, is_true)| (f32::from(reward), is_true)).collect();
            let of = |wanted: bool| all.iter().filter(move |(_, is_true)| *is_true == wanted).map(|(reward, _)| *reward);
            let pairs: Vec<f64> = of(true)
                .flat_map(|truth| of(false).map(move |other| if truth > other { 1.0 } else if truth == other { 0.5 } else { 0.0 }))
                .collect();
            let expected = (!pairs.is_empty()).then(|| pairs.iter().sum::<f64>() / pairs.len() as f64);
            let got = area(&Ranking::new(&outcomes(&all)).histogram());
            prop_assert_eq!(got.is_some(), expected.is_some());
            if let (Some(got), Some(expected)) = (got, expected) {
                prop_assert!((got - expected).abs() < 1e-12);
            }
        }
    }
}
