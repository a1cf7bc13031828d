//! `corver-host demo`: writes the demo's articles and questions.

use std::path::Path;

use anyhow::{Context, Result};
use corver_data::QuestionRecord;
use serde_json::json;

use crate::args::{DemoArgs, DemoCommand};
use crate::output;

pub fn run(args: &DemoArgs, json: bool) -> Result<()> {
    let DemoCommand::World { out } = &args.command;
    std::fs::create_dir_all(out).with_context(|| format!("cannot create {}", out.display()))?;
    let articles = corver_demo::demo_corpus();
    let lines = articles
        .iter()
        .map(|article| json!({"title": article.title, "text": article.text}).to_string());
    write(&out.join("articles.jsonl"), &(lines.collect::<Vec<_>>().join("\n") + "\n"))?;
    let (train, eval) = corver_demo::demo_questions();
    for (name, questions) in [("train.json", &train), ("eval.json", &eval)] {
        let records: Vec<_> = questions.iter().map(QuestionRecord::from).collect();
        write(&out.join(name), &(serde_json::to_string_pretty(&records)? + "\n"))?;
    }
    if json {
        return output::json(
            &json!({"articles": articles.len(), "train": train.len(), "eval": eval.len()}),
        );
    }
    output::line(format_args!(
        "{}: {} articles, {} training questions, {} evaluation questions",
        out.display(),
        articles.len(),
        train.len(),
        eval.len()
    ));
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
