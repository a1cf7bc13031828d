//! One line per step, under the names that TRL's logs use, so that existing dashboards read it.

use std::collections::{BTreeMap, BTreeSet};

use corver_core::{Channel, Rollout, SentenceTrace, StepReport, Trace};
use serde_json::{Map, Value, json};

use super::cost;

/// A step's metrics, flat. `num_tokens` is the number of completion tokens since the run began.
#[must_use]
pub fn step_metrics(
    step: usize,
    num_tokens: u64,
    seconds: f64,
    rule: &str,
    report: &StepReport,
) -> Map<String, Value> {
    let StepReport { rollouts, completions, returns, asked, update, seconds: stages } = report;
    let traces: Vec<&Trace> = completions.iter().map(|completion| &completion.trace).collect();
    let traces = traces.as_slice();
    let mut metrics = Map::new();
    let mut put = |name: &str, value: f64| metrics.insert(name.to_owned(), json!(value));

    put("step", (step + 1) as f64);
    put("num_tokens", num_tokens as f64);
    put("step_time", seconds);
    put("loss", update.loss);
    put("grad_norm", update.grad_norm);
    put("learning_rate", update.learning_rate);
    put("entropy", update.entropy);
    if let Some(kl) = update.kl {
        put("kl", kl);
    }
    put("clip_ratio/low_mean", update.clip_ratio_low);
    put("clip_ratio/high_mean", update.clip_ratio_high);
    put("clip_ratio/region_mean", update.clip_ratio_low + update.clip_ratio_high);

    if let Some(mismatch) = update.mismatch {
        put("sampling/sampling_logp_difference/mean", mismatch.difference_mean);
        put("sampling/sampling_logp_difference/max", mismatch.difference_max);
        put("sampling/importance_sampling_ratio/min", mismatch.ratio_min);
        put("sampling/importance_sampling_ratio/mean", mismatch.ratio_mean);
        put("sampling/importance_sampling_ratio/max", mismatch.ratio_max);
    }

    if let Some(critic) = update.critic {
        put("loss/value_avg", critic.loss);
        put("val/clipfrac_avg", critic.clip_ratio);
        put("val/explained_variance", critic.explained_variance);
    }
    if let Some(preference) = update.preference {
        put("rewards/pairs", preference.pairs);
        put("rewards/margins", preference.margin);
        put("rewards/accuracies", preference.accuracy);
    }

    put("reward", returns.reward);
    put("reward_std", returns.reward_std);
    put("frac_reward_zero_std", returns.frac_reward_zero_std);
    let mut reward = |name: &str, values: Vec<f64>| {
        let (mean, std) = mean_and_std(&values);
        put(&format!("rewards/{name}/mean"), mean);
        put(&format!("rewards/{name}/std"), std);
    };
    reward("judge", traces.iter().map(|trace| trace.response.judge.reward).collect());
    reward("format", traces.iter().map(|trace| trace.response.format.reward).collect());
    reward(rule, sentences(traces).map(SentenceTrace::reward).collect());
    for (rule, rewards) in channels(traces) {
        reward(rule, rewards);
    }

    lengths(rollouts, &mut put);

    let share =
        |part: usize, whole: usize| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
    let verdicts: Vec<_> =
        sentences(traces).filter_map(|sentence| sentence.verdict.as_ref()).collect();
    let counts: Vec<u64> = verdicts.iter().filter_map(|verdict| verdict.count).collect();
    let looked_up: usize = verdicts.iter().map(|verdict| verdict.lookups.len()).sum();
    let rate = traces.iter().map(|trace| trace.alignment_rate).collect::<Vec<_>>();
    put("corver/alignment_rate", mean_and_std(&rate).0);
    put(
        "corver/fallback_rate",
        share(traces.iter().filter(|trace| trace.fallback).count(), traces.len()),
    );
    put("corver/sentences", sentences(traces).count() as f64);
    if !verdicts.is_empty() {
        let abstained = verdicts.iter().filter(|verdict| verdict.reward.is_none()).count();
        put("corver/abstention_rate", share(abstained, verdicts.len()));
    }
    put("corver/counted_rate", share(counts.len(), sentences(traces).count()));
    if !counts.is_empty() {
        put(
            "corver/supported_rate",
            share(counts.iter().filter(|count| **count > 0).count(), counts.len()),
        );
    }
    put("corver/lookups", looked_up as f64);
    put("seconds/rollout", stages.rollout);
    put("seconds/extract", stages.extract);
    cost::record(asked, &mut put);
    put("seconds/rule", stages.rule);
    put("seconds/reward", stages.reward);
    put("seconds/prepare", stages.prepare);
    put("seconds/update", stages.update);
    metrics
}

fn sentences<'t>(traces: &[&'t Trace]) -> impl Iterator<Item = &'t SentenceTrace> {
    traces.iter().flat_map(|trace| &trace.sentences)
}

/// What each rule of a blend paid each sentence, before its weight, by the rule's name.
fn channels<'t>(traces: &[&'t Trace]) -> BTreeMap<&'t str, Vec<f64>> {
    let names: BTreeSet<&str> = sentences(traces)
        .flat_map(sentence_channels)
        .map(|channel| channel.rule.as_str())
        .collect();
    let reward = |sentence: &SentenceTrace, rule: &str| {
        let channel = sentence_channels(sentence).find(|channel| channel.rule == rule);
        channel.and_then(|channel| channel.reward).map_or(0.0, f64::from)
    };
    names
        .into_iter()
        .map(|rule| (rule, sentences(traces).map(|one| reward(one, rule)).collect()))
        .collect()
}

fn sentence_channels(sentence: &SentenceTrace) -> impl Iterator<Item = &Channel> {
    sentence.verdict.iter().flat_map(|verdict| &verdict.channels)
}

fn lengths(rollouts: &[Rollout], put: &mut impl FnMut(&str, f64) -> Option<Value>) {
    let mut of = |name: &str, lengths: &[f64]| {
        put(&format!("completions/mean_{name}length"), mean_and_std(lengths).0);
        put(
            &format!("completions/min_{name}length"),
            lengths.iter().copied().reduce(f64::min).unwrap_or(0.0),
        );
        put(
            &format!("completions/max_{name}length"),
            lengths.iter().copied().reduce(f64::max).unwrap_or(0.0),
        );
    };
    let length = |rollout: &Rollout| rollout.tokens.len() as f64;
    let terminated: Vec<f64> =
        rollouts.iter().filter(|rollout| rollout.finished).map(length).collect();
    of("", &rollouts.iter().map(length).collect::<Vec<_>>());
    of("terminated_", &terminated);
    let clipped = rollouts.len() - terminated.len();
    put(
        "completions/clipped_ratio",
        if rollouts.is_empty() { 0.0 } else { clipped as f64 / rollouts.len() as f64 },
    );
}

/// Mean and n − 1 standard deviation; 0 where undefined.
fn mean_and_std(values: &[f64]) -> (f64, f64) {
    if values.is_empty() {
        return (0.0, 0.0);
    }
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, if values.len() < 2 { 0.0 } else { (squares / (values.len() - 1) as f64).sqrt() })
}
