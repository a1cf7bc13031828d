//! `corver-host check`: texts → the sentences that the corpus does not support.

use std::io::Read;
use std::path::Path;
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

/// Some sentence is unsupported.
const UNSUPPORTED: u8 = 3;

pub fn run(args: &CheckArgs, json: bool) -> Result<ExitCode> {
    let mut settings = settings::load(&args.settings, &[&args.reward])?;
    settings.check.by = args.by.map_or(settings.check.by, Into::into);
    let (settings, reward) = config::resolve::<RewardConfig>(settings)?;
    let texts = texts(args)?;
    let mut scorer = Scorer::open(&reward, &settings)?;
    let passages = args.passages.unwrap_or(usize::from(scorer.has_passages()));
    let checked = scorer.check(&texts, passages)?;
    for one in &checked {
        if json { output::json(one)? } else { show(one) }
    }
    let is_clean = checked.iter().all(|one| one.unsupported == 0);
    Ok(if is_clean { ExitCode::SUCCESS } else { ExitCode::from(UNSUPPORTED) })
}

fn texts(args: &CheckArgs) -> Result<Vec<Text>> {
    let question = args.question.clone().unwrap_or_default();
    let named = |name: &str, text: String| {
        ensure!(!text.trim().is_empty(), "{name} holds no text to check");
        Ok(Text { text, question: question.clone() })
    };
    match &args.text {
        Some(text) => Ok(vec![named("--text", text.clone())?]),
        None if args.files.is_empty() => {
            let mut text = String::new();
            std::io::stdin()
                .read_to_string(&mut text)
                .context("cannot read a text from standard input")?;
            Ok(vec![named("standard input", text)?])
        }
        None => {
            let read = |path: &Path| {
                std::fs::read_to_string(path)
                    .with_context(|| format!("cannot read {}", path.display()))
            };
            args.files.iter().map(|path| named(&path.display().to_string(), read(path)?)).collect()
        }
    }
}

fn show(checked: &CheckedText) {
    checked.question.iter().for_each(show_question);
    checked.sentences.iter().for_each(show_sentence);
    let of = checked.sentences.len();
    output::line(format_args!("{} of {of} sentences are unsupported", checked.unsupported));
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
        output::line(format_args!("         the rule pays {reward:+.2}{note}"));
    }
}

fn show_claim(claim: &CheckedClaim) {
    show_lookup(&claim.lookup);
    for passage in &claim.passages {
        output::line(format_args!("         {}:", origin(passage)));
        output::running_text(passage.spans.iter().map(|span| (span.text.as_str(), span.matched)));
    }
}
