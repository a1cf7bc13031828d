//! `corver-host plugin run`: sentences → verdicts, or completions → grades.

use std::path::Path;

use anyhow::{Context, Result, bail};
use corver_core::sentence::{Split, split};
use corver_core::trace::SentenceTrace;
use corver_core::{Completion, Extractor as _, Section, Sentence, Triplet, Verifiers};
use corver_reward::Config;
use corver_reward::parts::{self, AnyRule, Loader};
use corver_rules::ResponseRule;
use corver_study::eval::{Completions, read_completions};
use serde::Deserialize;
use serde_json::json;

use crate::args::PluginRunArgs;
use crate::command::score;
use crate::output;
use crate::recording;
use crate::settings;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    sentence: String,
    triplets: Option<Vec<(String, String, String)>>,
}

pub fn run(args: &PluginRunArgs, json: bool) -> Result<()> {
    let config = Config::resolve(settings::of_rule(&args.rule)?)?;
    let text = std::fs::read_to_string(&args.file).with_context(|| format!("cannot read {}", args.file.display()))?;
    let holds_completions = text.lines().find(|line| !line.trim().is_empty()).is_some_and(is_completion);
    let loader = Loader::new(&config)?;
    let rule = loader.any(&args.rule.plugin)?;
    let mut verifiers = recording::verifiers(&config, &args.recording)?;
    let mut rule = match rule {
        AnyRule::Sentence(rule) => rule,
        AnyRule::Response(rule) => return grade(&rule, &args.file, &config, &mut verifiers, json),
    };
    if holds_completions {
        let completions = read_completions(&args.file)?;
        return score::score_and_show(completions, &config, &mut verifiers, &mut rule, &mut loader.graders()?, json);
    }
    let sentences = sentences(&text, &args.file, &config)?;
    let completion = Completion { sentences: &sentences, ..Completion::default() };
    let verdicts = rule.score(&[completion], &mut verifiers)?.concat();
    for (sentence, verdict) in sentences.into_iter().zip(verdicts) {
        let Sentence { text, section, triplets, .. } = sentence;
        if json {
            output::json(&SentenceTrace { text, section, triplets, verdict: Some(verdict), tokens: None })?;
        } else {
            score::show_sentence(&text, Some(&verdict));
        }
    }
    Ok(())
}

/// What a response rule says of the completions in a file.
fn grade(rule: &ResponseRule, path: &Path, config: &Config, verifiers: &mut Verifiers<'_>, json: bool) -> Result<()> {
    let Completions { questions, rollouts, .. } = read_completions(path)?;
    let splits: Vec<Split> = rollouts.iter().map(|rollout| split(&rollout.text, config.reward.compatibility)).collect();
    let completions: Vec<Completion<'_>> = rollouts
        .iter()
        .zip(&splits)
        .map(|(rollout, split)| Completion::new(&questions[rollout.question], rollout, &split.sentences))
        .collect();
    for (completion, grade) in completions.iter().zip(rule.grade(&completions, verifiers)?) {
        let Completion { question, text, .. } = completion;
        if json {
            output::json(&json!({"question": question, "completion": text, "grade": grade}))?;
            continue;
        }
        let note = grade.note.map_or(String::new(), |note| format!(" ({note})"));
        output::line(format_args!("  {:+.2}  {}{note}  {text}", grade.reward, grade.label));
    }
    Ok(())
}

fn is_completion(line: &str) -> bool {
    serde_json::from_str::<serde_json::Value>(line).is_ok_and(|line| line.get("completion").is_some())
}

/// The sentences of a file, as those of one completion. The extractor finds the triplets that are not given.
fn sentences(text: &str, path: &Path, config: &Config) -> Result<Vec<Sentence>> {
    let mut sentences = Vec::new();
    let mut without = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let line: Line = serde_json::from_str(line).with_context(|| {
            format!(
                "{}:{}: a line is {{\"sentence\", \"triplets\": [[head, relation, tail], …]}}",
                path.display(),
                number + 1
            )
        })?;
        if line.triplets.is_none() {
            without.push(sentences.len());
        }
        let triplet = |(head, relation, tail)| Triplet { head, relation, tail };
        let triplets = line.triplets.into_iter().flatten().map(triplet).collect();
        sentences.push(Sentence { text: line.sentence, section: Section::Body, span: None, triplets });
    }
    if sentences.is_empty() {
        bail!("{} holds no sentence", path.display());
    }
    if !without.is_empty() {
        let texts: Vec<&str> = without.iter().map(|&place| sentences[place].text.as_str()).collect();
        let found = parts::extractor(config)?.1.extract(&texts).map_err(anyhow::Error::from_boxed)?;
        for (place, triplets) in without.into_iter().zip(found) {
            sentences[place].triplets = triplets;
        }
    }
    Ok(sentences)
}
