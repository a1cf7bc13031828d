//! `corver-host score`: completions → traces.

use anyhow::{Context, Result};
use corver_core::{Counter, Extractor, Graders, Rules, Scorers, Trace, Verdict, score};
use corver_study::read_completions;
use corver_study::score_file::Completions;

use crate::args::ScoreArgs;
use crate::config::Config;
use crate::rules::Loader;
use crate::{output, parts};

pub fn run(args: &ScoreArgs, json: bool) -> Result<()> {
    let config = parts::graded_configuration(&args.config, &args.graders)?;
    let completions = read_completions(&args.file)?;
    let mut counter = parts::counter(&config.corpus, &args.recording)?;
    let loader = Loader::new(&config)?;
    let (mut rules, mut graders) = (loader.sentence_rules()?, loader.graders()?);
    score_and_show(completions, &config, counter.as_mut(), &mut rules, &mut graders, json)
}

/// Scores completions and prints their traces.
pub fn score_and_show(
    completions: Completions,
    config: &Config,
    counter: &mut dyn Counter,
    rules: &mut dyn Rules,
    graders: &mut Graders,
    json: bool,
) -> Result<()> {
    let mut extractor: Box<dyn Extractor> = match completions.triplets {
        Some(given) => Box::new(given),
        None => parts::extractor(config)?.1,
    };
    let mut scorers = Scorers { extractor: extractor.as_mut(), counter, rules, graders };
    let scored = score(&completions.rollouts, &completions.questions, &mut scorers, &config.reward)
        .context("scoring the completions")?;
    for trace in &scored.traces {
        if json { output::json(trace)? } else { show(trace) }
    }
    Ok(())
}

fn show(trace: &Trace) {
    output::line(format_args!("{}", trace.question));
    let response = &trace.response;
    output::line(format_args!(
        "  judge {:+} ({}), format {:+} ({}), return {:+.3}",
        response.judge.reward, response.judge.label, response.format.reward, response.format.label, trace.mean_return
    ));
    for sentence in &trace.sentences {
        show_sentence(&sentence.text, sentence.verdict.as_ref());
    }
}

/// What a sentence earned, and below it why.
pub fn show_sentence(text: &str, verdict: Option<&Verdict>) {
    let reward =
        verdict.and_then(|verdict| verdict.reward).map_or("     ".to_owned(), |reward| format!("{reward:+.2}"));
    output::line(format_args!("  {reward}  {text}"));
    for count in verdict.into_iter().flat_map(|verdict| &verdict.counts) {
        let found = count.occurrences.map_or("no answer".to_owned(), |found| found.to_string());
        output::line(format_args!(
            "         {} = {found}{}",
            count.query,
            if count.exact { "" } else { " (not exact)" }
        ));
    }
    for channel in verdict.into_iter().flat_map(|verdict| &verdict.channels) {
        let reward = channel.reward.map_or("abstains".to_owned(), |reward| format!("{reward:+.2}"));
        let note = channel.note.as_deref().map_or(String::new(), |note| format!(", {note}"));
        output::line(format_args!("         {} × {}: {reward}{note}", channel.rule, channel.weight));
    }
    if let Some(note) = verdict.and_then(|verdict| verdict.note.as_deref()) {
        output::line(format_args!("         {note}"));
    }
}
