//! What a run's metrics say is wrong with it: each thing once, with what to change.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

/// Steps in a row that show something, before it is said.
const STEPS: usize = 3;
/// The same for a reward that never varies: a judge of hard questions may say no for some steps.
const STEPS_WITHOUT_VARIETY: usize = 10;

/// Nats that the sampler's log-probability of a token may be from the policy's own, on average. A
/// server in bf16 and a trainer in float32 differ by 0.03 to 0.04 (docs/integrations.md).
const MISMATCH: f64 = 0.1;

/// Watches the metrics of every step.
#[derive(Debug, Default)]
pub struct Warnings {
    /// For how many steps in a row each thing has been seen.
    seen: BTreeMap<String, usize>,
    told: BTreeSet<String>,
}

impl Warnings {
    /// What is to be said after a step with these metrics.
    pub fn after(&mut self, metrics: &Map<String, Value>) -> Vec<String> {
        let number = |name: &str| metrics.get(name).and_then(Value::as_f64).unwrap_or(f64::NAN);
        let mut warnings = Vec::new();
        let mut look = |what: &str, is_seen: bool, steps: usize, text: String| {
            let seen = self.seen.entry(what.to_owned()).or_default();
            *seen = if is_seen { *seen + 1 } else { 0 };
            if *seen >= steps && self.told.insert(what.to_owned()) {
                warnings.push(text);
            }
        };
        // A rule that asks models need not count.
        let asks_models =
            ["verify/nli", "verify/chat"].iter().any(|asked| metrics.contains_key(*asked));
        look(
            "rate",
            number("learning_rate") == 0.0,
            1,
            "this step had the learning rate 0, where the warm-up begins: it changed nothing"
                .into(),
        );
        look(
            "spread",
            number("frac_reward_zero_std") == 1.0,
            STEPS,
            format!(
                "in {STEPS} steps all completions of a question earned the same, so there was nothing to learn: raise \
                 rollout.temperature or rollout.num_generations, or take questions that the model answers neither always nor never"
            ),
        );
        look(
            "abstention",
            number("corver/abstention_rate") == 1.0,
            STEPS,
            format!(
                "in {STEPS} steps the rule abstained from every sentence; traces.jsonl has its reasons: triplets are the extractor's \
                 (extract.model, extract.prompt), evidence is the questions' (question.train)"
            ),
        );
        look(
            "count",
            number("corver/counted_rate") == 0.0
                && number("corver/abstention_rate") < 1.0
                && !asks_models,
            STEPS,
            format!(
                "in {STEPS} steps no count decided a sentence: see in traces.jsonl what the extractor finds (extract.model, extract.prompt), and \
                 whether it is in the corpus (corpus.index)"
            ),
        );
        look(
            "fallback",
            number("corver/fallback_rate") > 0.5,
            STEPS,
            format!(
                "in {STEPS} steps more than half of the completions got no reward of their sentences, because too few tokens could be \
                 aligned with them (corver/alignment_rate)"
            ),
        );
        look(
            "cut off",
            number("completions/clipped_ratio") > 0.5,
            STEPS,
            format!(
                "in {STEPS} steps more than half of the completions were cut off: raise rollout.max_completion_length, or ask for \
                 shorter answers in policy.system_prompt"
            ),
        );
        look(
            "mismatch",
            number("sampling/sampling_logp_difference/mean") > MISMATCH,
            STEPS,
            format!(
                "in {STEPS} steps the log-probabilities of what samples were more than {MISMATCH} nats a token from the policy's own: the engine \
                 serves another model, adapter or precision, or draws by other settings (docs/integrations.md)"
            ),
        );
        for (name, value) in metrics {
            let Some(channel) =
                name.strip_prefix("rewards/").and_then(|name| name.strip_suffix("/std"))
            else {
                continue;
            };
            look(
                name,
                value.as_f64() == Some(0.0),
                STEPS_WITHOUT_VARIETY,
                format!(
                    "in {STEPS_WITHOUT_VARIETY} steps the reward {channel} was the same for all, here {}: it has no influence",
                    number(&format!("rewards/{channel}/mean"))
                ),
            );
        }
        warnings
    }
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
    fn each_warning_is_given_once_with_remedy() {
        for (name, value, steps, said) in [
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
            let told: Vec<Vec<String>> =
                (0..20).map(|_| warnings.after(&step(&[(name, value)]))).collect();
            assert_eq!(told.concat().len(), 1, "{name}: {told:?}");
            assert!(told[steps - 1].concat().contains(said), "{name}: {told:?}");
        }
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
