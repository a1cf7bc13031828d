//! `corver-host demo`: writes the demo's articles and questions.

use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result, bail};
use corver_data::QuestionRecord;
use serde_json::json;

use crate::args::{DemoArgs, DemoCommand};
use crate::files;
use crate::output;

pub fn run(args: &DemoArgs, json: bool) -> Result<()> {
    let DemoCommand::World { out } = &args.command;
    files::create_folder(out)?;
    let articles = corver_demo::demo_corpus();
    let mut lines = String::new();
    for article in &articles {
        files::push_line(&mut lines, &json!({"title": article.title, "text": article.text}))?;
    }
    let mut texts = vec![("articles.jsonl", lines)];
    let (train, eval) = corver_demo::demo_questions();
    for (name, questions) in [("train.json", &train), ("eval.json", &eval)] {
        let records: Vec<_> = questions.iter().map(QuestionRecord::from).collect();
        texts.push((name, serde_json::to_string_pretty(&records)? + "\n"));
    }
    for (name, text) in &texts {
        check_absent_or_equal(&out.join(name), text)?;
    }
    for (name, text) in &texts {
        files::write(&out.join(name), text)?;
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

/// Fails if there is a file with other content.
fn check_absent_or_equal(path: &Path, text: &str) -> Result<()> {
    match std::fs::read(path) {
        Ok(content) if content == text.as_bytes() => Ok(()),
        Ok(_) => bail!("{} has other content; choose another folder", path.display()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}
