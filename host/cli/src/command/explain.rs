//! `corver-host explain`: a completion → why it earned what it earned, in the terminal and as a
//! page.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use corver_core::{ReturnParts, RewardSettings};
use corver_eval::read_completions;
use corver_report::explain::{Evidence, Explained, Passage, Piece};
use corver_report::{Run, explain, page};
use corver_reward::Passages;
use corver_reward::config::{self, CorpusConfig};
use corver_reward::parts::Loader;
use corver_runs::folder;
use serde_json::json;

use super::index::count::origin;
use super::score::{scored, show_return, show_sentence};
use crate::args::{ExplainArgs, SettingsArgs};
use crate::output;
use crate::recording;
use crate::scoring::GivenConfig;
use crate::settings;

const EXPLAIN: &str = "explain.html";
/// Of each query.
const PASSAGES: usize = 3;

pub fn run(args: &ExplainArgs, json: bool) -> Result<()> {
    let of_run = args.subject.is_dir();
    let Subject { corpus, settings, mut completions } =
        if of_run { of_run_folder(args)? } else { of_file(args)? };
    for explained in &mut completions {
        explained.evidence = evidence(explained, corpus.as_ref());
    }
    let folder = if of_run {
        args.subject.as_path()
    } else {
        args.subject.parent().unwrap_or(Path::new(""))
    };
    let out = args.out.clone().unwrap_or_else(|| folder.join(EXPLAIN));
    page::save(&out, &explain(&completions, &settings))?;
    if json {
        return output::json(&json!({ "page": out, "completions": completions }));
    }
    completions.iter().for_each(|explained| show(explained, &settings));
    output::line(format_args!("the page is in {}", out.display()));
    Ok(())
}

/// Completions to explain.
struct Subject {
    /// Corpus of the counts, or the reason why it has no text to show.
    corpus: Result<CorpusConfig, String>,
    settings: RewardSettings,
    completions: Vec<Explained>,
}

/// Returns the completions of a step, with the settings of their run.
fn of_run_folder(args: &ExplainArgs) -> Result<Subject> {
    ensure!(
        args.line.is_none(),
        "--line is for a file of completions; of a run, say --step and --completion"
    );
    let ExplainArgs { settings, reward, graders, recording, .. } = args;
    let has_settings = !settings.config.is_empty() || !settings.set.is_empty();
    let has_parts = !reward.plugin.is_empty()
        || reward.parts.extractor.is_some()
        || !reward.parts.corpus.index.is_empty();
    let is_recorded = recording.record.is_some() || recording.replay.is_some();
    if has_settings
        || has_parts
        || graders.judge.is_some()
        || graders.format.is_some()
        || is_recorded
    {
        bail!(
            "a run is explained with the settings that it was trained with; leave the others out"
        );
    }
    let run = Run::open(&args.subject)?;
    let of_run = SettingsArgs { config: vec![args.subject.join(folder::CONFIG)], set: Vec::new() };
    let of_training = settings::load(&of_run, &[])?;
    let run_reward = of_training.reward;
    // An index that is no longer there is no reason to keep the rest of the page back.
    let corpus = config::resolve::<CorpusConfig>(of_training);
    let corpus = corpus.map(|(_, corpus)| corpus).map_err(|error| format!("{error:#}"));
    let completions = explain::of_step(&run, args.step, args.completion)?;
    Ok(Subject { corpus, settings: run_reward, completions })
}

/// Returns one completion of a file, scored as `score` does.
fn of_file(args: &ExplainArgs) -> Result<Subject> {
    let file = args.subject.display();
    let Some(line) = args.line else {
        bail!("which completion of {file}? Give its line: --line N, counted from 1")
    };
    let mut completions = read_completions(&args.subject)?;
    completions
        .keep_line(line)
        .with_context(|| format!("{file} has no completion in line {line}"))?;
    let settings = settings::load(&args.settings, &[&args.reward, &args.graders])?;
    let has_triplets = completions.triplets.is_some();
    let (settings, config) = config::resolve_with(settings, |settings, problems| {
        GivenConfig::resolve(has_triplets, &args.recording, settings, problems)
    })?;
    let mut backends = recording::backends(&config.answers, &args.recording)?;
    let loader = Loader::new(&config.rules)?;
    let (mut rules, mut graders) = (loader.sentence_rules()?, loader.graders()?);
    let extractor = config.extractor.as_ref();
    let scored =
        scored(completions, extractor, &settings.reward, &mut backends, &mut rules, &mut graders)?;
    let origin = format!(
        "line {line} of {}",
        args.subject.file_name().unwrap_or_default().to_string_lossy()
    );
    let mut explained = Vec::new();
    for completion in scored.completions {
        explained.push(Explained::new(origin.clone(), completion.trace, &settings.reward));
    }
    let replayed = "The counts were replayed from a recording, which has no text.";
    let corpus = config.answers.map(|(corpus, _)| corpus).ok_or_else(|| replayed.to_owned());
    Ok(Subject { corpus, settings: settings.reward, completions: explained })
}

/// The passages that match what was asked for the sentences of a completion. An index that is no
/// longer there is no reason to keep the rest of the page back: the page says why there is no
/// passage.
fn evidence(explained: &Explained, corpus: Result<&CorpusConfig, &String>) -> Vec<Evidence> {
    let lookups = explained.lookups();
    let opened = match corpus {
        Err(why) => Err(why.clone()),
        Ok(corpus) => open(corpus).map_err(|error| format!("{error:#}")),
    };
    if let (Err(why), false) = (&opened, lookups.is_empty()) {
        tracing::warn!("no passages: {why}");
    }
    let of_query = |query: &corver_core::Query| {
        let found = opened.as_ref().map_err(Clone::clone);
        let found = found.and_then(|texts| {
            texts.of(&query.all_of, PASSAGES).map_err(|error| format!("{error:#}"))
        });
        let (passages, missing) = match found {
            Ok(passages) => (passages.iter().map(passage).collect(), None),
            Err(why) => (Vec::new(), Some(why)),
        };
        Evidence { query: query.to_string(), passages, missing }
    };
    lookups.into_iter().map(|lookup| of_query(&lookup.query)).collect()
}

fn open(config: &CorpusConfig) -> Result<Passages> {
    let passages = Passages::new(config)?;
    passages.open()?;
    Ok(passages)
}

fn passage(passage: &corver_corpus::Passage) -> Passage {
    let pieces =
        passage.spans.iter().map(|span| Piece { text: span.text.clone(), matched: span.matched });
    Passage { origin: origin(passage), pieces: pieces.collect() }
}

fn show(explained: &Explained, settings: &RewardSettings) {
    let Explained { origin, trace, returns, group, .. } = explained;
    output::line(origin);
    show_return(trace, &ReturnParts::of(trace, settings));
    if let Some(group) = group {
        output::line(format_args!(
            "  group: mean {:+.3}, deviation {:.3}; advantage {:+.3} outside sentences",
            group.baseline.centre, group.baseline.spread, group.outside
        ));
    }
    for (n, (sentence, value)) in trace.sentences.iter().zip(&returns.sentences).enumerate() {
        show_sentence(&sentence.text, sentence.verdict.as_ref());
        let advantage = group
            .as_ref()
            .map_or(String::new(), |group| format!(", advantage {:+.3}", group.sentences[n]));
        output::line(format_args!("         return {value:+.3}{advantage}"));
    }
}
