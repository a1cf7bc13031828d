//! `corver-host plugin bench`: measures a rule's run time, load time and compile time.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use corver_core::sentence::Split;
use corver_core::split::split;
use corver_core::{
    Backends, BoxError, ChatModel, ChatPrompt, ChatReply, Completion, CorpusInfo, Count, Counter,
    Entailment, NliModel, NliPair, Passage, Query, Retriever, Search, Sentence, TextSettings,
    Triplet, Usage,
};
use corver_reward::config::{self, RulesConfig};
use corver_reward::parts::{AnyRule, Loader};
use corver_reward::plugin;
use corver_rules::{LoadOptions, Manifest, ResponseRule, Rule};
use serde_json::json;

use super::other_work::OtherWork;
use crate::args::RuleArgs;
use crate::output;
use crate::settings;

/// CPU share of other programs above which a warning is printed, 0 to 1.
const NOTICEABLE: f64 = 0.1;

/// Time for one measurement.
const BUDGET: Duration = Duration::from_secs(1);

/// Completions of a step in the paper's configuration (24 prompts, 16 samples), of three sentences
/// each.
const COMPLETIONS: usize = 384;

/// The paper's corpus, so that rules which need a size do not abstain.
const CORPUS: CorpusInfo = CorpusInfo {
    tokens: Some(5_500_000_000),
    documents: Some(6_407_814),
    window: Some(1_000),
    mode: None,
};

/// A backend that answers immediately, so that only the rule and the calls into it are measured.
#[derive(Clone, Copy)]
struct Immediate;

impl Immediate {
    fn backends() -> Backends<'static> {
        Backends::counting(Self).with_nli(Self).with_chat(Self).with_passages(Self)
    }
}

impl Counter for Immediate {
    fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, BoxError> {
        Ok(vec![Count::exact(Some(7)); queries.len()])
    }

    fn info(&self) -> CorpusInfo {
        CORPUS
    }
}

impl NliModel for Immediate {
    fn entail(&mut self, pairs: &[NliPair]) -> Result<Vec<Entailment>, BoxError> {
        Ok(vec![
            Entailment { entail: 0.75, neutral: Some(0.25), contradict: Some(0.0) };
            pairs.len()
        ])
    }
}

impl ChatModel for Immediate {
    fn reply(&mut self, prompts: &[ChatPrompt]) -> Result<Vec<ChatReply>, BoxError> {
        let reply =
            ChatReply { content: "Mario Camerini directed it.".into(), usage: Usage::default() };
        Ok(vec![reply; prompts.len()])
    }
}

impl Retriever for Immediate {
    fn passages(&mut self, searches: &[Search]) -> Result<Vec<Vec<Passage>>, BoxError> {
        let passage = Passage {
            title: "Il Seduttore".into(),
            text: "Mario Camerini directed Il Seduttore.".into(),
        };
        Ok(vec![vec![passage]; searches.len()])
    }
}

/// Times of a rule.
struct Costs {
    /// Number of sentences or completions in the batch.
    size: usize,
    /// `sentence` or `completion`.
    unit: &'static str,
    /// Sentences that the rule abstained from; `None` for a response rule.
    abstentions: Option<usize>,
    batch: Duration,
    instance: Duration,
    load: Duration,
    compile: Duration,
}

pub fn run(args: &RuleArgs, json: bool) -> Result<()> {
    let (settings, ()) = config::resolve(settings::of_rule_alone(args)?)?;
    let config = RulesConfig::single(&args.plugin, &settings);
    let rule = Loader::new(&config)?.any(&args.plugin)?;
    let path = plugin::find(&args.plugin)?.path;
    let cached = LoadOptions {
        settings: serde_json::Value::Object(config.settings),
        limits: config.limits,
        compiler: Loader::compiler(),
        cache_dir: Some(Loader::cache()?),
    };
    let texts: Vec<String> = (0..COMPLETIONS).map(completion).collect();
    let splits: Vec<Split> =
        texts.iter().map(|text| with_facts(split(text, TextSettings::default()))).collect();
    let golds = ["Mario Camerini".to_owned()];
    let completions: Vec<Completion<'_>> = texts
        .iter()
        .zip(&splits)
        .map(|(text, Split { sentences, .. })| Completion {
            question: "Who directed it?",
            golds: &golds,
            text,
            sentences,
            ..Completion::default()
        })
        .collect();
    let other_work = OtherWork::since_now();
    let costs = match &rule {
        AnyRule::Sentence(rule) => of_sentences(rule, &path, &cached, &completions)?,
        AnyRule::Response(rule) => of_completions(rule, &path, &cached, &completions)?,
    };
    show(&rule, &costs, other_work.share(), json)
}

fn of_sentences(
    rule: &Rule,
    path: &Path,
    cached: &LoadOptions,
    completions: &[Completion<'_>],
) -> Result<Costs> {
    let fresh = LoadOptions { cache_dir: None, ..cached.clone() };
    let without_facts = [Sentence { triplets: Vec::new(), ..completions[0].sentences[0].clone() }];
    let one = [Completion { sentences: &without_facts, ..completions[0] }];
    let verdicts = rule.score(completions, &mut Immediate::backends())?.concat();
    Ok(Costs {
        unit: "sentence",
        abstentions: Some(verdicts.iter().filter(|verdict| verdict.reward.is_none()).count()),
        size: completions.iter().map(|completion| completion.sentences.len()).sum(),
        load: best(|| Rule::load(path, cached.clone()))?,
        compile: best(|| Rule::load(path, fresh.clone()))?,
        instance: best(|| rule.score(&one, &mut Immediate::backends()))?,
        batch: best(|| rule.score(completions, &mut Immediate::backends()))?,
    })
}

fn of_completions(
    rule: &ResponseRule,
    path: &Path,
    cached: &LoadOptions,
    completions: &[Completion<'_>],
) -> Result<Costs> {
    let fresh = LoadOptions { cache_dir: None, ..cached.clone() };
    Ok(Costs {
        unit: "completion",
        abstentions: None,
        size: completions.len(),
        load: best(|| ResponseRule::load(path, cached.clone()))?,
        compile: best(|| ResponseRule::load(path, fresh.clone()))?,
        instance: best(|| rule.grade(&completions[..1], &mut Immediate::backends()))?,
        batch: best(|| rule.grade(completions, &mut Immediate::backends()))?,
    })
}

fn show(rule: &AnyRule, costs: &Costs, other_work: Option<f64>, json: bool) -> Result<()> {
    let Manifest { name, version, .. } = rule.manifest();
    let Costs { unit, size, abstentions, batch, instance, load, compile } = *costs;
    let ns_each = batch.as_secs_f64() * 1e9 / size as f64;
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    if json {
        return output::json(&json!({
            "name": name, "blake3": rule.hash(), (format!("{unit}s")): size, "abstentions": abstentions,
            (format!("ns_per_{unit}")): ns_each,
            "ms_per_batch": ms(batch), "ms_instance": ms(instance), "ms_load_cached": ms(load),
            "ms_load_compiled": ms(compile), "other_work": other_work,
        }));
    }
    output::line(format_args!(
        "{name} {version}, fastest of many runs, all cores, with an index that needs no time:"
    ));
    output::line(format_args!("  {ns_each:>10.0} ns  a {unit}, in a batch of {size}"));
    for (time, what) in [
        (batch, format!("that batch, the size of a step with {COMPLETIONS} completions")),
        (instance, format!("a fresh instance, with one {unit}")),
        (load, "loading it from the cache".to_owned()),
        (compile, "loading it for the first time".to_owned()),
    ] {
        output::line(format_args!("  {:>10.3} ms  {what}", ms(time)));
    }
    if let Some(abstentions) = abstentions.filter(|abstentions| *abstentions > 0) {
        output::line(format_args!(
            "the rule abstained from {abstentions} of {size} sentences, which is faster than a verdict"
        ));
    }
    if let Some(share) = other_work.filter(|share| *share > NOTICEABLE) {
        output::line(format_args!(
            "the machine was busy: other programs used {:.0} % of it, so an idle one may be faster",
            100.0 * share
        ));
    }
    Ok(())
}

/// Returns the shortest time of many runs: other work on the machine only adds time.
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

/// Returns a completion of three sentences, different for each number.
fn completion(number: usize) -> String {
    let sentence = |index| {
        format!("Mario Camerini directed the film Il Seduttore Numero{number}x{index} in 1954.")
    };
    format!("<think>{} {}</think><answer>Mario Camerini</answer>", sentence(0), sentence(1))
}

/// Adds a triplet to each sentence, as an extractor would.
fn with_facts(mut split: Split) -> Split {
    for sentence in &mut split.sentences {
        let tail = sentence.text.replace("Mario Camerini directed the film ", "");
        sentence.triplets =
            vec![Triplet { head: "Mario Camerini".into(), relation: "directed".into(), tail }];
    }
    split
}
