//! `corver-host judge`: a chat model's opinion of answers that the string match has graded, or of
//! sentences to calibrate with.

mod answer;
mod sentence;

use std::fmt::Display;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, bail};
use corver_analysis::judge::{Agreement, JudgeSettings, Judged, Subject};
use corver_backends::chat::{Chat, Spent};
use corver_core::{ChatPrompt, ChatReply};
use corver_reward::folders;
use corver_runs::{RunDir, RunManifest, fingerprint, folder, text_fingerprint};
use corver_settings::ChatSettings;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::args::JudgeArgs;
use crate::output;
use crate::resumed;

/// Everything that was judged with both opinions, a line each.
const JUDGED: &str = "judged.jsonl";
/// That on which they differ.
const DISPUTED: &str = "disputed.jsonl";

pub fn run(args: &JudgeArgs, json: bool) -> Result<()> {
    let sheets: Vec<bool> = args.files.iter().map(|path| is_sheet(path)).collect::<Result<_>>()?;
    match (sheets.contains(&true), sheets.contains(&false)) {
        (true, true) => {
            bail!("answers and sheets have judges of their own; give one kind at a time")
        }
        (true, false) => sentence::run(args, json),
        _ => answer::run(args, json),
    }
}

/// Answers are JSON; anything else is read as a sheet. A file without a word is left to the
/// answers' reader, which says so.
fn is_sheet(path: &Path) -> Result<bool> {
    let mut start = Vec::new();
    let file = File::open(path).and_then(|file| file.take(64).read_to_end(&mut start));
    file.with_context(|| format!("cannot read {}", path.display()))?;
    Ok(start
        .iter()
        .find(|byte| !byte.is_ascii_whitespace())
        .is_some_and(|first| !b"{[".contains(first)))
}

/// A judge's file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct JudgeFile<L> {
    judge: JudgeSettings<L>,
    #[serde(default)]
    chat: ChatSettings,
}

/// What the model said, and the folder for what follows from it.
struct Asked<L> {
    run: RunDir,
    judge: JudgeSettings<L>,
    replies: Vec<String>,
    bill: Bill,
}

/// Who was asked, and at what cost.
#[derive(Debug, Serialize)]
struct Bill {
    model: String,
    /// Replies that are no label.
    unlabelled: usize,
    spent: Spent,
    /// Of `spent.now`.
    cost: f64,
    /// With that of replies kept from before.
    cost_in_all: f64,
}

/// Asks a model about every subject, once: the replies are kept. `built_in` is the judge where no
/// file names another.
fn ask<S: Subject>(args: &JudgeArgs, built_in: &str, subjects: &[S]) -> Result<Asked<S::Label>> {
    let file: JudgeFile<S::Label> = judge_file(args, built_in)?;
    file.judge.check::<S>()?;
    let settings = &file.chat;
    let chat = Chat::open(settings.clone(), "chat", &folders::cache()?.join("chat/replies.jsonl"))?;

    let mut manifest = RunManifest::default();
    manifest.set("corver-host", env!("CARGO_PKG_VERSION"));
    let files: Vec<String> =
        args.files.iter().map(|path| fingerprint(path)).collect::<Result<_, _>>()?;
    manifest.set("files", files.join(" "));
    let model = settings.model.clone().unwrap_or_default(); // `Chat::open` refuses a file without
    manifest.set("endpoint", settings.endpoint.as_deref().unwrap_or_default());
    manifest.set("model", &model);
    let prompts: Vec<ChatPrompt> =
        subjects.iter().map(|subject| file.judge.prompt_for(subject)).collect();
    manifest.set("prompts", text_fingerprint(&serde_json::to_string(&prompts)?));
    let path = args.out.clone().unwrap_or_else(|| folder::next_free(Path::new("runs"), "judge"));
    let resolved = toml::to_string_pretty(&file).context("writing the judge's settings")?;
    let run = resumed::create(&path, &manifest, &resolved)?;

    let JudgeFile { judge, chat: chat_settings } = file;
    let bar = output::progress(prompts.len() as u64, "judging");
    let replies = chat.ask_all(
        &prompts,
        |reply| judge.read(reply).is_some(),
        |done| bar.set_position(done as u64),
    );
    bar.finish_and_clear();
    let replies = replies.context("the replies so far are kept, and not paid for again")?;
    let replies: Vec<String> =
        replies.into_iter().map(|ChatReply { content, .. }| content).collect();
    let (unlabelled, spent) =
        (replies.iter().filter(|reply| judge.read(reply).is_none()).count(), chat.spent());
    let (cost, cost_in_all) =
        (spent.now.cost(chat_settings.prices), spent.cost(chat_settings.prices));
    let bill = Bill { model, unlabelled, spent, cost, cost_in_all };
    Ok(Asked { run, judge, replies, bill })
}

impl<L: Copy + PartialEq + Display> Asked<L> {
    /// The same subjects, in the same order, with what the model said; both opinions are written
    /// into the folder.
    fn judged<'a, S: Subject<Label = L>>(
        &'a self,
        subjects: &'a [S],
    ) -> Result<Vec<Judged<'a, S>>> {
        let judged: Vec<Judged<'_, S>> = subjects
            .iter()
            .zip(&self.replies)
            .map(|(subject, reply)| Judged { subject, model: self.judge.read(reply), reply })
            .collect();
        self.run.write_lines(JUDGED, &judged)?;
        let disputed: Vec<&Judged<'_, S>> = judged.iter().filter(|one| one.is_disputed()).collect();
        self.run.write_lines(DISPUTED, &disputed)?;
        Ok(judged)
    }

    /// Says what it took, and where the disputed ones are.
    fn show(&self, disputed: usize) {
        let Bill { unlabelled, spent: Spent { now, before }, cost, cost_in_all, .. } = &self.bill;
        if *unlabelled > 0 {
            output::line(format_args!(
                "left out, because asking again brought no label either: {unlabelled}"
            ));
        }
        output::line(format_args!(
            "{} replies asked for, {} + {} tokens, cost {cost:.4}; {} from the cache; total cost {cost_in_all:.4}",
            now.replies, now.prompt_tokens, now.completion_tokens, before.replies
        ));
        if disputed > 0 {
            let path = self.run.path().join(DISPUTED);
            output::line(format_args!("{disputed} disputed ones to read: {}", path.display()));
        }
    }
}

/// The judge's file, with what the flags say instead.
fn judge_file<L: DeserializeOwned>(args: &JudgeArgs, built_in: &str) -> Result<JudgeFile<L>> {
    let mut file: JudgeFile<L> = match &args.judge {
        None => toml::from_str(built_in).context("in the built-in judge")?,
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("cannot read the judge {}", path.display()))?;
            toml::from_str(&text).with_context(|| {
                format!("{} is not a judge for this kind of file", path.display())
            })?
        }
    };
    let chat = &mut file.chat;
    chat.endpoint = args.endpoint.clone().or(chat.endpoint.take());
    chat.model = args.chat_model.clone().or(chat.model.take());
    chat.key_file = args.key_file.clone().or(chat.key_file.take());
    chat.max_cost = args.max_cost.or(chat.max_cost);
    Ok(file)
}

/// `other` is who gave the labels of the rows.
fn show_agreement<const K: usize>(
    other: &str,
    labels: [impl Display; K],
    agreement: &Agreement<K>,
) {
    let names = labels.map(|label| label.to_string());
    let corner = format!("{other} ↓ model →");
    let header: Vec<&str> = [&corner].into_iter().chain(&names).map(String::as_str).collect();
    let row = |(name, counts): (&String, &[usize; K])| -> Vec<String> {
        [name.clone()].into_iter().chain(counts.iter().map(usize::to_string)).collect()
    };
    output::table(header, names.iter().zip(&agreement.table).map(row));
    let (share, labelled) = (output::percent(agreement.agreement), agreement.labelled());
    let kappa = match agreement.kappa {
        Some(kappa) => format!("{:.3} (95 %: {:.3} to {:.3})", kappa.value, kappa.low, kappa.high),
        None if labelled == 0 => "undefined: nothing has both labels".to_owned(),
        None => "undefined: both gave one label alone".to_owned(),
    };
    output::line(format_args!("{share} of {labelled} have the same label; Cohen's κ {kappa}"));
}
