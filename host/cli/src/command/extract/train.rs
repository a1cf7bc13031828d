//! `corver-host extract train`: trains an extractor on labelled sentences.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use corver_core::{Extractor as _, ExtractorInput};
use corver_eval::{ExtractionQuality, GoldSentence, compare_triplets, read_gold};
use corver_inference::extract::split_prompt;
use corver_pretrained::ModelConfig;
use corver_reward::config::{self, ExtractorConfig, PolicyConfig};
use corver_reward::parts;
use corver_runs::folder;
use corver_settings::{ExtractSection, Settings};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use serde_json::json;

use super::show_quality;
use crate::args::ExtractTrainArgs;
use crate::command::sft::{self, FineTuned, FineTuning};
use crate::files;
use crate::output;
use crate::policy;
use crate::resumed;
use crate::settings;
use crate::tokenizer::load_tokenizer;

/// Files of the output folder.
struct TrainingFolder {
    /// Sentences to learn, as demonstrations.
    demonstrations: PathBuf,
    /// Labelled sentences that are not learned.
    held_out: PathBuf,
    /// Run of the adapter.
    run: PathBuf,
    /// Trained model without its prompt.
    merged: PathBuf,
    /// Trained model with its prompt.
    extractor: PathBuf,
    /// Precision and recall on the sentences held out.
    quality: PathBuf,
}

impl TrainingFolder {
    fn new(out: &Path) -> Self {
        Self {
            demonstrations: out.join("demonstrations.jsonl"),
            held_out: out.join("held_out.jsonl"),
            run: out.join("run"),
            merged: out.join("merged"),
            extractor: out.join("extractor"),
            quality: out.join("quality.json"),
        }
    }
}

pub fn run(args: &ExtractTrainArgs, json: bool) -> Result<()> {
    let out = args.out.clone().unwrap_or_else(|| folder::next_free(Path::new("runs"), "extractor"));
    let files = TrainingFolder::new(&out);
    let mut settings_args = args.settings.clone();
    if args.resume {
        resumed::load_saved_config(&mut settings_args, Some(&files.run));
    }
    let mut layers = settings::layers(&settings_args, &[&args.policy])?;
    layers.add_own_part(); // the labelled sentences
    layers.set("policy.system_prompt", ""); // an extractor has none
    let (settings, policy) = config::resolve::<PolicyConfig>(settings::finish(&layers)?)?;
    let model = parts::policy_folder(&policy)?;
    ModelConfig::read(&model.join("config.json"))?; // refuses a model before files are written
    parts::runtime_library()?; // measures the trained extractor
    let prompt = parts::read_prompt(&args.prompt)?;
    let extractor_toml = extractor_toml(&settings, &model, &prompt)?;

    let labels = LabelSplit::read(args, settings.run.seed)?;
    ensure!(
        args.resume == out.is_dir(),
        "{} {}",
        out.display(),
        if args.resume { "does not exist" } else { "exists; choose another --out, or --resume it" }
    );
    std::fs::create_dir_all(&out).with_context(|| format!("creating {}", out.display()))?;
    for (path, text) in [
        (&files.demonstrations, demonstrations(&labels.learned, &prompt)?),
        (&files.held_out, to_lines(&labels.held_out)?),
    ] {
        write_once(path, &text)?;
    }

    let held_out = args.held_out.map(|number| format!(" --held-out {number}")).unwrap_or_default();
    let tuned = sft::fine_tune(FineTuning {
        settings: settings.clone(),
        policy,
        file: &files.demonstrations,
        path: &files.run,
        // A start may have ended before its run began.
        resume: args.resume && files.run.join(folder::MANIFEST).exists(),
        accepts_finished: true,
        resume_command: format!(
            "corver-host extract train {} --prompt {}{held_out} --out {} --resume",
            args.file.display(),
            args.prompt.display(),
            out.display()
        ),
    })?;
    let Some(FineTuned { summary, adapter }) = tuned else { return Ok(()) };
    if !files.extractor.exists() {
        if !files.merged.exists() {
            policy::merge(&settings, &model, &adapter, &std::path::absolute(&files.merged)?)?;
        }
        corver_files::replace(&files.merged.join("extractor.toml"), extractor_toml.as_bytes())
            .context("writing the extractor's prompt")?;
        std::fs::rename(&files.merged, &files.extractor)
            .with_context(|| format!("writing {}", files.extractor.display()))?;
    }

    let quality = measure(settings, &files.extractor, &labels.held_out)?;
    let result = json!({
        "summary": summary, "held_out": labels.held_out.len(), "quality": quality,
        "extractor": files.extractor,
    });
    corver_files::replace(&files.quality, format!("{result:#}\n").as_bytes())
        .with_context(|| format!("writing {}", files.quality.display()))?;
    if json {
        return output::json(&result);
    }
    sft::show(&summary);
    output::line(format_args!("{} sentences held out:", labels.held_out.len()));
    show_quality(&quality);
    output::line(format_args!("--extractor {} uses it", files.extractor.display()));
    Ok(())
}

/// Labelled sentences, each once.
struct LabelSplit {
    learned: Vec<GoldSentence>,
    held_out: Vec<GoldSentence>,
}

impl LabelSplit {
    /// Reads the labelled sentences, and draws those that are held out.
    fn read(args: &ExtractTrainArgs, seed: u64) -> Result<Self> {
        let mut labels = read_gold(&args.file)?;
        let mut seen = HashSet::new();
        let num_lines = labels.len();
        labels.retain(|label| seen.insert(label.sentence.clone()));
        if labels.len() < num_lines {
            let repeated = num_lines - labels.len();
            tracing::warn!(repeated, "sentences that occur again in the labels are left out");
        }
        labels.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
        let num_held_out = args.held_out.unwrap_or(labels.len().div_ceil(10));
        ensure!(
            num_held_out >= 1 && num_held_out < labels.len(),
            "{} has {} distinct sentences, of which {num_held_out} are to be held out; at least \
             one must be, and one must remain",
            args.file.display(),
            labels.len()
        );
        let learned = labels.split_off(num_held_out);
        Ok(Self { learned, held_out: labels })
    }
}

/// Returns the file of an extractor's settings: the model's input around a sentence.
fn extractor_toml(settings: &Settings, model: &Path, prompt: &str) -> Result<String> {
    let rendered = load_tokenizer(settings, model)?.render_chat(None, prompt)?;
    let (before, after) = split_prompt(&rendered)?;
    let mut table = toml::Table::new();
    table.insert("prompt_prefix".to_owned(), before.into());
    table.insert("prompt_suffix".to_owned(), after.into());
    if let Some(tokens) = settings.extract.max_new_tokens {
        table.insert("max_new_tokens".to_owned(), i64::try_from(tokens)?.into());
    }
    Ok(table.to_string())
}

/// Returns sentences with their triplets as demonstrations, one JSON object per line.
fn demonstrations(labels: &[GoldSentence], prompt: &str) -> Result<String> {
    let (before, after) = split_prompt(prompt)?;
    let mut lines = Vec::new();
    for GoldSentence { sentence, triplets } in labels {
        lines.push(json!({
            "question": format!("{before}{sentence}{after}"),
            "completion": serde_json::to_string(triplets)?,
        }));
    }
    to_lines(&lines)
}

fn to_lines<T: serde::Serialize>(items: &[T]) -> Result<String> {
    let mut text = String::new();
    for item in items {
        files::push_line(&mut text, item)?;
    }
    Ok(text)
}

/// Writes a file, or checks that the file of an earlier start has the same text.
fn write_once(path: &Path, text: &str) -> Result<()> {
    if path.exists() {
        let written = corver_files::read_text(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let hint = "resume with the same labels, prompt, seed and --held-out";
        ensure!(written == text, "{} differs; {hint}", path.display());
        return Ok(());
    }
    corver_files::replace(path, text.as_bytes())
        .with_context(|| format!("writing {}", path.display()))
}

/// Returns the trained extractor's precision and recall.
fn measure(
    mut settings: Settings,
    folder: &Path,
    gold: &[GoldSentence],
) -> Result<ExtractionQuality> {
    let model = folder.to_str().context("the output folder's path is not UTF-8")?.to_owned();
    let ExtractSection { batch_size, device, .. } = settings.extract;
    settings.extract =
        ExtractSection { model: Some(model), batch_size, device, ..ExtractSection::default() };
    let (_, config) = config::resolve::<ExtractorConfig>(settings)?;
    let mut extractor = parts::open_extractor(&config)?;
    let inputs: Vec<ExtractorInput<'_>> =
        gold.iter().map(|label| ExtractorInput::of_sentence(&label.sentence)).collect();
    let triplets = extractor.extract(&inputs).map_err(anyhow::Error::from_boxed)?;
    Ok(compare_triplets(gold, &triplets))
}
