//! `corver-host score`: completions → traces.

use anyhow::{Context, Result};
use corver_core::{Extractor, Scorers, Trace, score};
use corver_study::read_completions;

use crate::args::ScoreArgs;
use crate::{output, parts};

pub fn run(args: &ScoreArgs, json: bool) -> Result<()> {
    let config = parts::configuration(&args.config)?;
    let completions = read_completions(&args.file)?;
    let mut rule = parts::rule(&config)?;
    let (_, mut counter) = parts::corpus(&config.corpus)?;
    let mut extractor: Box<dyn Extractor> = match completions.triplets {
        Some(given) => Box::new(given),
        None => parts::extractor(&config)?.1,
    };
    let mut scorers = Scorers { extractor: extractor.as_mut(), counter: &mut counter, rules: &mut rule };
    let scored = score(&completions.rollouts, &completions.questions, &mut scorers, &config.reward)
        .with_context(|| format!("scoring {}", args.file.display()))?;
    for trace in &scored.traces {
        if json { output::json(trace)? } else { show(trace) }
    }
    Ok(())
}

fn show(trace: &Trace) {
    output::line(format_args!("{}", trace.question));
    let response = &trace.response;
    output::line(format_args!(
        "  judge {:+} ({:?}), format {:+}, return {:+.3}",
        response.judge, response.label, response.format, trace.mean_return
    ));
    for sentence in &trace.sentences {
        let verdict = sentence.verdict.as_ref();
        let reward =
            verdict.and_then(|verdict| verdict.reward).map_or("     ".to_owned(), |reward| format!("{reward:+.2}"));
        output::line(format_args!("  {reward}  {}", sentence.text));
        for count in verdict.into_iter().flat_map(|verdict| &verdict.counts) {
            let found = count.occurrences.map_or("no answer".to_owned(), |found| found.to_string());
            output::line(format_args!(
                "         {} = {found}{}",
                count.query,
                if count.exact { "" } else { " (not exact)" }
            ));
        }
        if let Some(note) = verdict.and_then(|verdict| verdict.note.as_deref()) {
            output::line(format_args!("         {note}"));
        }
    }
}
