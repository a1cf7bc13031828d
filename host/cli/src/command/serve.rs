//! `corver-host serve`: rewards, for trainers that live elsewhere.

use anyhow::{Context, Result};
use corver_corpus::OpenOptions;
use corver_counts::{Source, TOKEN_VARIABLE, Token};
use corver_reward::config::DemoOr;
use corver_reward::{Config, Scorer, parts};
use corver_serve::{CountLimits, Limits, Metrics, Queue, QueueLimits, Server, counts, get_reward, score};
use serde_json::json;

use crate::args::{ServeArgs, ServerArgs};
use crate::command::index::{name_of, open_folder};
use crate::{output, settings};

pub fn run(args: &ServeArgs, json: bool) -> Result<()> {
    let config = Config::resolve(settings::of_serve(args)?)?;
    let scorer = Scorer::open(&config)?;
    let (rule, reward) = (scorer.rule().to_owned(), *scorer.settings());
    let mut metrics = Metrics::default();
    let of_queue = QueueLimits { completions: args.queue, batch: args.max_batch, ..QueueLimits::default() };
    let queue = Queue::start(scorer, Scorer::score, reward, of_queue, &mut metrics)?;

    let limits = Limits {
        // A trainer is one address.
        connections_per_peer: args.server.connections_per_peer.unwrap_or(args.server.connections),
        request_bytes: usize::try_from(args.queue_bytes)
            .context("--queue-bytes is more than this machine can address")?,
        ..args.server.limits()
    };
    let mut server = bind(&args.server, limits, metrics)?;
    server.route([get_reward(&queue, args.strict), score(&queue)]);
    if let [Source::Folder(path)] = parts::sources(&config.sources)?.as_slice() {
        let corpus = open_folder(path, None, OpenOptions::default())?;
        let is_demo = matches!(config.sources[..], [DemoOr::Demo]);
        server.route(counts(corpus, &name_of(path, args.name.as_deref(), is_demo)?, CountLimits::default()));
    }
    server.report(move || queue.health());

    let interrupted = server.interrupted()?; // before anyone is told of the server
    let url = format!("http://{}", server.address());
    if json {
        output::json(&json!({"url": url, "rule": rule}))?;
    } else {
        output::line(format_args!("{url}: rewards by {rule}; OpenRLHF takes {url}/get_reward; Ctrl-C stops it"));
    }
    server.run(interrupted);
    Ok(())
}

/// Takes the address, and warns where everyone can reach it.
pub fn bind(args: &ServerArgs, limits: Limits, metrics: Metrics) -> Result<Server> {
    let token = Token::load(args.token_file.as_deref(), Some(TOKEN_VARIABLE))?;
    let is_open = token.is_none();
    let server = Server::bind(args.listen, limits, token, metrics)?;
    if is_open && !args.listen.ip().is_loopback() {
        let address = server.address();
        tracing::warn!("anyone who can reach {address} can use this server: set --token-file or {TOKEN_VARIABLE}");
    }
    Ok(server)
}
