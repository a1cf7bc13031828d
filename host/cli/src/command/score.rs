//! `corver-host score`: scores completions and prints their traces.

use anyhow::{Context, Result, bail};
use corver_core::{
    CountPrecision, Explained, Extractor, Lookup, ResponseGrades, ReturnParts, Scored, Scorers,
    SentenceVerdict, Trace, score,
};
use corver_eval::{CompletionSet, read_completions};
use corver_reward::config::{self, ExtractorConfig};
use corver_reward::parts::{self, Loader};
use corver_settings::{RewardSettings, Settings};

use crate::args::{RecordingArgs, ScoreArgs};
use crate::output;
use crate::recording;
use crate::scoring::GivenConfig;
use crate::settings;

pub fn run(args: &ScoreArgs, json: bool) -> Result<()> {
    let mut completions = read_completions(&args.file)?;
    let settings = settings::load(&args.settings, &[&args.reward, &args.graders])?;
    let (settings, _, scored) = score_with_settings(&mut completions, settings, &args.recording)?;
    show_scored(&scored, &settings.reward, json)
}

/// Opens the parts that the settings name, and scores completions with them. Returns the resolved
/// settings and parts, too.
pub fn score_with_settings(
    completions: &mut CompletionSet,
    settings: Settings,
    recording: &RecordingArgs,
) -> Result<(Settings, GivenConfig, Scored)> {
    let has_triplets = completions.triplets.is_some();
    let (resolved, config) = config::resolve_with(settings, |settings, problems| {
        GivenConfig::resolve(has_triplets, recording, settings, problems)
    })?;
    recording::check(recording, false)?;
    let loader = Loader::new(&config.rules)?;
    let mut rules = loader.sentence_rules()?;
    let mut graders = loader.graders()?;
    let mut extractor = open_extractor(completions, config.extractor.as_ref())?;
    // Last, because it creates the file of --record: an earlier failure leaves none.
    let mut backends = recording::backends(&config.answers, recording)?;
    let mut scorers = Scorers {
        extractor: extractor.as_mut(),
        backends: &mut backends,
        sentence_scorer: &mut rules,
        graders: &mut graders,
    };
    let scored = scored(completions, &mut scorers, &resolved.reward)?;
    Ok((resolved, config, scored))
}

/// Opens the source of the completions' triplets: their own, or else the extractor's.
pub fn open_extractor(
    completions: &mut CompletionSet,
    config: Option<&ExtractorConfig>,
) -> Result<Box<dyn Extractor>> {
    let extractor: Box<dyn Extractor> = match (completions.triplets.take(), config) {
        (Some(given), _) => Box::new(given),
        (None, Some(config)) => Box::new(parts::open_extractor(config)?),
        (None, None) => bail!("the completions have no triplets, and no extractor is named"),
    };
    Ok(extractor)
}

/// Prints the traces of completions.
pub fn show_scored(scored: &Scored, settings: &RewardSettings, json: bool) -> Result<()> {
    for completion in &scored.completions {
        let trace = &completion.trace;
        let explained = Explained::new(trace, settings);
        if json { output::json(&explained)? } else { show(trace, &explained.return_parts) }
    }
    Ok(())
}

/// Returns the scores of completions, with their traces.
pub fn scored(
    completions: &CompletionSet,
    scorers: &mut Scorers<'_, '_>,
    settings: &RewardSettings,
) -> Result<Scored> {
    score(&completions.rollouts, &completions.questions, scorers, settings)
        .context("scoring the completions")
}

fn show(trace: &Trace, parts: &ReturnParts) {
    show_return(trace, parts);
    for sentence in &trace.sentences {
        show_sentence(&sentence.text, sentence.verdict.as_ref());
    }
}

/// Prints a completion's mean return and its parts.
pub fn show_return(trace: &Trace, parts: &ReturnParts) {
    output::line(&trace.question);
    let ResponseGrades { judge, format } = &trace.response;
    output::line(format_args!(
        "  return {:+.3} = judge {:+.3} ({}), format {:+.3} ({}), sentences {:+.3} on average",
        trace.mean_return, parts.judge, judge.label, parts.format, format.label, parts.sentences
    ));
    for (rule, grade) in [("judge", judge), ("format", format)] {
        if let Some(note) = &grade.note {
            output::line(format_args!("  {rule}: {note}"));
        }
    }
}

/// Prints a sentence's reward, and below it the counts, channels and note.
pub fn show_sentence(text: &str, verdict: Option<&SentenceVerdict>) {
    let reward = verdict
        .and_then(|verdict| verdict.reward)
        .map_or("     ".to_owned(), |reward| format!("{reward:+.2}"));
    output::line(format_args!("  {reward}  {text}"));
    verdict.into_iter().flat_map(|verdict| &verdict.lookups).for_each(show_lookup);
    for channel in verdict.into_iter().flat_map(|verdict| &verdict.channels) {
        let channel_reward =
            channel.reward.map_or("abstains".to_owned(), |own| format!("{own:+.2}"));
        let note = channel.note.as_deref().map_or(String::new(), |note| format!(", {note}"));
        output::line(format_args!(
            "         {} × {}: {channel_reward}{note}",
            channel.rule, channel.weight
        ));
    }
    if let Some(note) = verdict.and_then(|verdict| verdict.note.as_deref()) {
        output::line(format_args!("         {note}"));
    }
}

/// Prints a query and its count.
pub fn show_lookup(Lookup { query, count }: &Lookup) {
    let found = count.occurrences.map_or("no answer".to_owned(), |found| found.to_string());
    let relation = match count.precision {
        CountPrecision::Exact => '=',
        CountPrecision::AtLeast => '≥',
        CountPrecision::Estimate => '≈',
    };
    output::line(format_args!("         {query} {relation} {found}"));
}
