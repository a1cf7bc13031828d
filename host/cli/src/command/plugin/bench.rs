//! `corver-host plugin bench`: what does a rule cost?

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use corver_core::sentence::{Split, split};
use corver_core::{Completion, Count, Counter, PartError, Query, Reading, RuleSentence, Section, Triplet};
use corver_rules::{LoadOptions, Manifest, ResponseRule, Rule};
use serde_json::json;

use crate::args::RuleArgs;
use crate::rules::{self, AnyRule, Loader};
use crate::{output, parts};

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

/// What was measured, of `size` sentences or completions.
struct Costs {
    unit: &'static str,
    size: usize,
    batch: Duration,
    instance: Duration,
    load: Duration,
    compile: Duration,
}

pub fn run(args: &RuleArgs, json: bool) -> Result<()> {
    let config = parts::rule_configuration(args)?;
    let path = rules::find_plugin(Path::new(&args.plugin))?;
    let rule = Loader::new(&config)?.any(&path)?;
    let settings = || serde_json::Value::Object(config.rule.settings.clone());
    let cache = parts::cache_dir()?.join("rules");
    let cached =
        || LoadOptions { settings: settings(), limits: config.rule.limits.clone(), cache_dir: Some(cache.clone()) };
    let fresh = || LoadOptions { cache_dir: None, ..cached() };
    let Costs { unit, size, batch, instance, load, compile } = match &rule {
        AnyRule::Sentence(rule) => {
            let load = best(|| Rule::load(&path, cached()))?;
            let compile = best(|| Rule::load(&path, fresh()))?;
            let sentences: Vec<RuleSentence> = (0..COMPLETIONS)
                .flat_map(|completion| (0..SENTENCES_EACH).map(move |index| sentence(completion, index)))
                .collect();
            let without_facts = [RuleSentence { triplets: Vec::new(), ..sentences[0].clone() }];
            let instance = best(|| rule.judge(&without_facts, &mut Immediate))?;
            let batch = best(|| rule.judge(&sentences, &mut Immediate))?;
            Costs { unit: "sentence", size: sentences.len(), batch, instance, load, compile }
        }
        AnyRule::Response(rule) => {
            let load = best(|| ResponseRule::load(&path, cached()))?;
            let compile = best(|| ResponseRule::load(&path, fresh()))?;
            let texts: Vec<String> = (0..COMPLETIONS).map(completion).collect();
            let golds = ["Mario Camerini".to_owned()];
            let splits: Vec<Split> = texts.iter().map(|text| split(text, Reading::Paper)).collect();
            let completions: Vec<Completion<'_>> = texts
                .iter()
                .zip(&splits)
                .map(|(text, Split { sentences, .. })| Completion {
                    question: "Who directed it?",
                    golds: &golds,
                    text,
                    sentences,
                })
                .collect();
            let instance = best(|| rule.grade(&completions[..1]))?;
            let batch = best(|| rule.grade(&completions))?;
            Costs { unit: "completion", size: completions.len(), batch, instance, load, compile }
        }
    };

    let Manifest { name, version, .. } = rule.manifest();
    let ns_each = batch.as_secs_f64() * 1e9 / size as f64;
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    if json {
        return output::json(&json!({
            "name": name, "blake3": rule.hash(), (format!("{unit}s")): size, (format!("ns_per_{unit}")): ns_each,
            "ms_per_batch": ms(batch), "ms_instance": ms(instance), "ms_load_cached": ms(load),
            "ms_load_compiled": ms(compile),
        }));
    }
    output::line(format_args!("{name} {version}, best of repeats, all cores, an index that answers at once:"));
    output::line(format_args!("  {ns_each:>10.0} ns  a {unit}, in a batch of {size}"));
    output::line(format_args!("  {:>10.3} ms  that batch, as a step of {COMPLETIONS} completions has it", ms(batch)));
    output::line(format_args!("  {:>10.3} ms  a fresh instance, with one {unit}", ms(instance)));
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

fn completion(number: u32) -> String {
    let sentence = sentence(number, 0).text;
    format!("<think>{} I am sure of it.</think><answer>Mario Camerini</answer>", [sentence.as_str(); 3].join(" "))
}
