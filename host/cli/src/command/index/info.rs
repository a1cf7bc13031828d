//! `corver-host index info`: prints size, widths and tokenizer of an index.

use anyhow::{Context, Result};
use corver_corpus::Index;

use crate::args::InfoArgs;
use crate::index_folder::folder;
use crate::output;

pub fn run(args: &InfoArgs, json: bool) -> Result<()> {
    let path = folder(args.index.as_deref())?;
    let info =
        Index::open(&path).with_context(|| format!("opening the index {}", path.display()))?.info();
    if json {
        return output::json(&info);
    }
    output::line(format_args!("folder       {}", info.path.display()));
    output::line(format_args!("documents    {}", info.documents));
    output::line(format_args!("tokens       {}", info.tokens));
    if let Some(bytes) = info.text_bytes {
        output::line(format_args!("text         {:.1} MB", bytes as f64 / 1e6));
    }
    output::line(format_args!("on disk      {:.1} MB", info.index_bytes as f64 / 1e6));
    output::line(format_args!("token width  {} bytes", info.token_width.bytes()));
    output::line(format_args!(
        "tokenizer    {}",
        info.tokenizer.as_deref().unwrap_or("not recorded")
    ));
    let shards = info.shards.iter().enumerate().map(|(number, shard)| {
        [
            number.to_string(),
            shard.documents.to_string(),
            shard.tokens.to_string(),
            shard.pointer_width.to_string(),
        ]
    });
    output::table(["shard", "documents", "tokens", "pointer bytes"], shards);
    Ok(())
}
