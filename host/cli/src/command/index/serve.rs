//! `corver-host index serve`: serves counts of an index over HTTP.

use std::ops::RangeInclusive;

use anyhow::Result;
use corver_corpus::OpenOptions;
use corver_serve::{CountLimits, Metrics, count_routes};
use serde_json::json;

use crate::args::IndexServeArgs;
use crate::index_folder::{folder, is_demo, name_of, open_folder};
use crate::output;
use crate::server::bind;

pub fn run(args: &IndexServeArgs, json: bool) -> Result<()> {
    let path = folder(args.index.as_deref())?;
    let shards = args.shards.clone();
    let options = OpenOptions { cache_bytes: args.cache, shards, ..OpenOptions::default() };
    let corpus = open_folder(&path, args.tokenizer.as_deref(), options)?;
    let mut name = name_of(&path, args.name.as_deref(), is_demo(args.index.as_deref()))?;
    if let (Some(range), None) = (&args.shards, &args.name) {
        name = part_name(&name, range);
    }
    let info = corpus.index().info();
    let mut server = bind(&args.server, args.server.limits(), Metrics::default())?;
    server.add_routes(count_routes(corpus, &name, CountLimits::default()));
    // A client may stop the server as soon as it knows the address.
    let interrupted = server.interrupted()?;
    let url = format!("http://{}/#{name}", server.address());
    if json {
        output::json(&json!({"url": url, "documents": info.documents, "tokens": info.tokens}))?;
    } else {
        output::line(format_args!(
            "{url}: {} documents, {} tokens; Ctrl-C stops it",
            info.documents, info.tokens
        ));
    }
    server.run(interrupted);
    Ok(())
}

/// Returns the default name of an index's shards. It has their numbers, so that a client that
/// expects other shards is refused, and never mixes their cached counts.
fn part_name(index: &str, shards: &RangeInclusive<usize>) -> String {
    let (first, last) = (shards.start(), shards.end());
    if first == last { format!("{index}-{first}") } else { format!("{index}-{first}-{last}") }
}
