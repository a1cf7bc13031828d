//! `corver-host judge`: judges graded answers or sentences of calibration sheets with a chat model.

mod answer;
mod sentence;

use std::fmt::Display;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, bail};
use corver_analysis::judge::{JudgeAgreement, JudgeSettings, JudgeSubject, JudgedSubject};
use corver_backends::chat::{ChatClient, Spending};
use corver_core::{ChatPrompt, ChatReply};
use corver_reward::folders;
use corver_runs::{RunDir, fingerprint, folder, json_fingerprint};
use corver_settings::ChatSettings;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::args::JudgeArgs;
use crate::output;
use crate::resumed;

/// File with every item, the model's label and the other label.
const JUDGED: &str = "judged.jsonl";
/// File with the items whose labels differ.
const DISPUTED: &str = "disputed.jsonl";

pub fn run(args: &JudgeArgs, json: bool) -> Result<()> {
    let sheets: Vec<bool> = args.files.iter().map(|path| is_sheet(path)).collect::<Result<_>>()?;
    match (sheets.contains(&true), sheets.contains(&false)) {
        (true, true) => {
            bail!("answers and sheets need different judges; give one kind at a time")
        }
        (true, false) => sentence::run(args, json),
        _ => answer::run(args, json),
    }
}

/// True if a file is not JSON, as answers are. An empty file counts as answers, whose reader reports
/// it.
fn is_sheet(path: &Path) -> Result<bool> {
    let mut start = Vec::new();
    let file = corver_files::open_text(path).and_then(|file| file.take(64).read_to_end(&mut start));
    file.with_context(|| format!("cannot read {}", path.display()))?;
    Ok(start
        .iter()
        .find(|byte| !byte.is_ascii_whitespace())
        .is_some_and(|first| !b"{[".contains(first)))
}

/// Configuration file of a judge.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct JudgeFile<L> {
    judge: JudgeSettings<L>,
    #[serde(default)]
    chat: ChatSettings,
}

/// The model's replies, and the folder for the results.
struct JudgeRun<L> {
    run: RunDir,
    judge: JudgeSettings<L>,
    replies: Vec<String>,
    bill: Bill,
}

/// The model's usage and cost.
#[derive(Debug, Serialize)]
struct Bill {
    model: String,
    /// Number of replies without a valid label.
    unlabelled: usize,
    spent: Spending,
    /// Cost of this command's requests, in the currency of the prices.
    cost: f64,
    /// Cost including that of the cached replies.
    total_cost: f64,
}

/// Requests the model's label of every subject; cached replies are not requested again. `built_in`
/// is the judge's configuration if --prompt names none.
fn request_labels<S: JudgeSubject>(
    args: &JudgeArgs,
    built_in: &str,
    subjects: &[S],
) -> Result<JudgeRun<S::Label>> {
    let file: JudgeFile<S::Label> = judge_file(args, built_in)?;
    file.judge.check::<S>()?;
    let settings = &file.chat;
    let chat =
        ChatClient::open(settings.clone(), "chat", &folders::cache()?.join("chat/replies.jsonl"))?;

    let mut manifest = resumed::manifest();
    let files: Vec<String> =
        args.files.iter().map(|path| fingerprint(path)).collect::<Result<_, _>>()?;
    manifest.set("files", files.join(" "));
    let model = settings.model.clone().unwrap_or_default(); // `ChatClient::open` refuses a file without
    manifest.set("endpoint", settings.endpoint.as_deref().unwrap_or_default());
    manifest.set("model", &model);
    let prompts: Vec<ChatPrompt> =
        subjects.iter().map(|subject| file.judge.prompt_for(subject)).collect();
    manifest.set("prompts", json_fingerprint(&prompts)?);
    let path = args.out.clone().unwrap_or_else(|| folder::next_free(Path::new("runs"), "judge"));
    let resolved = toml::to_string_pretty(&file).context("writing the judge's settings")?;
    let run = resumed::create(&path, &manifest, &resolved)?;

    let JudgeFile { judge, chat: chat_settings } = file;
    let bar = output::progress(prompts.len() as u64, "judging");
    let replies = chat.reply_all(
        &prompts,
        |reply| judge.parse_reply(reply).is_some(),
        |done| bar.set_position(done as u64),
    );
    bar.finish_and_clear();
    let replies = replies.context("replies received so far are cached, and cost nothing again")?;
    let replies: Vec<String> =
        replies.into_iter().map(|ChatReply { content, .. }| content).collect();
    let unlabelled = replies.iter().filter(|reply| judge.parse_reply(reply).is_none()).count();
    let spent = chat.spending();
    let cost = spent.requested.cost(chat_settings.prices);
    let total_cost = spent.cost(chat_settings.prices);
    let bill = Bill { model, unlabelled, spent, cost, total_cost };
    Ok(JudgeRun { run, judge, replies, bill })
}

impl<L: Copy + PartialEq + Display> JudgeRun<L> {
    /// Pairs each subject with the model's label, and writes the pairs to the folder.
    fn judged<'a, S: JudgeSubject<Label = L>>(
        &'a self,
        subjects: &'a [S],
    ) -> Result<Vec<JudgedSubject<'a, S>>> {
        let judged: Vec<JudgedSubject<'_, S>> = subjects
            .iter()
            .zip(&self.replies)
            .map(|(subject, reply)| JudgedSubject {
                subject,
                model: self.judge.parse_reply(reply),
                reply,
            })
            .collect();
        self.run.write_lines(JUDGED, &judged)?;
        let disputed: Vec<&JudgedSubject<'_, S>> =
            judged.iter().filter(|item| item.is_disputed()).collect();
        self.run.write_lines(DISPUTED, &disputed)?;
        Ok(judged)
    }

    /// Prints usage and cost, and the file of the disputed items.
    fn show(&self, disputed: usize) {
        let Bill { unlabelled, spent: Spending { requested, cached }, cost, total_cost, .. } =
            &self.bill;
        if *unlabelled > 0 {
            output::line(format_args!(
                "skipped, because neither reply had a valid label: {unlabelled}"
            ));
        }
        output::line(format_args!(
            "{} replies requested, {} + {} tokens, cost {cost:.4}; {} from the cache; \
             total cost {total_cost:.4}",
            requested.replies, requested.prompt_tokens, requested.completion_tokens, cached.replies
        ));
        if disputed > 0 {
            let path = self.run.path().join(DISPUTED);
            output::line(format_args!("{disputed} disputed items are in {}", path.display()));
        }
    }
}

/// Reads the judge's configuration; flags override it.
fn judge_file<L: DeserializeOwned>(args: &JudgeArgs, built_in: &str) -> Result<JudgeFile<L>> {
    let mut file: JudgeFile<L> = match &args.prompt {
        None => toml::from_str(built_in).context("in the built-in judge")?,
        Some(path) => {
            let text = corver_files::read_settings_text(path)
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

/// Prints the confusion matrix and κ of the model and `other`, whose labels are the rows.
fn show_agreement<const K: usize>(
    other: &str,
    labels: [impl Display; K],
    agreement: &JudgeAgreement<K>,
) {
    let names = labels.map(|label| label.to_string());
    let header = [&[format!("{other} ↓ model →")][..], &names].concat();
    let row = |(name, counts): (&String, &[usize; K])| -> Vec<String> {
        [name.clone()].into_iter().chain(counts.iter().map(usize::to_string)).collect()
    };
    output::table(header, names.iter().zip(&agreement.table).map(row));
    let share = output::percent(agreement.agreement);
    let labelled = agreement.labelled();
    let kappa = match agreement.kappa {
        Some(kappa) => format!("{:.3} (95 %: {:.3} to {:.3})", kappa.value, kappa.low, kappa.high),
        None if labelled == 0 => "undefined: nothing has both labels".to_owned(),
        None => "undefined: both gave one label alone".to_owned(),
    };
    output::line(format_args!("{share} of {labelled} have the same label; Cohen's κ {kappa}"));
}
