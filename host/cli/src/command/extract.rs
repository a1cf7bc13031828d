//! `corver-host extract`: sentences → triplets.

use std::io::Read;

use anyhow::{Context, Result};
use corver_core::Extractor;
use serde_json::json;

use crate::args::ExtractArgs;
use crate::{output, parts};

pub fn run(args: &ExtractArgs, json: bool) -> Result<()> {
    // Before anything large is loaded.
    let mut text = String::new();
    match &args.file {
        Some(path) => {
            text = std::fs::read_to_string(path)
                .with_context(|| format!("cannot read the sentences {}", path.display()))?;
        }
        None => {
            std::io::stdin().read_to_string(&mut text).context("cannot read sentences from standard input")?;
        }
    }
    let bundle = match &args.bundle {
        Some(bundle) => bundle.clone(),
        None => parts::demo()?.extractor,
    };
    let mut extractor = parts::open_extractor(&bundle, args.device.parse()?)?;
    let sentences: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let triplets = extractor.extract(&sentences).map_err(anyhow::Error::from_boxed).context("extracting triplets")?;
    for (sentence, triplets) in sentences.iter().zip(triplets) {
        if json {
            output::json(&json!({"sentence": sentence, "triplets": triplets}))?;
            continue;
        }
        output::line(sentence);
        for triplet in triplets {
            output::line(format_args!("  ({}, {}, {})", triplet.head, triplet.relation, triplet.tail));
        }
    }
    Ok(())
}
