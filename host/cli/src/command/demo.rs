//! `corver-host demo`: the world, and the commands that make its models anew.

use std::path::Path;

use anyhow::{Context, Result};
use corver_core::Question;
use serde_json::json;

use crate::args::{DemoArgs, DemoCommand};
use crate::output;

pub fn run(args: &DemoArgs, json: bool) -> Result<()> {
    match &args.command {
        DemoCommand::World { out } => write_world(out, json),
        #[cfg(feature = "torch")]
        DemoCommand::TrainPolicy { out } => train::policy(out),
        #[cfg(feature = "torch")]
        DemoCommand::TrainExtractor { out } => train::extractor(out),
        #[cfg(not(feature = "torch"))]
        DemoCommand::TrainPolicy { .. } | DemoCommand::TrainExtractor { .. } => {
            anyhow::bail!(
                "this corver-host was built without libtorch and cannot train; build it with the feature `torch`"
            )
        }
    }
}

fn write_world(out: &Path, json: bool) -> Result<()> {
    std::fs::create_dir_all(out).with_context(|| format!("cannot create {}", out.display()))?;
    let articles = corver_demo::demo_corpus();
    let lines = articles.iter().map(|article| json!({"title": article.title, "text": article.text}).to_string());
    write(&out.join("articles.jsonl"), &(lines.collect::<Vec<_>>().join("\n") + "\n"))?;
    let (train, eval) = corver_demo::demo_questions();
    for (name, questions) in [("train.json", &train), ("eval.json", &eval)] {
        let records: Vec<_> = questions.iter().map(record).collect();
        write(&out.join(name), &(serde_json::to_string_pretty(&records)? + "\n"))?;
    }
    if json {
        return output::json(&json!({"articles": articles.len(), "train": train.len(), "eval": eval.len()}));
    }
    output::line(format_args!(
        "{}: {} articles, {} questions to train on, {} to measure with",
        out.display(),
        articles.len(),
        train.len(),
        eval.len()
    ));
    Ok(())
}

fn record(question: &Question) -> serde_json::Value {
    json!({"question": question.question, "answers": question.golds.join(";"), "title": question.title})
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(feature = "torch")]
mod train {
    use corver_demo::extractor::{ExtractorSettings, measure_extractor, train_extractor};
    use corver_demo::policy::{PolicySettings, train_policy};

    use super::{Context, Path, Result};
    use crate::{output, parts};

    /// Sentences that a new extractor is measured on, and the seed that draws them.
    const MEASURED: usize = 5000;
    const MEASURING_SEED: u64 = 1;

    pub fn policy(out: &Path) -> Result<()> {
        let settings = PolicySettings::default();
        let bar = output::progress(settings.steps as u64, "training");
        let world = corver_demo::demo_world();
        let quality = train_policy(&world, out, &settings, |step| bar.set_position(step as u64))
            .with_context(|| format!("training the policy into {}", out.display()))?;
        bar.finish_and_clear();
        output::json(&quality)
    }

    pub fn extractor(out: &Path) -> Result<()> {
        let settings = ExtractorSettings::default();
        let bar = output::progress(settings.steps as u64, "training");
        train_extractor(out, &settings, |step| bar.set_position(step as u64))
            .with_context(|| format!("training the extractor into {}", out.display()))?;
        bar.finish_and_clear();
        let mut trained = parts::open_extractor(out, "cpu")?;
        let quality = measure_extractor(&mut trained, &corver_demo::demo_world(), MEASURED, MEASURING_SEED)
            .map_err(anyhow::Error::from_boxed)
            .context("measuring the extractor")?;
        output::json(&quality)
    }
}
