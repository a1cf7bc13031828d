//! The metrics of a step. `metrics.jsonl`, TensorBoard's file, curves and documents all use
//! [`METRICS`]. The names are those of TRL's logs if TRL has the metric, so that dashboards read them.

use std::collections::{BTreeMap, BTreeSet};

use corver_core::stats::{mean, unbiased_std};
use corver_core::{
    Channel, QueryStats, SentenceTrace, SentenceVerdict, StepReport, Trace, UpdateReport, Usage,
};
use serde_json::{Map, Value, json};

/// Measurements of one step, from which its metrics are computed.
#[derive(Clone, Copy)]
pub struct StepMeasurements<'a> {
    /// Number of the step, counted from 1.
    pub number: usize,
    /// Completion tokens since the start of the run.
    pub num_tokens: u64,
    /// Duration of the step, seconds.
    pub seconds: f64,
    /// Name of the sentence rule.
    pub rule: &'a str,
    /// Result of the optimiser.
    pub update: &'a UpdateReport,
    /// Result of all stages. `None`: supervised fine-tuning, which has only the update.
    pub report: Option<&'a StepReport>,
}

/// Declaration of a metric: its name, unit, meaning and value.
#[derive(Debug)]
pub struct Metric {
    /// Key in `metrics.jsonl`, with `RULE` in place of the name of a sentence rule.
    pub name: &'static str,
    /// Unit, [`SHARE`] for shares from 0 to 1; empty for plain numbers.
    pub unit: &'static str,
    /// Definition for documents. Empty: the metric before has one for both.
    pub meaning: &'static str,
    get: fn(&StepMeasurements<'_>) -> Option<f64>,
}

/// Unit of shares from 0 to 1.
pub const SHARE: &str = "share";
const NATS: &str = "nats per token";
const RULE_MEAN: &str = "rewards/RULE/mean";
const RULE_STD: &str = "rewards/RULE/std";
const WATCHED_MEAN: &str = "watched/RULE/mean";
const WATCHED_STD: &str = "watched/RULE/std";

/// Metrics of a step, in the order of documents.
pub const METRICS: &[Metric] = &[
    metric("step", "", |s| Some(s.number as f64)).means("number of the step, from 1"),
    metric("step_time", "seconds", |s| Some(s.seconds)).means("duration of the whole step"),
    metric("num_tokens", "tokens", |s| s.report.map(|_| s.num_tokens as f64))
        .means("length of all completions since the run began"),
    metric("reward", "", |s| Some(s.report?.returns.reward))
        .means("mean return of a completion: judge, format and sentences together"),
    metric("reward_std", "", |s| Some(s.report?.returns.reward_std))
        .means("spread of the returns within a question"),
    metric("frac_reward_zero_std", SHARE, |s| Some(s.report?.returns.frac_reward_zero_std))
        .means("questions whose completions all have the same mean return"),
    metric("rewards/judge/mean", "", |s| Some(mean(&s.per_completion(judge)?)))
        .means("mean and standard deviation of each channel; several rules have one each"),
    metric("rewards/judge/std", "", |s| Some(unbiased_std(&s.per_completion(judge)?))),
    metric("rewards/format/mean", "", |s| Some(mean(&s.per_completion(format)?))),
    metric("rewards/format/std", "", |s| Some(unbiased_std(&s.per_completion(format)?))),
    metric(RULE_MEAN, "", |_| None),
    metric(RULE_STD, "", |_| None),
    metric(WATCHED_MEAN, "", |_| None)
        .means("mean and standard deviation of the reward that a rule of weight 0 would give"),
    metric(WATCHED_STD, "", |_| None),
    metric("completions/mean_length", "tokens", |s| Some(mean(&s.lengths()?)))
        .means("length of a completion"),
    metric("completions/min_length", "tokens", |s| Some(min(&s.lengths()?))),
    metric("completions/max_length", "tokens", |s| Some(max(&s.lengths()?))),
    metric("completions/mean_terminated_length", "tokens", |s| {
        Some(mean(&s.terminated_lengths()?))
    })
    .means("length of a completion that was not cut off"),
    metric("completions/min_terminated_length", "tokens", |s| Some(min(&s.terminated_lengths()?))),
    metric("completions/max_terminated_length", "tokens", |s| Some(max(&s.terminated_lengths()?))),
    metric("completions/clipped_ratio", SHARE, |s| {
        Some(share(&s.report?.rollouts, |rollout| !rollout.finished))
    })
    .means("completions that were cut off at `rollout.max_completion_length`"),
    metric("loss", "", |s| Some(s.update.loss))
        .means("loss: the clipped surrogate and the weighted KL term, or DPO's"),
    metric("grad_norm", "", |s| Some(s.update.grad_norm))
        .means("norm of the gradient before clipping"),
    metric("learning_rate", "", |s| Some(s.update.learning_rate))
        .means("learning rate of the step"),
    metric("entropy", NATS, |s| Some(s.update.entropy))
        .means("entropy of the policy over the tokens of the completions"),
    metric("kl", NATS, |s| s.update.kl).means(
        "KL divergence (k3 estimator) from the reference: the base model, with `policy.adapter` if \
         that is set",
    ),
    metric("clip_ratio/low_mean", SHARE, |s| Some(s.report?.update.clip_ratio_low))
        .means("tokens whose ratio was clipped from below, from above, at all"),
    metric("clip_ratio/high_mean", SHARE, |s| Some(s.report?.update.clip_ratio_high)),
    metric("clip_ratio/region_mean", SHARE, |s| {
        let update = &s.report?.update;
        Some(update.clip_ratio_low + update.clip_ratio_high)
    }),
    metric("sampling/sampling_logp_difference/mean", NATS, |s| {
        Some(s.update.mismatch?.difference_mean)
    })
    .means(
        "distance of the log-probabilities noted while sampling from the policy's own: rounding, \
         or more where an engine samples ([integrations.md](integrations.md#sampling-mismatch))",
    ),
    metric("sampling/sampling_logp_difference/max", NATS, |s| {
        Some(s.update.mismatch?.difference_max)
    }),
    metric("sampling/importance_sampling_ratio/min", "", |s| Some(s.update.mismatch?.ratio_min))
        .means("ratio of the policy's probabilities to those noted while sampling"),
    metric("sampling/importance_sampling_ratio/mean", "", |s| Some(s.update.mismatch?.ratio_mean)),
    metric("sampling/importance_sampling_ratio/max", "", |s| Some(s.update.mismatch?.ratio_max)),
    metric("loss/value_avg", "", |s| Some(s.update.critic?.loss)).means("loss of PPO's critic"),
    metric("val/clipfrac_avg", SHARE, |s| Some(s.update.critic?.clip_ratio))
        .means("tokens whose value was clipped"),
    metric("val/explained_variance", "", |s| Some(s.update.critic?.explained_variance))
        .means("1 − the share of the targets' variance that the critic's values miss"),
    metric("rewards/pairs", "pairs", |s| Some(s.update.preference?.pairs))
        .means("DPO's pairs: questions whose completions differ in their mean return"),
    metric("rewards/margins", "", |s| Some(s.update.preference?.margin))
        .means("β times the difference of a pair's log-ratios, before the update"),
    metric("rewards/accuracies", SHARE, |s| Some(s.update.preference?.accuracy))
        .means("pairs for which this is above 0"),
    metric("corver/alignment_rate", SHARE, |s| {
        Some(mean(&s.per_completion(|trace| trace.alignment_rate)?))
    })
    .means("tokens of the scored blocks that belong to a sentence"),
    metric("corver/fallback_rate", SHARE, |s| {
        Some(share(&s.report?.completions, |completion| completion.trace.fallback))
    })
    .means(
        "completions whose sentences were not scored: there were none, or too few tokens were \
         aligned to them",
    ),
    metric("corver/sentences", "sentences", |s| Some(s.sentences()?.len() as f64))
        .means("sentences of the step"),
    metric("corver/replies_not_understood", "sentences", |s| Some(s.report?.not_understood as f64))
        .means("sentences without triplets because the extractor's reply was not understood"),
    metric("corver/abstention_rate", SHARE, |s| {
        let verdicts = s.verdicts().filter(|verdicts| !verdicts.is_empty())?;
        Some(share(&verdicts, |verdict| verdict.reward.is_none()))
    })
    .means("of the sentences shown to the rule, those that it abstained from"),
    metric("corver/counted_rate", SHARE, |s| {
        Some(share(&s.sentences()?, |sentence| count(sentence).is_some()))
    })
    .means("sentences that a count decided"),
    metric("corver/supported_rate", SHARE, |s| {
        let counts: Vec<u64> = s.sentences()?.into_iter().filter_map(count).collect();
        (!counts.is_empty()).then(|| share(&counts, |count| *count > 0))
    })
    .means("of these, those whose entities occur together at all"),
    metric("corver/lookups", "queries", |s| {
        Some(s.verdicts()?.iter().map(|verdict| verdict.lookups.len()).sum::<usize>() as f64)
    })
    .means("queries that the counts took"),
    metric("backends/count", "requests", |s| Some(s.report?.backend_stats.count.requests as f64))
        .means(
            "requests of the rules, by kind, repeated ones included; the last three only if used",
        ),
    metric("backends/nli", "requests", |s| {
        Some(used(s.report?.backend_stats.nli)?.requests as f64)
    }),
    metric("backends/chat", "requests", |s| {
        Some(used(s.report?.backend_stats.chat)?.requests as f64)
    }),
    metric("backends/passages", "requests", |s| {
        Some(used(s.report?.backend_stats.passages)?.requests as f64)
    }),
    metric("backends/prompt_tokens", "tokens", |s| Some(s.usage()?.prompt_tokens as f64))
        .means("tokens to the chat model, and of its replies; once for each prompt of a run"),
    metric("backends/completion_tokens", "tokens", |s| Some(s.usage()?.completion_tokens as f64)),
    metric("seconds/rollout", "seconds", |s| Some(s.report?.seconds.rollout)).means(
        "duration of the stages; `reward` holds the six before it. On a GPU, and with an engine, \
         extraction begins during the rollout, and `extract` is the time after it; `prepare` (the \
         reference's log-probabilities) runs concurrently with the reward",
    ),
    metric("seconds/extract", "seconds", |s| Some(s.report?.seconds.extract)),
    metric("seconds/count", "seconds", |s| Some(s.report?.backend_stats.count.seconds)),
    metric("seconds/nli", "seconds", |s| Some(used(s.report?.backend_stats.nli)?.seconds)),
    metric("seconds/chat", "seconds", |s| Some(used(s.report?.backend_stats.chat)?.seconds)),
    metric("seconds/passages", "seconds", |s| {
        Some(used(s.report?.backend_stats.passages)?.seconds)
    }),
    metric("seconds/rule", "seconds", |s| Some(s.report?.seconds.rule)),
    metric("seconds/reward", "seconds", |s| Some(s.report?.seconds.reward)),
    metric("seconds/prepare", "seconds", |s| Some(s.report?.seconds.prepare)),
    metric("seconds/update", "seconds", |s| Some(s.report?.seconds.update)),
];

const fn metric(
    name: &'static str,
    unit: &'static str,
    get: fn(&StepMeasurements<'_>) -> Option<f64>,
) -> Metric {
    Metric { name, unit, meaning: "", get }
}

impl Metric {
    const fn means(self, meaning: &'static str) -> Self {
        Self { meaning, ..self }
    }

    /// Returns the declaration of a key in `metrics.jsonl`.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        METRICS.iter().find(|metric| match metric.name.split_once("RULE") {
            Some((start, end)) => name.starts_with(start) && name.ends_with(end),
            None => name == metric.name,
        })
    }
}

/// Returns the metrics of a step that it has, by name.
#[must_use]
pub fn step_metrics(step: &StepMeasurements<'_>) -> Map<String, Value> {
    let mut metrics = Map::new();
    for metric in METRICS {
        if let Some(value) = (metric.get)(step) {
            metrics.insert(metric.name.to_owned(), json!(value));
        }
    }
    let mut insert = |names: [&str; 2], rule: &str, rewards: &[f64]| {
        let [mean_name, std_name] = names.map(|name| name.replace("RULE", rule));
        metrics.insert(mean_name, json!(mean(rewards)));
        metrics.insert(std_name, json!(unbiased_std(rewards)));
    };
    for (rule, rewards) in step.rules() {
        insert([RULE_MEAN, RULE_STD], rule, &rewards);
    }
    for (rule, rewards) in step.channel_rewards(|channel| channel.weight == 0.0) {
        insert([WATCHED_MEAN, WATCHED_STD], rule, &rewards);
    }
    metrics
}

impl<'a> StepMeasurements<'a> {
    /// Returns a value of every completion's trace.
    fn per_completion(&self, value: fn(&Trace) -> f64) -> Option<Vec<f64>> {
        let completions = self.report?.completions.iter();
        Some(completions.map(|completion| value(&completion.trace)).collect())
    }

    /// Returns the reward of every sentence by the run's rule, and by each rule of a blend before the
    /// weights.
    fn rules(&self) -> BTreeMap<&'a str, Vec<f64>> {
        let mut rules = BTreeMap::new();
        if self.report.is_some() {
            let sentences = self.sentences().unwrap_or_default();
            rules.insert(self.rule, sentences.iter().map(|sentence| sentence.reward()).collect());
        }
        rules.extend(self.channel_rewards(|channel| channel.weight != 0.0));
        rules
    }

    /// Returns the reward of every sentence by each of these rules of a blend, before the weights.
    fn channel_rewards(&self, is_included: fn(&Channel) -> bool) -> BTreeMap<&'a str, Vec<f64>> {
        let sentences = self.sentences().unwrap_or_default();
        let mut names = BTreeSet::new();
        for sentence in &sentences {
            let included = channels(sentence).filter(|channel| is_included(channel));
            names.extend(included.map(|channel| channel.rule.as_str()));
        }
        let mut rules = BTreeMap::new();
        for rule in names {
            let mut rewards = Vec::with_capacity(sentences.len());
            for sentence in &sentences {
                let channel = channels(sentence).find(|channel| channel.rule == rule);
                rewards.push(channel.and_then(|channel| channel.reward).map_or(0.0, f64::from));
            }
            rules.insert(rule, rewards);
        }
        rules
    }

    fn sentences(&self) -> Option<Vec<&'a SentenceTrace>> {
        let completions = self.report?.completions.iter();
        Some(completions.flat_map(|completion| &completion.trace.sentences).collect())
    }

    fn verdicts(&self) -> Option<Vec<&'a SentenceVerdict>> {
        let sentences = self.sentences()?.into_iter();
        Some(sentences.filter_map(|sentence| sentence.verdict.as_ref()).collect())
    }

    fn lengths(&self) -> Option<Vec<f64>> {
        Some(self.report?.rollouts.iter().map(|rollout| rollout.tokens.len() as f64).collect())
    }

    fn terminated_lengths(&self) -> Option<Vec<f64>> {
        let terminated = self.report?.rollouts.iter().filter(|rollout| rollout.finished);
        Some(terminated.map(|rollout| rollout.tokens.len() as f64).collect())
    }

    /// Returns the tokens of the chats. `None`: there were no chats.
    fn usage(&self) -> Option<Usage> {
        let stats = &self.report?.backend_stats;
        used(stats.chat).map(|_| stats.usage)
    }
}

fn channels(sentence: &SentenceTrace) -> impl Iterator<Item = &Channel> {
    sentence.verdict.iter().flat_map(|verdict| &verdict.channels)
}

fn judge(trace: &Trace) -> f64 {
    trace.response.judge.reward
}

fn format(trace: &Trace) -> f64 {
    trace.response.format.reward
}

fn count(sentence: &SentenceTrace) -> Option<u64> {
    sentence.verdict.as_ref()?.count
}

/// Returns the statistics if there were requests.
fn used(stats: QueryStats) -> Option<QueryStats> {
    (stats.requests > 0).then_some(stats)
}

/// Returns the share of `items` that match the predicate; 0 if there are none.
fn share<T>(items: &[T], predicate: fn(&T) -> bool) -> f64 {
    mean(&items.iter().map(|item| f64::from(predicate(item))).collect::<Vec<_>>())
}

/// Returns the smallest value; 0 for no values.
fn min(values: &[f64]) -> f64 {
    values.iter().copied().reduce(f64::min).unwrap_or(0.0)
}

/// Returns the largest value; 0 for no values.
fn max(values: &[f64]) -> f64 {
    values.iter().copied().reduce(f64::max).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use corver_core::{BackendStats, ReturnStats, StageSeconds};

    use super::*;

    #[test]
    fn step_metrics_cover_only_performed_work() {
        let chat = QueryStats { requests: 3, seconds: 0.5 };
        let report = StepReport {
            rollouts: Vec::new(),
            completions: Vec::new(),
            returns: ReturnStats::default(),
            backend_stats: BackendStats { chat, ..BackendStats::default() },
            not_understood: 0,
            update: UpdateReport::default(),
            seconds: StageSeconds::default(),
        };
        let step = StepMeasurements {
            number: 1,
            num_tokens: 0,
            seconds: 0.5,
            rule: "first",
            update: &report.update,
            report: Some(&report),
        };
        let metrics = step_metrics(&step);
        for name in metrics.keys() {
            assert!(Metric::find(name).is_some(), "{name} is not declared");
        }
        let requests = metrics.keys().filter(|name| name.starts_with("backends/"));
        let expected = [
            "backends/chat",
            "backends/completion_tokens",
            "backends/count",
            "backends/prompt_tokens",
        ];
        assert!(requests.eq(expected) && !metrics.contains_key("seconds/nli"), "{metrics:?}");

        let tuned = step_metrics(&StepMeasurements { report: None, ..step });
        let expected = ["entropy", "grad_norm", "learning_rate", "loss", "step", "step_time"];
        assert!(tuned.keys().eq(expected), "the update alone: {tuned:?}");
    }
}
