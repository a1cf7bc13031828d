//! `corver-host index serve`: an index, for other machines to count in.

use std::path::Path;

use anyhow::{Context, Result};
use corver_corpus::OpenOptions;
use corver_counts::{Limits, Server, Token};
use serde_json::json;

use super::open::{folder, open_folder};
use crate::args::ServeArgs;
use crate::output;
use crate::settings::DEMO;

pub fn run(args: &ServeArgs, json: bool) -> Result<()> {
    let path = folder(args.index.as_deref())?;
    let options = OpenOptions { cache_bytes: args.cache, ..OpenOptions::default() };
    let corpus = open_folder(&path, args.tokenizer.as_deref(), options)?;
    let name = match (&args.name, &args.index) {
        (Some(name), _) => name.clone(),
        (None, None) => DEMO.to_owned(),
        (None, Some(_)) => folder_name(&path)?,
    };
    let token = args.token_file.as_deref().map(Token::read).transpose()?;
    let is_open = token.is_none();
    let info = corpus.index().info();
    let server = Server::bind(corpus, &name, args.listen, Limits::default(), token)?;
    let url = format!("http://{}/#{name}", server.address());
    if is_open && !args.listen.ip().is_loopback() {
        tracing::warn!("anyone who can reach {} can query this index: there is no --token-file", server.address());
    }
    if json {
        output::json(&json!({"url": url, "documents": info.documents, "tokens": info.tokens}))?;
    } else {
        output::line(format_args!("{url}: {} documents, {} tokens; Ctrl-C stops it", info.documents, info.tokens));
    }
    server.run_until_interrupted()?;
    Ok(())
}

fn folder_name(path: &Path) -> Result<String> {
    let folder = path.canonicalize().with_context(|| format!("finding {}", path.display()))?;
    let name = folder.file_name().context("the index has no folder name to go by: give it a name with --name")?;
    Ok(name.to_string_lossy().into_owned())
}
