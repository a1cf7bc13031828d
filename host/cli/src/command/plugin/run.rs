//! `corver-host plugin run`: runs a rule on sentences or completions.

use std::path::Path;

use anyhow::{Context, Result, bail};
use corver_core::language::bare_triplets;
use corver_core::sentence::Split;
use corver_core::split::split;
use corver_core::trace::SentenceTrace;
use corver_core::{
    Backends, Completion, Extractor as _, ExtractorInput, Scorers, Section, Sentence, Triplet,
};
use corver_eval::{CompletionSet, parse_completions};
use corver_reward::config::{self, ExtractorConfig, RulesConfig};
use corver_reward::parts::{self, AnyRule, Loader};
use corver_rules::ResponseRule;
use corver_settings::RewardSettings;
use serde::Deserialize;
use serde_json::json;

use crate::args::PluginRunArgs;
use crate::command::score;
use crate::output;
use crate::recording;
use crate::scoring::GivenConfig;
use crate::settings;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SentenceRecord {
    sentence: String,
    triplets: Option<Vec<(String, String, String)>>,
}

pub fn run(args: &PluginRunArgs, json: bool) -> Result<()> {
    let text = corver_files::read_text(&args.file)
        .with_context(|| format!("cannot read {}", args.file.display()))?;
    let input = RuleInput::read(&text, &args.file)?;
    let settings = settings::of_rule(&args.rule, &[&args.parts])?;
    let loader_config = RulesConfig::single(&args.rule.plugin, &settings);
    let loader = Loader::new(&loader_config)?;
    let rule = loader.any(&args.rule.plugin)?;
    let needs_no_extractor = input.has_triplets() || matches!(rule, AnyRule::Response(_));
    let (settings, config) = config::resolve_with(settings, |settings, problems| {
        GivenConfig::resolve(needs_no_extractor, &args.recording, settings, problems)
    })?;
    recording::check(&args.recording, false)?;
    // Called last, because it creates the file of --record: an earlier failure leaves none.
    let open_backends = || recording::backends(&config.answers, &args.recording);
    let mut rule = match rule {
        AnyRule::Sentence(rule) => rule,
        AnyRule::Response(rule) => {
            let completions = match input {
                RuleInput::Completions(completions) => completions,
                // Fails with a message that has the form of a completion.
                RuleInput::Sentences(_) => parse_completions(text.as_bytes(), &args.file)?,
            };
            return grade(&rule, &completions, &settings.reward, &mut open_backends()?, json);
        }
    };
    let extractor = config.extractor.as_ref();
    let mut sentences = match input {
        RuleInput::Completions(mut completions) => {
            let mut graders = Loader::new(&config.rules)?.graders()?;
            let mut source = score::open_extractor(&mut completions, extractor)?;
            let mut backends = open_backends()?;
            let mut scorers = Scorers {
                extractor: source.as_mut(),
                backends: &mut backends,
                sentence_scorer: &mut rule,
                graders: &mut graders,
            };
            let scored = score::scored(&completions, &mut scorers, &settings.reward)?;
            return score::show_scored(&scored, &settings.reward, json);
        }
        RuleInput::Sentences(sentences) => sentences,
    };
    if let Some(extractor) = extractor {
        extract_missing(&mut sentences, extractor)?;
    }
    let mut backends = open_backends()?;
    let mut sentences: Vec<Sentence> =
        sentences.into_iter().map(|(sentence, _)| sentence).collect();
    for sentence in &mut sentences {
        let triplets = std::mem::take(&mut sentence.triplets);
        sentence.triplets = bare_triplets(triplets, settings.reward.language);
    }
    let completion = Completion { sentences: &sentences, ..Completion::default() };
    let verdicts = rule.score(&[completion], &mut backends)?.concat();
    for (sentence, verdict) in sentences.into_iter().zip(verdicts) {
        let Sentence { text: sentence_text, section, triplets, .. } = sentence;
        if json {
            output::json(&SentenceTrace {
                text: sentence_text,
                section,
                triplets,
                verdict: Some(verdict),
                tokens: None,
            })?;
        } else {
            score::show_sentence(&sentence_text, Some(&verdict));
        }
    }
    Ok(())
}

/// Grades completions with a response rule.
fn grade(
    rule: &ResponseRule,
    completions: &CompletionSet,
    settings: &RewardSettings,
    backends: &mut Backends<'_>,
    json: bool,
) -> Result<()> {
    let CompletionSet { questions, rollouts, .. } = completions;
    let mut splits: Vec<Split> = Vec::with_capacity(rollouts.len());
    for rollout in rollouts {
        splits.push(split(&rollout.text, settings.text()));
    }
    let batch: Vec<Completion<'_>> = rollouts
        .iter()
        .zip(&splits)
        .map(|(rollout, split)| {
            Completion::new(&questions[rollout.question], rollout, &split.sentences)
        })
        .collect();
    for (completion, grade) in batch.iter().zip(rule.grade(&batch, backends)?) {
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
    serde_json::from_str::<serde_json::Value>(line)
        .is_ok_and(|line| line.get("completion").is_some())
}

/// Input of a rule.
enum RuleInput {
    /// Completions in the format of `score`.
    Completions(CompletionSet),
    /// Sentences of one completion; true if the file has a sentence's triplets.
    Sentences(Vec<(Sentence, bool)>),
}

impl RuleInput {
    fn read(text: &str, path: &Path) -> Result<Self> {
        if text.lines().find(|line| !line.trim().is_empty()).is_some_and(is_completion) {
            return Ok(Self::Completions(parse_completions(text.as_bytes(), path)?));
        }
        Ok(Self::Sentences(sentences(text, path)?))
    }

    fn has_triplets(&self) -> bool {
        match self {
            Self::Completions(completions) => completions.triplets.is_some(),
            Self::Sentences(sentences) => sentences.iter().all(|(_, is_given)| *is_given),
        }
    }
}

/// Reads the sentences of a file.
fn sentences(text: &str, path: &Path) -> Result<Vec<(Sentence, bool)>> {
    let mut sentences = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let line: SentenceRecord = serde_json::from_str(line).with_context(|| {
            format!(
                "{}:{}: a line is {{\"sentence\", \"triplets\": [[head, relation, tail], …]}}",
                path.display(),
                number + 1
            )
        })?;
        let is_given = line.triplets.is_some();
        let triplet = |(head, relation, tail)| Triplet { head, relation, tail };
        let triplets = line.triplets.into_iter().flatten().map(triplet).collect();
        let sentence =
            Sentence { text: line.sentence, section: Section::Body, span: None, triplets };
        sentences.push((sentence, is_given));
    }
    if sentences.is_empty() {
        bail!("{} holds no sentence", path.display());
    }
    Ok(sentences)
}

/// Extracts the triplets that are not given.
fn extract_missing(sentences: &mut [(Sentence, bool)], extractor: &ExtractorConfig) -> Result<()> {
    let mut without: Vec<&mut Sentence> = Vec::new();
    for (sentence, is_given) in sentences {
        if !*is_given {
            without.push(sentence);
        }
    }
    let inputs: Vec<ExtractorInput<'_>> =
        without.iter().map(|sentence| ExtractorInput::of_sentence(&sentence.text)).collect();
    let mut extractor = parts::open_extractor(extractor)?;
    let found = extractor.extract(&inputs).map_err(anyhow::Error::from_boxed)?;
    for (sentence, triplets) in without.into_iter().zip(found) {
        sentence.triplets = triplets;
    }
    Ok(())
}
