//! `corver-host plugin bench`: what does a rule cost?

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use corver_core::{Count, Counter, PartError, Query, RuleSentence, Section, Triplet};
use corver_rules::Rule;
use serde_json::json;

use crate::args::RuleArgs;
use crate::{output, parts, rules};

/// Time for one measurement.
const BUDGET: Duration = Duration::from_secs(1);

/// Completions of a step in the paper's configuration (24 prompts, 16 samples), with its three sentences each.
const COMPLETIONS: u32 = 384;
const SENTENCES_EACH: u32 = 3;

/// An index that answers at once, so that the rule and the calls into it are what is measured.
struct Immediate;

impl Counter for Immediate {
    fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, PartError> {
        Ok(queries.iter().map(|query| Count { query: query.clone(), occurrences: Some(7), exact: true }).collect())
    }
}

pub fn run(args: &RuleArgs, json: bool) -> Result<()> {
    let config = parts::rule_configuration(args)?;
    let path = rules::find_plugin(Path::new(&args.plugin))?;
    let rule = rules::single(&config, Path::new(&args.plugin))?;
    let settings = || serde_json::Value::Object(config.rule.settings.clone());
    let compile = best(|| Rule::load(&path, rules::load_options(&config.rule, settings(), None)))?;
    let load = best(|| rules::single(&config, &path))?;

    let batch: Vec<RuleSentence> = (0..COMPLETIONS)
        .flat_map(|completion| (0..SENTENCES_EACH).map(move |index| sentence(completion, index)))
        .collect();
    let without_facts = [RuleSentence { triplets: Vec::new(), ..batch[0].clone() }];
    let instance = best(|| rule.judge(&without_facts, &mut Immediate))?;
    let step = best(|| rule.judge(&batch, &mut Immediate))?;
    let ns_per_sentence = step.as_secs_f64() * 1e9 / batch.len() as f64;

    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    if json {
        return output::json(&json!({
            "name": rule.name(), "blake3": rule.hash(), "sentences": batch.len(),
            "ns_per_sentence": ns_per_sentence, "ms_per_batch": ms(step), "ms_instance": ms(instance),
            "ms_load_cached": ms(load), "ms_load_compiled": ms(compile),
        }));
    }
    output::line(format_args!(
        "{} {}, best of repeats, an index that answers at once:",
        rule.name(),
        rule.manifest().version
    ));
    output::line(format_args!(
        "  {ns_per_sentence:>10.0} ns  a sentence, in a batch of {} with one fact each",
        batch.len()
    ));
    output::line(format_args!("  {:>10.3} ms  that batch, as a step of {COMPLETIONS} completions has it", ms(step)));
    output::line(format_args!("  {:>10.3} ms  a fresh instance that judges one sentence without facts", ms(instance)));
    output::line(format_args!("  {:>10.3} ms  loading it, compiled before", ms(load)));
    output::line(format_args!("  {:>10.3} ms  loading it for the first time", ms(compile)));
    Ok(())
}

/// The shortest of many runs: what the machine does beside it only adds.
fn best<T, E>(mut work: impl FnMut() -> Result<T, E>) -> Result<Duration, E> {
    let mut shortest = Duration::MAX;
    let start = Instant::now();
    while shortest == Duration::MAX || start.elapsed() < BUDGET {
        let begin = Instant::now();
        std::hint::black_box(work()?);
        shortest = shortest.min(begin.elapsed());
    }
    Ok(shortest)
}

fn sentence(completion: u32, index: u32) -> RuleSentence {
    let tail = format!("Il Seduttore Numero{completion}x{index}");
    RuleSentence {
        completion,
        index,
        text: format!("Mario Camerini directed the film {tail} in the year 1954."),
        section: Section::Think,
        triplets: vec![Triplet { head: "Mario Camerini".into(), relation: "directed".into(), tail }],
    }
}
