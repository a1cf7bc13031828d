//! `corver-host judge`: a chat model's opinion of answers that the string match has graded.

use std::path::Path;

use anyhow::{Context, Result};
use corver_chat::{Chat, ChatSettings, Message, Role, Spent};
use corver_study::judge::agreement::LABELS;
use corver_study::judge::{Agreement, Item, JudgeSettings, Judged, read_items};
use corver_study::run::{RunManifest, fingerprint, folder};
use serde::{Deserialize, Serialize};

use crate::args::JudgeArgs;
use crate::folders;
use crate::output;
use crate::parts;
use crate::resumed;

/// The judge where no file names another.
const ANSWER: &str = include_str!("../../../../configs/judge/answer.toml");
/// Every answer with both opinions, a line each.
const JUDGED: &str = "judged.jsonl";
/// Those that differ.
const DISPUTED: &str = "disputed.jsonl";

/// A judge's file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct JudgeFile {
    judge: JudgeSettings,
    #[serde(default)]
    chat: ChatSettings,
}

/// What came of it.
#[derive(Debug, Serialize)]
struct Summary {
    answers: usize,
    model: String,
    #[serde(flatten)]
    agreement: Agreement,
    spent: Spent,
    /// Of `spent.now`.
    cost: f64,
    /// With that of replies kept from before.
    cost_in_all: f64,
}

pub fn run(args: &JudgeArgs, json: bool) -> Result<()> {
    let file = judge_file(args)?;
    let JudgeFile { judge, chat: settings } = &file;
    judge.check()?;
    let mut questions = Vec::new();
    for path in &args.questions {
        questions.extend(parts::named_questions(path)?);
    }
    let mut items = read_items(&args.answers, &questions)?;
    items.truncate(args.limit.unwrap_or(items.len()));
    let chat = Chat::open(settings.clone(), &folders::cache()?.join("chat/replies.jsonl"))?;

    let mut manifest = RunManifest::default();
    manifest.set("corver-host", env!("CARGO_PKG_VERSION"));
    manifest.set("answers", fingerprint(&args.answers)?);
    manifest.set("endpoint", &settings.endpoint);
    manifest.set("model", &settings.model);
    let path = args.out.clone().unwrap_or_else(|| folder::next_free(Path::new("runs"), "judge"));
    let resolved = toml::to_string_pretty(&file).context("writing the judge's settings")?;
    let run = resumed::create(&path, &manifest, &resolved)?;

    let prompts: Vec<Vec<Message>> = items.iter().map(|item| messages(judge, item)).collect();
    let bar = output::progress(items.len() as u64, "judging");
    let replies = chat.ask_all(&prompts, |reply| judge.read(reply).is_some(), |done| bar.set_position(done as u64));
    bar.finish_and_clear();
    let replies = replies.context("the replies so far are kept, and not paid for again")?;
    let judged: Vec<Judged<'_>> =
        items.iter().zip(&replies).map(|(item, reply)| Judged { item, model: judge.read(reply), reply }).collect();
    run.write_lines(JUDGED, &judged)?;
    let disputed: Vec<&Judged<'_>> = judged.iter().filter(|one| one.is_disputed()).collect();
    run.write_lines(DISPUTED, &disputed)?;
    let spent = chat.spent();
    let summary = Summary {
        answers: items.len(),
        model: settings.model.clone(),
        agreement: Agreement::of(&judged),
        spent,
        cost: spent.now.cost(settings.prices),
        cost_in_all: spent.cost(settings.prices),
    };
    run.finish(&summary)?;
    if json {
        return output::json(&summary);
    }
    show(&summary, disputed.len(), &path);
    Ok(())
}

/// The judge's file, with what the flags say instead.
fn judge_file(args: &JudgeArgs) -> Result<JudgeFile> {
    let mut file: JudgeFile = match &args.judge {
        None => toml::from_str(ANSWER).context("in the built-in judge")?,
        Some(path) => {
            let text =
                std::fs::read_to_string(path).with_context(|| format!("cannot read the judge {}", path.display()))?;
            toml::from_str(&text).with_context(|| format!("{} is no judge", path.display()))?
        }
    };
    let chat = &mut file.chat;
    if let Some(endpoint) = &args.endpoint {
        chat.endpoint.clone_from(endpoint);
    }
    if let Some(model) = &args.model {
        chat.model.clone_from(model);
    }
    chat.key_file = args.key_file.clone().or(chat.key_file.take());
    chat.max_cost = args.max_cost.or(chat.max_cost);
    Ok(file)
}

fn messages(judge: &JudgeSettings, item: &Item) -> Vec<Message> {
    let system = Some(judge.system.clone()).filter(|system| !system.is_empty());
    let system = system.map(|content| Message { role: Role::System, content });
    let user = Message { role: Role::User, content: judge.prompt_for(item) };
    system.into_iter().chain([user]).collect()
}

fn show(summary: &Summary, disputed: usize, path: &Path) {
    let Agreement { table, agreement, kappa, unlabelled } = &summary.agreement;
    let names = LABELS.map(|label| label.to_string());
    output::table(
        ["string match ↓ model →", &names[0], &names[1], &names[2]],
        names.iter().zip(table).map(|(name, [good, bad, not_attempted])| {
            [name.clone(), good.to_string(), bad.to_string(), not_attempted.to_string()]
        }),
    );
    let kappa = match kappa {
        Some(kappa) => format!("{:.3} (95 %: {:.3} to {:.3})", kappa.value, kappa.low, kappa.high),
        None => "undefined: both gave one label alone".to_owned(),
    };
    output::line(format_args!(
        "{} of {} gives the same label; Cohen's κ {kappa}",
        output::percent(*agreement),
        summary.answers
    ));
    if *unlabelled > 0 {
        output::line(format_args!("{unlabelled} replies are no label, twice asked for, and are left out"));
    }
    let Spent { now, before } = summary.spent;
    output::line(format_args!(
        "{} replies paid for now, {} + {} tokens, cost {:.4}; {} kept from before; cost in all {:.4}",
        now.replies, now.prompt_tokens, now.completion_tokens, summary.cost, before.replies, summary.cost_in_all
    ));
    output::line(format_args!("{disputed} answers to read: {}", path.join(DISPUTED).display()));
}
