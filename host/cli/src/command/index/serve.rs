//! `corver-host index serve`: an index, for other machines to count in.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use corver_corpus::OpenOptions;
use corver_counts::{TOKEN_VARIABLE, Token};
use corver_serve::{CountLimits, Limits, Metrics, Server, counts};
use serde_json::json;

use super::open::{folder, open_folder};
use crate::args::ServeArgs;
use crate::output;
use corver_reward::settings::DEMO;

pub fn run(args: &ServeArgs, json: bool) -> Result<()> {
    let path = folder(args.index.as_deref())?;
    let options = OpenOptions { cache_bytes: args.cache, ..OpenOptions::default() };
    let corpus = open_folder(&path, args.tokenizer.as_deref(), options)?;
    let name = match (&args.name, &args.index) {
        (Some(name), _) => name.clone(),
        (None, None) => DEMO.to_owned(),
        (None, Some(_)) => folder_name(&path)?,
    };
    let info = corpus.index().info();
    let token = Token::load(args.token_file.as_deref(), Some(TOKEN_VARIABLE))?;
    let open = token.is_none();
    let limits = Limits {
        connections: args.connections,
        connections_per_peer: args.connections_per_peer,
        grace: Duration::from_secs(args.grace),
        ..Limits::default()
    };
    let mut server = Server::bind(args.listen, limits, token, Metrics::default())?;
    server.route(counts(corpus, &name, CountLimits::default()));
    let interrupted = server.interrupted()?; // before anyone is told of the server
    let url = format!("http://{}/#{name}", server.address());
    if open && !args.listen.ip().is_loopback() {
        let address = server.address();
        tracing::warn!("anyone who can reach {address} can query this index: set --token-file or {TOKEN_VARIABLE}");
    }
    if json {
        output::json(&json!({"url": url, "documents": info.documents, "tokens": info.tokens}))?;
    } else {
        output::line(format_args!("{url}: {} documents, {} tokens; Ctrl-C stops it", info.documents, info.tokens));
    }
    server.run(interrupted);
    Ok(())
}

fn folder_name(path: &Path) -> Result<String> {
    let folder = path.canonicalize().with_context(|| format!("finding {}", path.display()))?;
    let name = folder.file_name().context("the index has no folder name to go by: give it a name with --name")?;
    Ok(name.to_string_lossy().into_owned())
}
