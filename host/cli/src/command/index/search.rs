//! `corver-host index search`: searches passages, as rules do.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use corver_backends::passages::{PassageError, PassageIndex, PassageLocation};
use corver_core::Search;
use serde_json::json;

use crate::args::SearchArgs;
use crate::index_folder::folder;
use crate::output;

pub fn run(args: &SearchArgs, json: bool) -> Result<()> {
    let SearchArgs { query, index, dir, title, k } = args;
    let index: Vec<PathBuf> = match index.as_slice() {
        [] => vec![folder(None)?],
        named => named.iter().map(|own| folder(Some(own))).collect::<Result<_>>()?,
    };
    let places = index.iter().map(|index| PassageLocation::new(index, dir.as_deref()));
    let passages = PassageIndex::open(&places.collect::<Result<Vec<_>, PassageError>>()?)?;
    let search = Search { title: title.clone(), query: query.clone(), k: *k };
    let start = Instant::now();
    let found = passages.search(&search)?;
    let micros = start.elapsed().as_secs_f64() * 1e6;
    if json {
        let mut results = Vec::new();
        for (score, passage) in &found {
            results.push(json!({"score": score, "title": passage.title, "text": passage.text}));
        }
        return output::json(&json!({"search": search, "passages": results, "micros": micros}));
    }
    output::line(format_args!("{} passages   {micros:.1} µs", found.len()));
    for (score, passage) in &found {
        output::line("");
        output::line(format_args!("{score:.3}  {}", passage.title));
        output::running_text([(passage.text.as_str(), false)]);
    }
    if found.is_empty() && title.is_some() {
        output::line(
            "--title must match the whole title; search without it to see the exact titles",
        );
    }
    Ok(())
}
