//! The rule audit: does a higher reward mean a truer sentence, before anyone trains?

use serde::Serialize;

use super::bucket::{Buckets, Place};
use super::ranking::{
    Auc, Evidence, Interval, MIN_QUESTIONS, MIN_SENTENCES, Outcome, auc, auc_within_questions,
    rank_correlation,
};
use super::sample::Judged;
use super::table::{BucketShare, Order, Point, Share, order};

/// Rewards of more values than this are put into as many bins.
const MAX_REWARDS: usize = 10;

/// What a rule's rewards say of truth.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RuleAudit {
    /// Its name.
    pub rule: String,
    /// Sentences whose truth is known.
    pub sentences: usize,
    /// How many of these are true and false, and of how many questions.
    pub evidence: Evidence,
    /// Share of them that the rule abstains from, which pays 0.
    pub abstained: f64,
    /// Reward of a true sentence, on average.
    pub mean_true: f64,
    /// Reward of a false one.
    pub mean_false: f64,
    /// Whether true sentences earn more than false ones.
    pub auc: Auc,
    /// The same within the answers to a question, which is what GRPO compares; `None` where no
    /// question has both.
    pub auc_within_questions: Option<Auc>,
    /// Spearman's ρ of reward and truth; `None` where all rewards are the same.
    pub rank_correlation: Option<f64>,
    /// P(true) by the count that decided.
    pub by_count: Vec<BucketShare>,
    /// Whether the shares rise from bucket to bucket.
    pub order: Order,
    /// Sentences that are in no bucket: no count decided, or counting was stopped before the last
    /// bucket.
    pub uncounted: usize,
    /// P(true) by reward, lowest first, of sentences that are judged: each value, or bins of about
    /// as many sentences.
    pub by_reward: Vec<Point>,
    /// P(true) of those that the rule abstains from.
    pub of_abstained: Option<Share>,
}

/// What an audit comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finding {
    /// True sentences earn more, by more than chance.
    Truer,
    /// They do, but not among the answers to one question, which is all that GRPO compares.
    BetweenQuestions,
    /// False sentences earn more, by more than chance.
    Falser,
    /// They do among the answers to one question, whatever holds between questions.
    FalserWithinQuestions,
    /// Neither.
    Nothing,
    /// There are too few sentences, or of too few questions, to say anything:
    /// [`Evidence::is_enough`].
    TooFew,
}

impl RuleAudit {
    /// By the intervals of the AUC.
    #[must_use]
    pub fn finding(&self) -> Finding {
        let Some(Interval { low, high }) = self.auc.interval else { return Finding::TooFew };
        let within = self.within_questions();
        if within.is_some_and(|within| within.high < 0.5) {
            Finding::FalserWithinQuestions
        } else if low > 0.5 && within.is_none_or(|within| within.low > 0.5) {
            Finding::Truer
        } else if low > 0.5 {
            Finding::BetweenQuestions
        } else if high < 0.5 {
            Finding::Falser
        } else {
            Finding::Nothing
        }
    }

    fn within_questions(&self) -> Option<Interval> {
        self.auc_within_questions?.interval
    }

    /// The finding in a sentence.
    #[must_use]
    pub fn summary(&self) -> String {
        let Some(Interval { low, high }) = self.auc.interval else { return self.told_too_few() };
        let finding = match self.finding() {
            Finding::Truer => "a higher reward means a truer sentence",
            Finding::BetweenQuestions => {
                "a higher reward means a truer sentence, but nothing shows it among the answers to one question, which is all that training compares"
            }
            Finding::Falser => "a higher reward means a falser sentence; do not train with it",
            Finding::FalserWithinQuestions => {
                "among the answers to one question, which is all that training compares, a higher reward means a falser sentence; do not train with it"
            }
            Finding::Nothing | Finding::TooFew => {
                "nothing shows that a higher reward means a truer sentence"
            }
        };
        let won = 100.0 * self.auc.value;
        let [low, high] = [low, high].map(|end| 100.0 * end);
        let unseen = match (self.within_questions(), self.auc_within_questions) {
            (Some(_), _) => "",
            (None, Some(_)) => {
                "; too few questions have both, so what training compares could not be looked at"
            }
            (None, None) => {
                "; no question has both, so what training compares could not be looked at"
            }
        };
        format!(
            "{}: {finding}; of a true and a false one the true one earns more in {won:.1} % of cases (95 %: {low:.1} to {high:.1}), ties counted half{unseen}",
            self.rule
        )
    }

    fn told_too_few(&self) -> String {
        let Evidence { truths, questions_with_truths, falsehoods, questions_with_falsehoods } =
            self.evidence;
        format!(
            "{}: no verdict; that takes {MIN_SENTENCES} true and {MIN_SENTENCES} false sentences, of {MIN_QUESTIONS} questions or more each, and there are {truths} and {falsehoods}, of {questions_with_truths} and {questions_with_falsehoods} questions",
            self.rule
        )
    }
}

/// Audits a rule; `None` unless there are true sentences and false ones. `seed` decides the draws
/// of the interval.
#[must_use]
pub fn audit(rule: &str, judged: &[Judged<'_>], buckets: &Buckets, seed: u64) -> Option<RuleAudit> {
    let paid = |sentence: &Judged<'_>| sentence.verdict.reward.unwrap_or(0.0);
    let outcomes: Vec<Outcome> = judged
        .iter()
        .map(|judged| Outcome {
            question: judged.question,
            reward: paid(judged),
            is_true: judged.is_true,
        })
        .collect();
    let auc = auc(&outcomes, seed)?;
    let mean = |wanted: bool| {
        let own = outcomes.iter().filter(|outcome| outcome.is_true == wanted);
        own.clone().map(|outcome| f64::from(outcome.reward)).sum::<f64>() / own.count() as f64
    };
    let by_count = by_count(judged, buckets);
    let counted: u64 = by_count.iter().map(|bucket| bucket.share.n).sum();
    let abstained: Vec<Truth> =
        judged.iter().filter(|judged| judged.verdict.reward.is_none()).map(of_question).collect();
    Some(RuleAudit {
        rule: rule.to_owned(),
        sentences: judged.len(),
        evidence: Evidence::of(&outcomes),
        abstained: abstained.len() as f64 / judged.len() as f64,
        mean_true: mean(true),
        mean_false: mean(false),
        auc,
        auc_within_questions: auc_within_questions(&outcomes, seed),
        rank_correlation: rank_correlation(&outcomes),
        order: order(&by_count),
        uncounted: judged.len() - counted as usize,
        by_count,
        by_reward: by_reward(judged),
        of_abstained: Share::of_questions(abstained),
    })
}

/// The number of a sentence's question, and whether it is true.
type Truth = (usize, bool);

fn of_question(judged: &Judged<'_>) -> Truth {
    (judged.question, judged.is_true)
}

fn by_count(judged: &[Judged<'_>], buckets: &Buckets) -> Vec<BucketShare> {
    let mut by_bucket: Vec<Vec<Truth>> = vec![Vec::new(); buckets.number()];
    for sentence in judged {
        if let Place::In(place) = buckets.place(&sentence.verdict) {
            by_bucket[place].push(of_question(sentence));
        }
    }
    let shares = buckets.iter().zip(by_bucket);
    let of_bucket =
        |(bucket, truths)| Share::of_questions(truths).map(|share| BucketShare { bucket, share });
    shares.filter_map(of_bucket).collect()
}

fn by_reward(judged: &[Judged<'_>]) -> Vec<Point> {
    let reward =
        |sentence: &Judged<'_>| Some((sentence.verdict.reward? + 0.0, of_question(sentence))); // −0 is 0
    let mut paid: Vec<(f32, Truth)> = judged.iter().filter_map(reward).collect();
    paid.sort_by(|one, other| one.0.total_cmp(&other.0));
    let values: Vec<&[(f32, Truth)]> = paid.chunk_by(|one, other| one.0 == other.0).collect();
    let point = |bin: &[(f32, Truth)]| {
        let (lowest, highest) = (bin.first()?.0, bin.last()?.0);
        let label = if lowest == highest {
            format!("{lowest:+.3}")
        } else {
            format!("{lowest:+.3} to {highest:+.3}")
        };
        Share::of_questions(bin.iter().map(|(_, truth)| *truth)).map(|share| Point { label, share })
    };
    if values.len() <= MAX_REWARDS {
        return values.into_iter().filter_map(point).collect();
    }
    // Equal rewards stay together, so the bins are only about equal.
    let bin_of = |begins: usize| begins * MAX_REWARDS / paid.len();
    let mut begins = 0;
    let starts: Vec<(usize, usize)> = values
        .iter()
        .map(|value| {
            let start = begins;
            begins += value.len();
            (bin_of(start), begins)
        })
        .collect();
    let mut from = 0;
    let bins = starts.chunk_by(|one, other| one.0 == other.0).filter_map(|bin| {
        let to = bin.last()?.1;
        let points = point(&paid[from..to]);
        from = to;
        points
    });
    bins.collect()
}

#[cfg(test)]
mod tests {
    use corver_core::Verdict;

    use super::super::bucket::tests::counted;
    use super::*;

    fn judged(all: &[(Option<f32>, u64, bool)]) -> Vec<Judged<'static>> {
        let one = |(question, &(reward, count, is_true)): (usize, &(Option<f32>, u64, bool))| {
            let verdict =
                reward.map_or_else(Verdict::default, |_| Verdict { reward, ..counted(count, 20) });
            Judged { question, sentence: "", is_true, verdict }
        };
        all.iter().enumerate().map(one).collect()
    }

    fn of(all: &[(Option<f32>, u64, bool)]) -> RuleAudit {
        audit("r", &judged(all), &Buckets::default(), 1).unwrap()
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
        assert_eq!((good.finding(), good.sentences, good.abstained), (Finding::Truer, 80, 0.25));
        // An abstention pays 0, which is more than −0.3.
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
        assert_eq!((good.by_count.len(), good.uncounted, good.order), (2, 20, Order::Kept));
    }

    #[test]
    fn audit_finds_rule_rewarding_falsehood_or_nothing() {
        assert_eq!(
            of(&[(Some(0.1), 20, false), (Some(-0.3), 0, true)].repeat(30)).finding(),
            Finding::Falser
        );
        let constant = of(&[(Some(0.1), 3, false), (Some(0.1), 3, true)].repeat(30));
        assert_eq!((constant.finding(), constant.auc.value), (Finding::Nothing, 0.5));
        assert_eq!(audit("r", &judged(&[(Some(0.1), 3, true)]), &Buckets::default(), 1), None);
        assert_eq!(audit("r", &[], &Buckets::default(), 1), None);
    }

    #[test]
    fn audit_needs_enough_sentences_for_verdict() {
        let two = of(&[(Some(0.1), 20, true), (Some(-0.3), 0, false)]);
        assert_eq!((two.finding(), two.auc), (Finding::TooFew, Auc { value: 1.0, interval: None }));
        let expected = "r: no verdict; that takes 30 true and 30 false sentences, of 10 questions or more each, \
                        and there are 1 and 1, of 1 and 1 questions";
        assert_eq!(two.summary(), expected);
    }

    #[test]
    fn audit_finds_rule_ranking_only_between_questions() {
        // Each question has sentences of one reward, the famous half of them more true ones.
        let all: Vec<_> = (0..400)
            .map(|n| {
                (Some(if n < 200 { 0.1 } else { -0.3 }), 3, n % 10 < if n < 200 { 8 } else { 2 })
            })
            .collect();
        let mut judged = judged(&all);
        judged.iter_mut().for_each(|judged| judged.question /= 10);
        let audit = audit("r", &judged, &Buckets::default(), 1).unwrap();
        assert_eq!(
            (audit.finding(), audit.auc_within_questions.unwrap().value),
            (Finding::BetweenQuestions, 0.5)
        );
        assert!(
            audit.summary().contains("among the answers to one question"),
            "{}",
            audit.summary()
        );
    }

    #[test]
    fn audit_finds_rule_inverted_within_questions() {
        // Questions of the first half are mostly right and earn more; within each, the false
        // sentence earns the most.
        let all: Vec<_> = (0..400)
            .map(|n| {
                let (is_true, base) =
                    (n % 10 < if n < 200 { 8 } else { 2 }, if n < 200 { 10.0 } else { 0.0 });
                (Some(if is_true { base } else { base + 1.0 }), 3, is_true)
            })
            .collect();
        let mut judged = judged(&all);
        judged.iter_mut().for_each(|judged| judged.question /= 10);
        let audit = audit("r", &judged, &Buckets::default(), 1).unwrap();
        assert!(
            audit.auc.interval.unwrap().low > 0.5
                && audit.finding() == Finding::FalserWithinQuestions,
            "{audit:?}"
        );
        assert!(audit.summary().contains("do not train with it"), "{}", audit.summary());
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
        // Half of all sentences earn the same.
        let all: Vec<_> = (0..1000)
            .map(|n| (Some(if n < 500 { 0.0 } else { n as f32 }), 3, n % 2 == 0))
            .collect();
        let bins = of(&all).by_reward;
        assert_eq!((bins[0].share.n, bins.iter().map(|bin| bin.share.n).sum::<u64>()), (500, 1000));
    }
}
