//! The smallest and the largest value of every number that is a setting. Beyond them a run would fail, in an allocation for
//! example, or mean nothing.

use toml::Value;

use super::Settings;

const MIB: f64 = 1024.0 * 1024.0;
const GIB: f64 = 1024.0 * MIB;
/// Seconds.
const DAY: f64 = 86_400.0;
/// Larger whole numbers are no longer exact in all that reads them.
const WHOLE: f64 = 9e15;

const BOUNDS: [(&str, f64, f64); 112] = [
    ("run.seed", 0.0, i64::MAX as f64),
    ("run.steps", 1.0, 1e9),
    ("run.threads", 0.0, 1024.0),
    ("run.memory_gib", 0.0, 1e6),
    ("policy.max_rows", 1.0, 1e6),
    ("question.eval_limit", 0.0, WHOLE),
    ("question.prompts_per_step", 1.0, 1e5),
    ("rollout.num_generations", 1.0, 1e5),
    ("rollout.max_completion_length", 1.0, 1e6),
    ("rollout.temperature", 0.0, 100.0),
    ("rollout.top_p", 1e-6, 1.0),
    ("rollout.top_k", 0.0, 1e9),
    ("rollout.max_prompt_length", 0.0, 1e6),
    ("engine.concurrency", 1.0, 1024.0),
    ("engine.timeout_s", 1e-3, DAY),
    ("engine.patience_s", 0.0, DAY),
    ("extract.max_new_tokens", 0.0, 1e5),
    ("extract.batch_size", 0.0, 1e5),
    ("extract.max_sentence_tokens", 0.0, 1e5),
    ("corpus.max_clause_freq", 1.0, WHOLE),
    ("corpus.max_diff_tokens", 1.0, 1e9),
    ("corpus.cache_mib", 0.0, MIB),
    ("corpus.count_ms", 1.0, 1000.0 * DAY),
    ("corpus.remote.connections", 1.0, 1024.0),
    ("corpus.remote.requests_per_second", 0.0, 1e6),
    ("corpus.remote.timeout_s", 1e-3, DAY),
    ("corpus.remote.patience_s", 1e-3, DAY),
    ("verify.nli.batch_size", 1.0, 1e6),
    ("verify.nli.max_batch_tokens", 1.0, 1e9),
    ("verify.nli.max_tokens", 1.0, 1e9),
    ("verify.chat.connections", 1.0, 1e4),
    ("verify.chat.requests_per_second", 0.0, 1e6),
    ("verify.chat.timeout_s", 0.001, DAY),
    ("verify.chat.patience_s", 0.001, 100.0 * DAY),
    ("verify.chat.max_cost", 0.0, 1e12),
    ("verify.chat.prices.prompt", 0.0, 1e9),
    ("verify.chat.prices.completion", 0.0, 1e9),
    ("verify.demo.error_rate", 0.0, 1.0),
    ("verify.price.count", 0.0, 1e9),
    ("verify.price.nli", 0.0, 1e9),
    ("verify.price.passages", 0.0, 1e9),
    ("rule.limits.file_bytes", 1.0, GIB),
    ("rule.limits.compile_s", 0.0, DAY),
    ("rule.limits.compile_bytes", 1.0, 1024.0 * GIB),
    ("rule.limits.call_ms", 0.0, 1000.0 * DAY),
    ("rule.limits.memory_bytes", 0.0, 8.0 * GIB),
    ("rule.limits.table_elements", 0.0, 1e7),
    ("rule.limits.stack_bytes", 1.0, MIB),
    ("rule.limits.output_bytes", 0.0, 8.0 * GIB),
    ("rule.limits.text_bytes", 0.0, GIB),
    ("rule.limits.questions_per_sentence", 0.0, 1e6),
    ("rule.limits.questions_per_completion", 0.0, 1e6),
    ("rule.limits.words_per_query", 1.0, 1e6),
    ("rule.limits.words_per_clause", 1.0, 1e6),
    ("rule.limits.queries_per_batch", 0.0, 1e9),
    ("rule.limits.pairs_per_batch", 0.0, 1e9),
    ("rule.limits.prompts_per_batch", 0.0, 1e9),
    ("rule.limits.searches_per_batch", 0.0, 1e9),
    ("rule.limits.messages_per_prompt", 0.0, 1e6),
    ("rule.limits.reply_tokens", 0.0, 1e6),
    ("rule.limits.passages_per_search", 0.0, 1e6),
    ("rule.limits.rounds", 0.0, 1e4),
    ("rule.limits.reports", 0.0, 1e4),
    ("reward.lambda_judge", -1e6, 1e6),
    ("reward.lambda_format", -1e6, 1e6),
    ("reward.lambda_corver", -1e6, 1e6),
    ("reward.min_alignment", 0.0, 1.0),
    ("advantage.min_spread", 0.0, 1e6),
    ("update.ppo.gamma", 0.0, 1.0),
    ("update.ppo.lambda", 0.0, 1.0),
    ("update.ppo.value_clip", 1e-9, 1e9),
    ("update.ppo.value_learning_rate", 0.0, 1.0),
    ("update.dpo.beta", 1e-9, 1e6),
    ("update.lora.r", 1.0, 4096.0),
    ("update.lora.alpha", 0.0, 1e6),
    ("update.loss.beta", 0.0, 1e6),
    ("update.loss.epsilon_low", 0.0, 1.0),
    ("update.loss.epsilon_high", 0.0, 1e6),
    ("update.loss.delta", 1.0, 1e6),
    ("update.loss.importance_cap", 0.0, 1e6),
    ("update.num_iterations", 1.0, 1000.0),
    ("update.learning_rate", 0.0, 1.0),
    ("update.warmup_ratio", 0.0, 1.0),
    ("update.total_steps", 0.0, 1e9),
    ("update.max_grad_norm", 1e-9, 1e9),
    ("update.optimizer.beta1", 0.0, 0.999_999),
    ("update.optimizer.beta2", 0.0, 0.999_999_999),
    ("update.optimizer.eps", 1e-30, 1.0),
    ("update.optimizer.weight_decay", 0.0, 100.0),
    ("update.micro_batch_tokens", 1.0, 1e9),
    ("sft.epochs", 1.0, 1e6),
    ("sft.per_step", 1.0, 1e5),
    ("sft.learning_rate", 0.0, 1.0),
    ("sft.max_length", 2.0, 1e6),
    ("checkpoint.every", 1.0, 1e9),
    ("checkpoint.keep", 1.0, 1e6),
    ("filter.num_generations", 1.0, 1e5),
    ("filter.max_completion_length", 1.0, 1e6),
    ("filter.temperature", 0.0, 100.0),
    ("filter.top_p", 1e-6, 1.0),
    ("filter.min_correct", 0.0, 1e5),
    ("filter.max_correct", 0.0, 1e5),
    ("filter.anchors", 0.0, WHOLE),
    ("filter.batch", 1.0, 1e5),
    ("eval.answers.max_completion_length", 1.0, 1e6),
    ("eval.answers.batch", 1.0, 1e5),
    ("eval.answers.samples", 1.0, 1e4),
    ("eval.answers.temperature", 0.0, 100.0),
    ("eval.answers.top_p", 1e-6, 1.0),
    ("check.question_entity", 0.0, WHOLE),
    ("check.pair", 0.0, WHOLE),
    ("check.entity", 0.0, WHOLE),
];

/// What several settings make together, its name first, and the largest value.
const PRODUCTS: [(&str, &[&str], f64); 3] = [
    ("completions of a step", &["question.prompts_per_step", "rollout.num_generations"], 1e5),
    (
        "tokens of a step",
        &["question.prompts_per_step", "rollout.num_generations", "rollout.max_completion_length"],
        1e8,
    ),
    ("completions of a batch of the filter", &["filter.batch", "filter.num_generations"], 1e5),
];

/// Every setting that is out of its bounds, and what they are.
pub fn out_of_bounds(settings: &Settings) -> Result<Vec<(&'static str, String)>, toml::ser::Error> {
    let settings = Value::try_from(settings)?;
    let of_one = BOUNDS.iter().filter_map(|&(key, least, most)| {
        let got = number(&settings, key).filter(|got| !(least..=most).contains(got))?; // NaN is in no range
        Some((key, format!("{got} is out of bounds: from {least} to {most}")))
    });
    let of_several = PRODUCTS.iter().filter_map(|&(what, keys, most)| {
        let got: f64 = keys.iter().filter_map(|key| number(&settings, key)).product();
        (got > most).then(|| (keys[0], format!("{got} {what} ({}); at most {most}", keys.join(" × "))))
    });
    Ok(of_one.chain(of_several).collect())
}

/// None where the setting has no value.
fn number(settings: &Value, key: &str) -> Option<f64> {
    let value = key.split('.').try_fold(settings, |section, name| section.get(name))?;
    value.as_float().or_else(|| value.as_integer().map(|whole| whole as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every number below `value`, by its key.
    fn numbers(key: &str, value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Table(table) => {
                for (name, value) in table {
                    numbers(&format!("{key}.{name}"), value, found);
                }
            }
            Value::Integer(_) | Value::Float(_) => found.push(key[1..].to_owned()),
            _ => {}
        }
    }

    #[test]
    fn every_number_has_bounds_and_a_default_within() {
        let mut all = Settings::default();
        all.corpus.max_diff_tokens = Some(1_000);
        all.update.loss.delta = Some(2.0);
        all.update.loss.importance_cap = Some(2.0);
        all.filter.max_correct = Some(8);
        all.verify.nli.max_batch_tokens = Some(1_024);
        all.verify.nli.max_tokens = Some(512);
        all.verify.chat.max_cost = Some(1.0);
        let mut found = Vec::new();
        numbers("", &Value::try_from(&all).unwrap(), &mut found);
        let mut bounded = BOUNDS.map(|(key, ..)| key.to_owned());
        found.sort();
        bounded.sort();
        assert_eq!(found, bounded);
        assert_eq!(out_of_bounds(&all).unwrap(), []);
    }

    #[test]
    fn absurd_numbers_are_named_together() {
        let mut absurd = Settings::default();
        absurd.rollout.num_generations = 1_000_000_000;
        absurd.update.lora.alpha = f64::NAN;
        absurd.reward.lambda_judge = f64::INFINITY;
        let named: Vec<&str> = out_of_bounds(&absurd).unwrap().into_iter().map(|(key, _)| key).collect();
        let steps = "question.prompts_per_step";
        assert_eq!(named, ["rollout.num_generations", "reward.lambda_judge", "update.lora.alpha", steps, steps]);
    }
}
