//! Warnings about a run, from its metrics. Each is returned once, with its remedy.

use std::collections::{BTreeMap, BTreeSet};

use corver_core::stats::mean;
use serde_json::{Map, Value};

/// Consecutive steps with a symptom before the warning.
const STEPS: usize = 3;
/// The same for a reward that does not vary: a judge of hard questions may reject all answers of some
/// steps.
const STEPS_WITHOUT_VARIETY: usize = 10;

/// Steps over which the abstention rate is averaged: the rate of one step varies.
const ABSTENTION_STEPS: usize = 5;
/// Rise of the mean abstention rate before the warning. In docs/reproduction.md four runs with a rule
/// learn to repeat the question; three of them rise by 0.15 to 0.21, all other runs by at most 0.1.
const ABSTENTION_RISE: f64 = 0.15;

/// Largest mean distance between the sampler's log-probability of a token and the policy's, nats. A
/// server in bf16 and a trainer in float32 differ by 0.03 to 0.04 (docs/integrations.md).
const MISMATCH: f64 = 0.1;

/// Watcher of the metrics of every step.
#[derive(Debug, Default)]
pub struct Warnings {
    /// Consecutive steps with each symptom.
    streaks: BTreeMap<String, usize>,
    /// Symptoms whose warnings were returned.
    reported: BTreeSet<String>,
    /// Abstention rates of the steps since the process started.
    abstentions: Vec<f64>,
}

/// A sign in the metrics that something is wrong with the run.
struct Symptom<'a> {
    /// Name, unique among the symptoms.
    name: &'a str,
    /// True if the metrics of this step have it.
    is_present: bool,
    /// Consecutive steps before the warning.
    steps: usize,
    /// Text of the warning, with the remedy.
    warning: String,
}

impl Warnings {
    /// Returns the new warnings after a step with these metrics.
    pub fn after(&mut self, metrics: &Map<String, Value>) -> Vec<String> {
        let mut symptoms = symptoms(metrics);
        symptoms.extend(constant_rewards(metrics));
        symptoms.extend(self.avoided_facts(metrics));
        let mut warnings = Vec::new();
        for symptom in symptoms {
            let streak = self.streaks.entry(symptom.name.to_owned()).or_default();
            *streak = if symptom.is_present { *streak + 1 } else { 0 };
            if *streak >= symptom.steps && self.reported.insert(symptom.name.to_owned()) {
                warnings.push(symptom.warning);
            }
        }
        warnings
    }

    /// Returns the symptom of a rule that abstains from more sentences than at first; `None` before
    /// there are steps to compare.
    fn avoided_facts(&mut self, metrics: &Map<String, Value>) -> Option<Symptom<'static>> {
        let rate = metrics.get("corver/abstention_rate")?.as_f64()?;
        self.abstentions.push(rate);
        let num_later = self.abstentions.len().checked_sub(ABSTENTION_STEPS)?;
        if num_later < ABSTENTION_STEPS {
            return None;
        }
        let first = mean(&self.abstentions[..ABSTENTION_STEPS]);
        let last = mean(&self.abstentions[num_later..]);
        Some(Symptom {
            name: "avoided facts",
            is_present: last > first + ABSTENTION_RISE,
            steps: 1,
            warning: format!(
                "the rule abstained from {:.0} % of the sentences in the first {ABSTENTION_STEPS} \
                 steps, and from {:.0} % in the last: the policy avoids facts, since a sentence \
                 without a fact has the reward 0; raise the rewards of the other sentences \
                 (rule.settings) until their mean is not below 0",
                100.0 * first,
                100.0 * last
            ),
        })
    }
}

/// Returns a metric; NaN if the step does not have it, so that no comparison holds.
fn value(metrics: &Map<String, Value>, name: &str) -> f64 {
    metrics.get(name).and_then(Value::as_f64).unwrap_or(f64::NAN)
}

/// Returns the symptoms that every run may have.
fn symptoms(metrics: &Map<String, Value>) -> Vec<Symptom<'static>> {
    // A rule that requests replies of models need not count.
    let requests_models =
        metrics.contains_key("backends/nli") || metrics.contains_key("backends/chat");
    vec![
        Symptom {
            name: "rate",
            // The first step of a warm-up has it by design.
            is_present: value(metrics, "learning_rate") == 0.0 && value(metrics, "step") != 1.0,
            steps: 1,
            warning: "this step had the learning rate 0, so it changed nothing: see \
                      update.learning_rate"
                .into(),
        },
        Symptom {
            name: "spread",
            is_present: value(metrics, "frac_reward_zero_std") == 1.0,
            steps: STEPS,
            warning: format!(
                "in {STEPS} steps all completions of a question had the same return, so there was \
                 nothing to learn: raise rollout.temperature or rollout.num_generations, or take \
                 questions that the model answers neither always nor never"
            ),
        },
        Symptom {
            name: "abstention",
            is_present: value(metrics, "corver/abstention_rate") == 1.0,
            steps: STEPS,
            warning: format!(
                "in {STEPS} steps the rule abstained from every sentence; traces.jsonl has its \
                 reasons: triplets are the extractor's (extract.model, extract.prompt), evidence is \
                 the questions' (question.train)"
            ),
        },
        Symptom {
            name: "count",
            is_present: value(metrics, "corver/counted_rate") == 0.0
                && value(metrics, "corver/abstention_rate") < 1.0
                && !requests_models,
            steps: STEPS,
            warning: format!(
                "in {STEPS} steps no count decided a sentence: see in traces.jsonl what the \
                 extractor finds (extract.model, extract.prompt), and whether it is in the corpus \
                 (corpus.index)"
            ),
        },
        Symptom {
            name: "fallback",
            is_present: value(metrics, "corver/fallback_rate") > 0.5,
            steps: STEPS,
            warning: format!(
                "in {STEPS} steps more than half of the completions got no reward of their \
                 sentences: there were none, or too few tokens were aligned to them \
                 (corver/alignment_rate)"
            ),
        },
        Symptom {
            name: "cut off",
            is_present: value(metrics, "completions/clipped_ratio") > 0.5,
            steps: STEPS,
            warning: format!(
                "in {STEPS} steps more than half of the completions were cut off: raise \
                 rollout.max_completion_length, or request shorter answers in policy.system_prompt"
            ),
        },
        Symptom {
            name: "mismatch",
            is_present: value(metrics, "sampling/sampling_logp_difference/mean") > MISMATCH,
            steps: STEPS,
            warning: format!(
                "in {STEPS} steps the sampler's log-probabilities were more than {MISMATCH} nats a \
                 token from the policy's own: the engine serves another model, adapter or precision, \
                 or draws by other settings (docs/integrations.md)"
            ),
        },
    ]
}

/// Returns a symptom for each reward: that it was the same for all completions or sentences.
fn constant_rewards(metrics: &Map<String, Value>) -> Vec<Symptom<'_>> {
    let mut symptoms = Vec::new();
    for (name, std) in metrics {
        let Some(channel) =
            name.strip_prefix("rewards/").and_then(|name| name.strip_suffix("/std"))
        else {
            continue;
        };
        // Without an abstention rate, the rules were shown no sentence: their weight may be 0.
        let is_scored =
            matches!(channel, "judge" | "format") || metrics.contains_key("corver/abstention_rate");
        symptoms.push(Symptom {
            name,
            is_present: is_scored && std.as_f64() == Some(0.0),
            steps: STEPS_WITHOUT_VARIETY,
            warning: format!(
                "in {STEPS_WITHOUT_VARIETY} steps the reward {channel} was the same for all, here \
                 {}: it has no influence",
                value(metrics, &format!("rewards/{channel}/mean"))
            ),
        });
    }
    symptoms
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn step(change: &[(&str, f64)]) -> Map<String, Value> {
        let mut metrics = json!({
            "learning_rate": 1e-5, "frac_reward_zero_std": 0.9, "corver/abstention_rate": 0.5, "corver/counted_rate": 0.1,
            "corver/fallback_rate": 0.5, "completions/clipped_ratio": 0.5, "rewards/judge/mean": 0.5, "rewards/judge/std": 0.1,
        });
        change.iter().for_each(|(name, value)| metrics[*name] = json!(value));
        metrics.as_object().unwrap().clone()
    }

    #[test]
    fn healthy_run_gets_no_warning() {
        let mut warnings = Warnings::default();
        assert!((0..20).all(|_| warnings.after(&step(&[])).is_empty()));
    }

    #[test]
    fn rule_of_weight_zero_gets_no_warning() {
        let mut metrics = step(&[("rewards/first/mean", 0.0), ("rewards/first/std", 0.0)]);
        let _ = metrics.remove("corver/abstention_rate").unwrap();
        let mut warnings = Warnings::default();
        assert!((0..20).all(|_| warnings.after(&metrics).is_empty()));
    }

    #[test]
    fn each_warning_is_given_once_with_remedy() {
        for (name, value, steps, expected) in [
            ("learning_rate", 0.0, 1, "it changed nothing"),
            ("frac_reward_zero_std", 1.0, 3, "rollout.temperature"),
            ("corver/abstention_rate", 1.0, 3, "evidence is the questions'"),
            ("corver/counted_rate", 0.0, 3, "corpus.index"),
            ("corver/fallback_rate", 0.6, 3, "corver/alignment_rate"),
            ("completions/clipped_ratio", 0.6, 3, "rollout.max_completion_length"),
            ("sampling/sampling_logp_difference/mean", 0.2, 3, "serves another model"),
            ("rewards/judge/std", 0.0, 10, "the reward judge was the same for all, here 0.5"),
        ] {
            let mut warnings = Warnings::default();
            let reported: Vec<Vec<String>> =
                (0..20).map(|_| warnings.after(&step(&[(name, value)]))).collect();
            assert_eq!(reported.concat().len(), 1, "{name}: {reported:?}");
            assert!(reported[steps - 1].concat().contains(expected), "{name}: {reported:?}");
        }
    }

    #[test]
    fn policy_that_avoids_facts_gets_a_warning() {
        let after = |rates: &[f64]| {
            let mut warnings = Warnings::default();
            let abstained = |&rate| warnings.after(&step(&[("corver/abstention_rate", rate)]));
            rates.iter().flat_map(abstained).collect::<Vec<String>>()
        };
        // Rates of two runs of docs/reproduction.md: judge and rule (seed 1), and its higher rewards.
        let warnings = after(&[
            0.46, 0.52, 0.51, 0.50, 0.50, 0.73, 0.63, 0.55, 0.64, 0.56, 0.75, 0.63, 0.64, 0.72,
            0.81,
        ]);
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].contains("from 50 % of the sentences"), "{warnings:?}");
        let warnings = after(&[
            0.46, 0.52, 0.51, 0.48, 0.48, 0.77, 0.58, 0.48, 0.60, 0.50, 0.54, 0.55, 0.61, 0.56,
            0.54,
        ]);
        assert!(warnings.is_empty(), "{warnings:?}");
    }

    #[test]
    fn good_step_resets_warning_count() {
        let mut warnings = Warnings::default();
        let bad = step(&[("completions/clipped_ratio", 1.0)]);
        for metrics in [&bad, &bad, &step(&[]), &bad, &bad] {
            assert!(warnings.after(metrics).is_empty());
        }
        assert_eq!(warnings.after(&bad).len(), 1);
    }
}
