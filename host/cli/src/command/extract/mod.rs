//! `corver-host extract`: extracts triplets from sentences.

#[cfg(feature = "torch")]
mod train;

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use corver_core::{Extractor as _, ExtractorInput};
use corver_eval::{ExtractionQuality, MatchCounts, compare_triplets, read_gold};
use corver_inference::extract::Stats;
use corver_reward::config::{self, ExtractorConfig};
use corver_reward::parts::{self, OpenedExtractor};
use corver_settings::Settings;
use serde_json::json;

use crate::args::{ExtractArgs, ExtractCommand};
use crate::output;
use crate::settings;

pub fn run(args: &ExtractArgs, json: bool) -> Result<()> {
    match &args.command {
        None => {}
        #[cfg(feature = "torch")]
        Some(ExtractCommand::Train(args)) => return train::run(args, json),
        #[cfg(not(feature = "torch"))]
        Some(ExtractCommand::Train(_)) => anyhow::bail!(crate::policy::NO_LIBTORCH),
    }
    // Errors in the input are reported before the model is loaded.
    let gold = args.eval.as_deref().map(read_gold).transpose()?;
    let text = if gold.is_some() { String::new() } else { read(args.file.as_deref())? };
    let sentences: Vec<&str> = match &gold {
        Some(gold) => gold.iter().map(|gold| gold.sentence.as_str()).collect(),
        None => text.lines().map(str::trim).filter(|line| !line.is_empty()).collect(),
    };
    let (_, config) = config::resolve::<ExtractorConfig>(settings_of(args)?)?;
    if let ExtractorConfig::Names(_) = &config {
        check_names_flags(args)?;
    }
    let mut extractor = parts::open_extractor(&config)?;
    let inputs: Vec<ExtractorInput<'_>> =
        sentences.iter().map(|sentence| ExtractorInput::of_sentence(sentence)).collect();
    let start = Instant::now();
    let mut replies = Vec::new();
    let triplets = match &mut extractor {
        OpenedExtractor::Names(names) => {
            names.extract(&inputs).map_err(anyhow::Error::from_boxed)?
        }
        OpenedExtractor::Model { extractor, .. } => {
            replies = extractor.replies(&sentences).context("extracting triplets")?;
            replies.iter().map(|reply| extractor.triplets(reply)).collect()
        }
    };
    let seconds = start.elapsed().as_secs_f64();
    for (index, (sentence, own_triplets)) in sentences.iter().zip(&triplets).enumerate() {
        if json {
            let mut line = json!({"sentence": sentence, "triplets": own_triplets});
            if args.raw {
                line["reply"] = json!(*replies[index]);
            }
            output::json(&line)?;
            continue;
        }
        output::line(sentence);
        if args.raw {
            output::line(format_args!("  reply: {:?}", replies[index]));
        }
        for triplet in own_triplets {
            output::line(format_args!(
                "  ({}, {}, {})",
                triplet.head, triplet.relation, triplet.tail
            ));
        }
    }
    if let Some(gold) = &gold {
        let quality = compare_triplets(gold, &triplets);
        if json {
            output::json(&json!({"quality": quality}))?;
        } else {
            show_quality(&quality);
        }
    }
    if let OpenedExtractor::Model { extractor, .. } = &extractor
        && args.stats
    {
        report(extractor.stats(), seconds, json)?;
    }
    Ok(())
}

fn settings_of(args: &ExtractArgs) -> Result<Settings> {
    let mut layers = settings::layers(&args.settings, &[])?;
    let flags = [("extract.model", &args.extractor), ("extract.device", &args.device)];
    for (key, text) in flags.into_iter().filter_map(|(key, text)| Some((key, text.as_deref()?))) {
        layers.set(key, text);
    }
    if let Some(prompt) = &args.prompt {
        layers.set("extract.prompt", prompt.to_str().context("--prompt: the path is not UTF-8")?);
    }
    for (key, number) in
        [("extract.max_new_tokens", args.max_new_tokens), ("extract.batch_size", args.batch_size)]
    {
        if let Some(number) = number {
            layers.set(key, number);
        }
    }
    if args.no_chat {
        layers.set("extract.chat", false);
    }
    if args.eval.is_some() {
        layers.add_own_part();
    }
    settings::finish(&layers)
}

/// Fails if a flag is for a model: names need none.
fn check_names_flags(args: &ExtractArgs) -> Result<()> {
    ensure!(!args.raw && !args.stats, "--raw and --stats are about a model's replies");
    for (flag, is_given) in [
        ("--no-chat", args.no_chat),
        ("--max-new-tokens", args.max_new_tokens.is_some()),
        ("--batch-size", args.batch_size.is_some()),
        ("--device", args.device.is_some()),
    ] {
        ensure!(!is_given, "{flag} is for a model, but `extract.kind = \"names\"` uses none");
    }
    Ok(())
}

/// Reads a file, or standard input.
fn read(file: Option<&Path>) -> Result<String> {
    if let Some(path) = file {
        return corver_files::read_text(path)
            .with_context(|| format!("cannot read the sentences {}", path.display()));
    }
    corver_files::read_text_from(std::io::stdin())
        .context("cannot read sentences from standard input")
}

/// Prints precision and recall.
fn show_quality(quality: &ExtractionQuality) {
    for (what, found) in [("triplets", quality.triplets), ("head and tail", quality.pairs)] {
        let shown = |(share, (low, high)): (f64, (f64, f64))| {
            format!("{:.1} % ({:.1} to {:.1})", 100.0 * share, 100.0 * low, 100.0 * high)
        };
        let precision = shown(found.precision());
        let recall = shown(found.recall());
        let MatchCounts { right, found, gold } = found;
        output::line(format_args!(
            "{what}: precision {precision}, recall {recall}; {right} correct, {found} found, \
             {gold} gold"
        ));
    }
}

fn report(stats: Stats, seconds: f64, json: bool) -> Result<()> {
    let Stats { sentences, hits, decoded, not_understood, tokens, rows, .. } = stats;
    if json {
        return output::json(&json!({
            "sentences": sentences, "hits": hits, "decoded": decoded,
            "not_understood": not_understood, "tokens": tokens, "rows": rows, "seconds": seconds,
        }));
    }
    let per_second = sentences as f64 / seconds;
    let tokens_per_second = tokens as f64 / seconds;
    output::line(format_args!(
        "{sentences} sentences in {seconds:.1} s ({per_second:.1}/s): {decoded} decoded, \
         {hits} from the cache, {not_understood} not understood; {tokens} tokens ({tokens_per_second:.0}/s), \
         largest batch {rows}"
    ));
    Ok(())
}
