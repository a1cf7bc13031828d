//! `corver-host check`: finds the sentences that the corpus does not support.

use std::io::Read;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use corver_reward::Scorer;
use corver_reward::check::{
    CheckedClaim, CheckedSentence, CheckedText, QuestionCheck, Status, Text,
};
use corver_reward::config::{self, RewardConfig};

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
    let (settings, reward) = config::resolve::<RewardConfig>(settings)?;
    let texts = texts(args)?;
    let mut scorer = Scorer::open(&reward, &settings)?;
    let passages = args.passages.unwrap_or(usize::from(scorer.has_passages()));
    let checked = scorer.check(&texts, passages)?;
    for text in &checked {
        if json { output::json(text)? } else { show(text) }
    }
    let is_clean = checked.iter().all(|text| text.unsupported == 0);
    Ok(if is_clean { ExitCode::SUCCESS } else { ExitCode::from(UNSUPPORTED) })
}

fn texts(args: &CheckArgs) -> Result<Vec<Text>> {
    let mut sources = Vec::new();
    if let Some(text) = &args.text {
        sources.push(("--text".to_owned(), text.clone()));
    } else if args.files.is_empty() {
        let mut text = String::new();
        std::io::stdin()
            .read_to_string(&mut text)
            .context("cannot read a text from standard input")?;
        sources.push(("standard input".to_owned(), text));
    }
    for path in &args.files {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        sources.push((path.display().to_string(), text));
    }
    let question = args.question.clone().unwrap_or_default();
    let mut texts = Vec::new();
    for (name, text) in sources {
        ensure!(!text.trim().is_empty(), "{name} holds no text to check");
        texts.push(Text { text, question: question.clone() });
    }
    Ok(texts)
}

fn show(checked: &CheckedText) {
    checked.question.iter().for_each(show_question);
    checked.sentences.iter().for_each(show_sentence);
    let total = checked.sentences.len();
    output::line(format_args!("{} of {total} sentences are unsupported", checked.unsupported));
}

fn show_question(question: &QuestionCheck) {
    let Some(mean) = question.mean else {
        return output::line("the question names no entity that the corpus counts");
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
