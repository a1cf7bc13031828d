//! `corver-host explain`: shows a completion's rewards with their reasons, in the terminal and on a
//! page.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use corver_core::{ReturnParts, RewardSettings};
use corver_eval::read_completions;
use corver_report::explain::{
    ExplainedCompletion, ExplainedGroup, MatchedPassage, Piece, QueryEvidence,
};
use corver_report::{LoadedRun, explain, page};
use corver_reward::CorpusPassages;
use corver_reward::config::{self, CorpusConfig};
use corver_runs::folder;
use serde_json::json;

use super::index::count::origin;
use super::score::{score_with_settings, show_return, show_sentence};
use crate::args::{ExplainArgs, SettingsArgs};
use crate::output;
use crate::settings;

const EXPLAIN: &str = "explain.html";
/// Passages per query.
const PASSAGES: usize = 3;

pub fn run(args: &ExplainArgs, json: bool) -> Result<()> {
    let of_run = args.subject.is_dir();
    let ExplainInput { corpus, settings, mut completions } =
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
    output::line(format_args!("the page is {}", out.display()));
    Ok(())
}

/// Completions to explain.
struct ExplainInput {
    /// Corpus of the counts, or the reason why it has no text to show.
    corpus: Result<CorpusConfig, String>,
    settings: RewardSettings,
    completions: Vec<ExplainedCompletion>,
}

/// Returns the completions of a step, with the settings of their run.
fn of_run_folder(args: &ExplainArgs) -> Result<ExplainInput> {
    ensure!(
        args.line.is_none(),
        "--line is for a file of completions; for a run, use --step and --completion"
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
        bail!("a run is explained with the settings of its training; omit flags that change them");
    }
    let run = LoadedRun::open(&args.subject)?;
    let of_run = SettingsArgs { config: vec![args.subject.join(folder::CONFIG)], set: Vec::new() };
    let of_training = settings::load(&of_run, &[])?;
    let run_reward = of_training.reward;
    // A page without passages is still useful, so a missing index is no error.
    let corpus = config::resolve::<CorpusConfig>(of_training);
    let corpus = corpus.map(|(_, corpus)| corpus).map_err(|error| format!("{error:#}"));
    let completions = explain::of_step(&run, args.step, args.completion)?;
    Ok(ExplainInput { corpus, settings: run_reward, completions })
}

/// Returns one completion of a file, scored as `score` does.
fn of_file(args: &ExplainArgs) -> Result<ExplainInput> {
    let file = args.subject.display();
    let mut completions = read_completions(&args.subject)?;
    ensure!(
        args.step.is_none() && args.completion.is_none(),
        "--step and --completion are for a run; for a file of completions, use --line"
    );
    let line = match (args.line, completions.lines.len()) {
        (Some(line), _) => line,
        (None, 1) => completions.lines[0],
        (None, number) => {
            bail!("{file} has {number} completions; choose a line with --line N, from 1")
        }
    };
    completions
        .keep_line(line)
        .with_context(|| format!("{file} has no completion in line {line}"))?;
    let settings = settings::load(&args.settings, &[&args.reward, &args.graders])?;
    let (settings, config, scored) =
        score_with_settings(&mut completions, settings, &args.recording)?;
    let origin = format!(
        "line {line} of {}",
        args.subject.file_name().unwrap_or_default().to_string_lossy()
    );
    let mut explained = Vec::new();
    for completion in scored.completions {
        explained.push(ExplainedCompletion::new(
            origin.clone(),
            completion.trace,
            &settings.reward,
        ));
    }
    let replayed = "The counts were replayed from a recording, which has no text.";
    let corpus = config.answers.map(|(corpus, _)| corpus).ok_or_else(|| replayed.to_owned());
    Ok(ExplainInput { corpus, settings: settings.reward, completions: explained })
}

/// Returns passages that match the queries of a completion. If the index cannot be opened, the page
/// shows the reason instead.
fn evidence(
    explained: &ExplainedCompletion,
    corpus: Result<&CorpusConfig, &String>,
) -> Vec<QueryEvidence> {
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
            texts.find(&query.all_of, PASSAGES).map_err(|error| format!("{error:#}"))
        });
        let (passages, missing) = match found {
            Ok(passages) => (passages.iter().map(passage).collect(), None),
            Err(why) => (Vec::new(), Some(why)),
        };
        QueryEvidence { query: query.to_string(), passages, missing }
    };
    lookups.into_iter().map(|lookup| of_query(&lookup.query)).collect()
}

fn open(config: &CorpusConfig) -> Result<CorpusPassages> {
    let passages = CorpusPassages::new(config)?;
    passages.open()?;
    Ok(passages)
}

fn passage(passage: &corver_corpus::MatchPassage) -> MatchedPassage {
    let pieces =
        passage.spans.iter().map(|span| Piece { text: span.text.clone(), matched: span.matched });
    MatchedPassage { origin: origin(passage), pieces: pieces.collect() }
}

fn show(explained: &ExplainedCompletion, settings: &RewardSettings) {
    let ExplainedCompletion { origin, trace, returns, group, .. } = explained;
    output::line(origin);
    show_return(trace, &ReturnParts::new(trace, settings));
    if let Some(group) = group {
        output::line(format_args!("  {}", group_text(group)));
    }
    for (n, (sentence, value)) in trace.sentences.iter().zip(&returns.sentences).enumerate() {
        show_sentence(&sentence.text, sentence.verdict.as_ref());
        let advantage = group
            .as_ref()
            .map_or(String::new(), |group| format!(", advantage {:+.3}", group.sentences[n]));
        output::line(format_args!("         return {value:+.3}{advantage}"));
    }
}

/// Describes the baseline of a completion. Only GRPO's is the mean of the group.
fn group_text(group: &ExplainedGroup) -> String {
    format!(
        "baseline {:+.3}, deviation {:.3}; advantage {:+.3} outside sentences",
        group.baseline.centre, group.baseline.spread, group.outside
    )
}

#[cfg(test)]
mod tests {
    use corver_core::{Estimator, TracedReturns};

    use super::*;

    /// RLOO's baseline is the mean of the other completions, 4 here; the group's mean is 3.
    #[test]
    fn baseline_is_named_for_any_estimator() {
        let mean_returns = vec![1.0, 2.0, 6.0];
        let baseline = Estimator::Rloo.baselines(&mean_returns, 3).unwrap()[0];
        let returns =
            TracedReturns { outside: 1.5, sentences: Vec::new(), advantage_signs: Vec::new() };
        let group = ExplainedGroup::new(baseline, mean_returns, 0, &returns);
        assert_eq!(
            group_text(&group),
            "baseline +4.000, deviation 2.646; advantage -2.500 outside sentences"
        );
    }
}
