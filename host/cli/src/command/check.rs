//! `corver-host check`: finds the sentences that the corpus does not support.

use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use corver_reward::Scorer;
use corver_reward::check::{
    CheckedClaim, CheckedSentence, CheckedText, QuestionCheck, Status, Text,
};
use corver_reward::config::{self, BackendsConfig, CorpusConfig, RewardConfig, RulesConfig};
use corver_settings::Settings;
use serde_json::{Map, Value};

use super::index::count::origin;
use super::score::show_lookup;
use crate::args::CheckArgs;
use crate::output::{self, Tone};
use crate::settings;

/// Exit code if at least one sentence is unsupported.
const UNSUPPORTED: u8 = 3;

pub fn run(args: &CheckArgs, json: bool) -> Result<ExitCode> {
    let mut settings = settings::load(&args.settings, &[&args.reward])?;
    settings.check.by = args.by.map_or(settings.check.by, Into::into);
    let texts = texts(args)?;
    let mut scorer = open(&texts, settings)?;
    let passages = args.passages.unwrap_or(usize::from(scorer.has_passages()));
    let checked = scorer.check(&texts, passages)?;
    for text in &checked {
        if json { output::json(text)? } else { show(text) }
    }
    let is_clean = checked.iter().all(|text| text.unsupported == 0);
    Ok(if is_clean { ExitCode::SUCCESS } else { ExitCode::from(UNSUPPORTED) })
}

/// Opens what the texts need: no extractor if all of them have triplets.
fn open(texts: &[Text], settings: Settings) -> Result<Scorer> {
    if texts.iter().all(|text| text.triplets.is_some()) {
        type Parts = ((CorpusConfig, BackendsConfig), RulesConfig);
        let (settings, parts) = config::resolve::<Parts>(settings)?;
        let ((corpus, backends), rules) = parts;
        return Scorer::open_without_extractor(&corpus, &backends, &rules, &settings);
    }
    let (settings, reward) = config::resolve::<RewardConfig>(settings)?;
    Scorer::open(&reward, &settings)
}

fn texts(args: &CheckArgs) -> Result<Vec<Text>> {
    let mut sources = Vec::new();
    if let Some(text) = &args.text {
        sources.push(("--text".to_owned(), text.clone()));
    } else if args.files.is_empty() {
        let text = corver_files::read_text_from(std::io::stdin())
            .context("cannot read a text from standard input")?;
        sources.push(("standard input".to_owned(), text));
    }
    for path in &args.files {
        let text = corver_files::read_text(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        sources.push((path.display().to_string(), text));
    }
    let question = args.question.clone().unwrap_or_default();
    let mut texts = Vec::new();
    for (name, source) in sources {
        let first = texts.len();
        if is_json_lines(&name, &source) {
            read_json_lines(&name, &source, &mut texts)?;
        } else {
            texts.push(Text { text: source, ..Text::default() });
        }
        let has_text =
            texts.len() > first && texts[first..].iter().all(|text| !text.text.trim().is_empty());
        ensure!(has_text, "{name} holds no text to check");
    }
    for text in &mut texts {
        if text.question.is_empty() {
            text.question.clone_from(&question);
        }
    }
    Ok(texts)
}

/// True for a file of JSON, by its name or its first line.
fn is_json_lines(name: &str, source: &str) -> bool {
    let is_object = |line: &str| serde_json::from_str::<Map<String, Value>>(line).is_ok();
    [".jsonl", ".ndjson", ".json"].iter().any(|ending| name.ends_with(ending))
        || source.trim_start().lines().next().is_some_and(is_object)
}

/// Adds the texts of a file with one JSON object each.
fn read_json_lines(name: &str, source: &str, texts: &mut Vec<Text>) -> Result<()> {
    for text in serde_json::Deserializer::from_str(source).into_iter::<Text>() {
        texts.push(text.with_context(|| format!("failed to read {name}; {FORM}"))?);
    }
    Ok(())
}

const FORM: &str = concat!(
    r#"a text is {"text", "question", "triplets"}, where "question" and "triplets" may be left "#,
    r#"out; triplets are [[sentence, [[head, relation, tail], …]], …], in place of the extractor's"#,
);

fn show(checked: &CheckedText) {
    checked.question.iter().for_each(show_question);
    checked.sentences.iter().for_each(show_sentence);
    let total = checked.sentences.len();
    output::line(format_args!("{} of {total} sentences are unsupported", checked.unsupported));
}

fn show_question(question: &QuestionCheck) {
    let Some(mean) = question.mean else {
        return output::line(match question.entities.len() {
            0 => "the extractor read no entity from the question",
            _ => "the corpus has no counts of the question's entities",
        });
    };
    let rare = if question.rare { "rare: look something up before answering" } else { "common" };
    output::line(format_args!("the question's entities occur {mean:.0} times on average: {rare}"));
    question.entities.iter().for_each(show_lookup);
}

fn show_sentence(sentence: &CheckedSentence) {
    let (mark, tone) = match sentence.status {
        Status::Unsupported => ("unsupported", Tone::Bad),
        Status::Supported => ("supported", Tone::Good),
        Status::NoClaim => ("no claim", Tone::Plain),
        Status::NotTested => ("not tested", Tone::Plain),
    };
    output::marked(mark, tone, &sentence.text);
    sentence.claims.iter().for_each(show_claim);
    if let Some(reward) = sentence.rule.reward {
        let note = sentence.rule.note.as_deref().map_or(String::new(), |note| format!(" ({note})"));
        output::line(format_args!("         reward of the rule {reward:+.2}{note}"));
    }
}

fn show_claim(claim: &CheckedClaim) {
    show_lookup(&claim.lookup);
    for passage in &claim.passages {
        output::line(format_args!("         {}:", origin(passage)));
        output::running_text(passage.spans.iter().map(|span| (span.text.as_str(), span.matched)));
    }
}
