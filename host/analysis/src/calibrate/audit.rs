//! The rule audit: tests before training if a rule's higher rewards mean truer sentences.

use serde::Serialize;

use super::bucket::{CountBuckets, Placement};
use super::ranking::{
    Auc, Interval, MIN_QUESTIONS, MIN_SENTENCES, RewardedSentence, SampleSize, auc,
    auc_within_questions, rank_correlation,
};
use super::sample::ScoredSentence;
use super::table::{BucketShare, CorrectShare, ReliabilityPoint, ShareOrder, order};

/// Number of bins for rewards of more distinct values.
const MAX_REWARDS: usize = 10;

/// Relation of a rule's rewards to truth.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RuleAudit {
    /// Name of the rule.
    pub rule: String,
    /// Number of sentences whose truth is known.
    pub sentences: usize,
    /// Numbers of true and false sentences, and of their questions.
    pub evidence: SampleSize,
    /// Share of sentences on which the rule abstains, 0 to 1; their reward is 0.
    pub abstained: f64,
    /// Mean reward of a true sentence.
    pub mean_true: f64,
    /// Mean reward of a false sentence.
    pub mean_false: f64,
    /// Probability that a true sentence has a higher reward than a false one.
    pub auc: Auc,
    /// The same for answers to one question, which GRPO compares; `None` if no question has both.
    pub auc_within_questions: Option<Auc>,
    /// Spearman's ρ of reward and truth; `None` if all rewards are the same.
    pub rank_correlation: Option<f64>,
    /// P(true) by the count that decided the verdict.
    pub by_count: Vec<BucketShare>,
    /// Order of the shares of the buckets.
    pub order: ShareOrder,
    /// Number of sentences in no bucket: without a count, or with counting stopped before the last
    /// bucket.
    pub uncounted: usize,
    /// P(true) by reward, lowest first, without abstentions: of each value, or of bins of about
    /// equal size.
    pub by_reward: Vec<ReliabilityPoint>,
    /// P(true) of the abstentions; `None` if there are none.
    pub of_abstained: Option<CorrectShare>,
}

/// Conclusion of an audit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditFinding {
    /// True sentences have higher rewards, by more than chance.
    Truer,
    /// True sentences have higher rewards among the answers to one question, which GRPO compares, but
    /// not over all questions.
    TruerWithinQuestions,
    /// True sentences have higher rewards, but not among the answers to one question, which GRPO
    /// compares.
    BetweenQuestions,
    /// False sentences have higher rewards, by more than chance.
    Falser,
    /// False sentences have higher rewards among the answers to one question, in any case between
    /// questions.
    FalserWithinQuestions,
    /// Neither true nor false sentences have higher rewards by more than chance.
    Inconclusive,
    /// Too few sentences or questions for a conclusion; see [`SampleSize::is_enough`].
    TooFew,
}

impl RuleAudit {
    /// Returns the conclusion that the intervals of the AUC give.
    #[must_use]
    pub fn finding(&self) -> AuditFinding {
        let Some(Interval { low, high }) = self.auc.interval else { return AuditFinding::TooFew };
        let within = self.within_questions();
        if within.is_some_and(|within| within.high < 0.5) {
            AuditFinding::FalserWithinQuestions
        } else if low > 0.5 && within.is_none_or(|within| within.low > 0.5) {
            AuditFinding::Truer
        } else if within.is_some_and(|within| within.low > 0.5) {
            AuditFinding::TruerWithinQuestions
        } else if low > 0.5 {
            AuditFinding::BetweenQuestions
        } else if high < 0.5 {
            AuditFinding::Falser
        } else {
            AuditFinding::Inconclusive
        }
    }

    fn within_questions(&self) -> Option<Interval> {
        self.auc_within_questions?.interval
    }

    /// Describes the finding in a sentence.
    #[must_use]
    pub fn summary(&self) -> String {
        let Some(Interval { low, high }) = self.auc.interval else {
            return self.summary_of_too_few();
        };
        let finding = match self.finding() {
            AuditFinding::Truer => "a higher reward means a truer sentence",
            AuditFinding::TruerWithinQuestions => {
                "among the answers to one question, which is all that training compares, a higher \
                 reward means a truer sentence, but not over all questions"
            }
            AuditFinding::BetweenQuestions => {
                "a higher reward means a truer sentence, but nothing shows it among the answers to \
                 one question, which is all that training compares"
            }
            AuditFinding::Falser => "a higher reward means a falser sentence; do not train with it",
            AuditFinding::FalserWithinQuestions => {
                "among the answers to one question, which is all that training compares, a higher \
                 reward means a falser sentence; do not train with it"
            }
            AuditFinding::Inconclusive | AuditFinding::TooFew => {
                "nothing shows that a higher reward means a truer sentence"
            }
        };
        let percent = 100.0 * self.auc.value;
        let low_percent = 100.0 * low;
        let high_percent = 100.0 * high;
        let limitation = match (self.within_questions(), self.auc_within_questions) {
            (Some(_), _) => "",
            (None, Some(_)) => {
                "; too few questions have both, so what training compares could not be looked at"
            }
            (None, None) => {
                "; no question has both, so what training compares could not be looked at"
            }
        };
        format!(
            "{}: {finding}; of a true and a false one the true one has the higher reward in \
             {percent:.1} % of cases (95 %: {low_percent:.1} to {high_percent:.1}), ties counted \
             half{limitation}",
            self.rule
        )
    }

    fn summary_of_too_few(&self) -> String {
        let SampleSize { truths, questions_with_truths, falsehoods, questions_with_falsehoods } =
            self.evidence;
        format!(
            "{}: no verdict; that takes {MIN_SENTENCES} true and {MIN_SENTENCES} false sentences, \
             of {MIN_QUESTIONS} questions or more each, and there are {truths} and {falsehoods}, of \
             {questions_with_truths} and {questions_with_falsehoods} questions",
            self.rule
        )
    }
}

/// Audits a rule; `None` unless there are true sentences and false ones. `seed` determines the draws
/// of the bootstrap.
#[must_use]
pub fn audit(
    rule: &str,
    judged: &[ScoredSentence<'_>],
    buckets: &CountBuckets,
    seed: u64,
) -> Option<RuleAudit> {
    let mut outcomes = Vec::with_capacity(judged.len());
    let mut abstained = Vec::new();
    for sentence in judged {
        outcomes.push(RewardedSentence {
            question: sentence.question,
            reward: sentence.verdict.reward.unwrap_or(0.0),
            is_true: sentence.is_true,
        });
        if sentence.verdict.reward.is_none() {
            abstained.push(truth_of(sentence));
        }
    }
    let area = auc(&outcomes, seed)?;
    let by_count = by_count(judged, buckets);
    let counted: u64 = by_count.iter().map(|bucket| bucket.share.n).sum();
    Some(RuleAudit {
        rule: rule.to_owned(),
        sentences: judged.len(),
        evidence: SampleSize::count(&outcomes),
        abstained: abstained.len() as f64 / judged.len() as f64,
        mean_true: mean_reward(&outcomes, true),
        mean_false: mean_reward(&outcomes, false),
        auc: area,
        auc_within_questions: auc_within_questions(&outcomes, seed),
        rank_correlation: rank_correlation(&outcomes),
        order: order(&by_count),
        uncounted: judged.len() - counted as usize,
        by_count,
        by_reward: by_reward(judged),
        of_abstained: CorrectShare::of_questions(abstained),
    })
}

fn mean_reward(outcomes: &[RewardedSentence], is_true: bool) -> f64 {
    let mut rewards = Vec::new();
    for outcome in outcomes {
        if outcome.is_true == is_true {
            rewards.push(f64::from(outcome.reward));
        }
    }
    rewards.iter().sum::<f64>() / rewards.len() as f64
}

/// Index of a sentence's question, and true if the sentence is true.
type QuestionTruth = (usize, bool);

fn truth_of(sentence: &ScoredSentence<'_>) -> QuestionTruth {
    (sentence.question, sentence.is_true)
}

fn by_count(judged: &[ScoredSentence<'_>], buckets: &CountBuckets) -> Vec<BucketShare> {
    let mut by_bucket: Vec<Vec<QuestionTruth>> = vec![Vec::new(); buckets.number()];
    for sentence in judged {
        if let Placement::In(index) = buckets.classify(&sentence.verdict) {
            by_bucket[index].push(truth_of(sentence));
        }
    }
    let mut shares = Vec::new();
    for (bucket, truths) in buckets.iter().zip(by_bucket) {
        if let Some(share) = CorrectShare::of_questions(truths) {
            shares.push(BucketShare { bucket, share });
        }
    }
    shares
}

fn by_reward(judged: &[ScoredSentence<'_>]) -> Vec<ReliabilityPoint> {
    let mut rewards: Vec<(f32, QuestionTruth)> = Vec::new();
    for sentence in judged {
        if let Some(reward) = sentence.verdict.reward {
            rewards.push((reward + 0.0, truth_of(sentence))); // + 0 turns −0 into 0
        }
    }
    rewards.sort_by(|one, other| one.0.total_cmp(&other.0));
    let values: Vec<&[(f32, QuestionTruth)]> =
        rewards.chunk_by(|one, other| one.0 == other.0).collect();
    if values.len() <= MAX_REWARDS {
        return values.into_iter().filter_map(reward_point).collect();
    }
    // Equal rewards stay in one bin, so the bins are only about equal.
    let mut points = Vec::new();
    let mut bin_start = 0;
    let mut value_start = 0;
    let mut bin = 0;
    for value in values {
        let bin_of_value = value_start * MAX_REWARDS / rewards.len();
        if bin_of_value != bin {
            points.extend(reward_point(&rewards[bin_start..value_start]));
            bin = bin_of_value;
            bin_start = value_start;
        }
        value_start += value.len();
    }
    points.extend(reward_point(&rewards[bin_start..]));
    points
}

/// Returns P(true) of sentences with neighbouring rewards; `None` without sentences.
fn reward_point(bin: &[(f32, QuestionTruth)]) -> Option<ReliabilityPoint> {
    let lowest = bin.first()?.0;
    let highest = bin.last()?.0;
    let label = if lowest == highest {
        format!("{lowest:+.3}")
    } else {
        format!("{lowest:+.3} to {highest:+.3}")
    };
    let share = CorrectShare::of_questions(bin.iter().map(|(_, truth)| *truth))?;
    Some(ReliabilityPoint { label, share })
}

#[cfg(test)]
mod tests {
    use corver_core::SentenceVerdict;

    use super::super::bucket::tests::counted;
    use super::*;

    fn judged(all: &[(Option<f32>, u64, bool)]) -> Vec<ScoredSentence<'static>> {
        let one = |(question, &(reward, count, is_true)): (usize, &(Option<f32>, u64, bool))| {
            let verdict = reward.map_or_else(SentenceVerdict::default, |_| SentenceVerdict {
                reward,
                ..counted(count, 20)
            });
            ScoredSentence { question, sentence: "", is_true, verdict }
        };
        all.iter().enumerate().map(one).collect()
    }

    fn of(all: &[(Option<f32>, u64, bool)]) -> RuleAudit {
        audit("r", &judged(all), &CountBuckets::default(), 1).unwrap()
    }

    #[test]
    fn audit_finds_rule_rewarding_truth() {
        let good = of(&[
            (Some(0.1), 20, true),
            (Some(-0.3), 0, false),
            (None, 0, true),
            (Some(-0.3), 0, false),
        ]
        .repeat(20));
        assert_eq!(
            (good.finding(), good.sentences, good.abstained),
            (AuditFinding::Truer, 80, 0.25)
        );
        // The reward of an abstention is 0, which is more than −0.3.
        assert_eq!(good.auc, Auc { value: 1.0, interval: Some(Interval { low: 1.0, high: 1.0 }) });
        assert!(
            (good.mean_true - 0.05).abs() < 1e-6 && (good.mean_false + 0.3).abs() < 1e-6,
            "{good:?}"
        );
        let shares: Vec<_> = good
            .by_reward
            .iter()
            .map(|point| (point.label.as_str(), point.share.n, point.share.share))
            .collect();
        assert_eq!(shares, [("-0.300", 40, 0.0), ("+0.100", 20, 1.0)]);
        assert_eq!(good.of_abstained.unwrap().n, 20);
        assert_eq!((good.by_count.len(), good.uncounted, good.order), (2, 20, ShareOrder::Rising));
    }

    #[test]
    fn audit_finds_rule_rewarding_falsehood_or_nothing() {
        assert_eq!(
            of(&[(Some(0.1), 20, false), (Some(-0.3), 0, true)].repeat(30)).finding(),
            AuditFinding::Falser
        );
        let constant = of(&[(Some(0.1), 3, false), (Some(0.1), 3, true)].repeat(30));
        assert_eq!((constant.finding(), constant.auc.value), (AuditFinding::Inconclusive, 0.5));
        assert_eq!(audit("r", &judged(&[(Some(0.1), 3, true)]), &CountBuckets::default(), 1), None);
        assert_eq!(audit("r", &[], &CountBuckets::default(), 1), None);
    }

    #[test]
    fn audit_needs_enough_sentences_for_verdict() {
        let two = of(&[(Some(0.1), 20, true), (Some(-0.3), 0, false)]);
        assert_eq!(
            (two.finding(), two.auc),
            (AuditFinding::TooFew, Auc { value: 1.0, interval: None })
        );
        let expected = "r: no verdict; that takes 30 true and 30 false sentences, of 10 questions or more each, \
                        and there are 1 and 1, of 1 and 1 questions";
        assert_eq!(two.summary(), expected);
    }

    #[test]
    fn audit_finds_rule_ranking_only_between_questions() {
        // Each question has sentences of one reward; those of the first half are true more often.
        let all: Vec<_> = (0..400)
            .map(|n| {
                (Some(if n < 200 { 0.1 } else { -0.3 }), 3, n % 10 < if n < 200 { 8 } else { 2 })
            })
            .collect();
        let mut judged = judged(&all);
        judged.iter_mut().for_each(|judged| judged.question /= 10);
        let audit = audit("r", &judged, &CountBuckets::default(), 1).unwrap();
        assert_eq!(
            (audit.finding(), audit.auc_within_questions.unwrap().value),
            (AuditFinding::BetweenQuestions, 0.5)
        );
        let summary = audit.summary();
        assert!(summary.contains("among the answers to one question"), "{summary}");
    }

    #[test]
    fn audit_finds_rule_inverted_within_questions() {
        // Questions of the first half have mostly true sentences and higher rewards; within each,
        // the false sentence has the highest.
        let all: Vec<_> = (0..400)
            .map(|n| {
                let (is_true, base) =
                    (n % 10 < if n < 200 { 8 } else { 2 }, if n < 200 { 10.0 } else { 0.0 });
                (Some(if is_true { base } else { base + 1.0 }), 3, is_true)
            })
            .collect();
        let mut judged = judged(&all);
        judged.iter_mut().for_each(|judged| judged.question /= 10);
        let audit = audit("r", &judged, &CountBuckets::default(), 1).unwrap();
        assert!(
            audit.auc.interval.unwrap().low > 0.5
                && audit.finding() == AuditFinding::FalserWithinQuestions,
            "{audit:?}"
        );
        assert!(audit.summary().contains("do not train with it"), "{}", audit.summary());
    }

    #[test]
    fn audit_finds_rule_right_only_within_questions() {
        // Questions of the first half have mostly true sentences and lower rewards; within each,
        // the true sentence has the highest.
        let all: Vec<_> = (0..400)
            .map(|n| {
                let is_true = n % 10 < if n < 200 { 8 } else { 2 };
                let base = if n < 200 { 0.0 } else { 10.0 };
                (Some(if is_true { base + 1.0 } else { base }), 3, is_true)
            })
            .collect();
        let mut judged = judged(&all);
        judged.iter_mut().for_each(|judged| judged.question /= 10);
        let audit = audit("r", &judged, &CountBuckets::default(), 1).unwrap();
        assert!(
            audit.auc.interval.unwrap().high < 0.5
                && audit.finding() == AuditFinding::TruerWithinQuestions,
            "{audit:?}"
        );
        let summary = audit.summary();
        assert!(summary.contains("truer sentence, but not over all questions"), "{summary}");
        assert!(!summary.contains("do not train with it"), "{summary}");
    }

    #[test]
    fn audit_bins_many_distinct_rewards() {
        let all: Vec<_> =
            (0..1000).map(|n| (Some(n as f32 / 1000.0), 3, n % 1000 >= 500)).collect();
        let bins = of(&all).by_reward;
        assert_eq!(bins.len(), 10);
        assert!(bins.iter().all(|bin| bin.share.n == 100), "{bins:?}");
        assert_eq!((bins[4].share.share, bins[5].share.share), (0.0, 1.0));
        assert_eq!(bins[0].label, "+0.000 to +0.099");
        // Half of all sentences have the same reward.
        let all: Vec<_> = (0..1000)
            .map(|n| (Some(if n < 500 { 0.0 } else { n as f32 }), 3, n % 2 == 0))
            .collect();
        let bins = of(&all).by_reward;
        assert_eq!((bins[0].share.n, bins.iter().map(|bin| bin.share.n).sum::<u64>()), (500, 1000));
    }
}
