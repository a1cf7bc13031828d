//! `corver-host serve`: serves rewards over HTTP.

use anyhow::{Context, Result};
use corver_core::error_chain;
use corver_core::split::split_text;
use corver_corpus::OpenOptions;
use corver_counts::CorpusSource;
use corver_reward::check::{CheckedText, Text};
use corver_reward::config::{self, DemoOr, RewardConfig};
use corver_reward::{Scorer, parts};
use corver_serve::{
    CountLimits, HttpError, Metrics, Queue, QueueLimits, ServerLimits, count_routes, reward_route,
    score_route, unbatched_route,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::args::ServeArgs;
use crate::index_folder::{name_of, open_folder};
use crate::server::bind;
use crate::{output, settings};

/// Largest number of passages per claim.
const MAX_PASSAGES: usize = 20;
/// Largest number of passages per request, if each sentence states one fact.
const MAX_PASSAGES_IN_ALL: usize = 2_000;
/// Largest number of sentences per request.
const MAX_SENTENCES: usize = 512;

pub fn run(args: &ServeArgs, json: bool) -> Result<()> {
    let settings = settings::load(&args.settings, &[&args.reward, &args.graders])?;
    let (settings, config) = config::resolve::<RewardConfig>(settings)?;
    let scorer = Scorer::open(&config, &settings)?;
    let (rule, reward) = (scorer.rule().to_owned(), *scorer.settings());
    let mut metrics = Metrics::default();
    let of_queue =
        QueueLimits { completions: args.queue, batch: args.max_batch, ..QueueLimits::default() };
    let queue = Queue::start(scorer, Scorer::score, reward, of_queue, &mut metrics)?;

    let limits = ServerLimits {
        // A trainer is one address.
        connections_per_peer: args.server.connections_per_peer.unwrap_or(args.server.connections),
        request_bytes: usize::try_from(args.queue_bytes)
            .context("--queue-bytes is more than this machine can address")?,
        ..args.server.limits()
    };
    let mut server = bind(&args.server, limits, metrics)?;
    server.add_routes([reward_route(&queue, args.strict), score_route(&queue)]);
    server.add_routes([unbatched_route(
        &queue,
        "/v1/check",
        of_queue.completion_bytes,
        CHECK,
        check,
    )]);
    if let [CorpusSource::Folder(path)] = parts::resolve_sources(&config.corpus.sources)?.as_slice()
    {
        let corpus = open_folder(path, None, OpenOptions::default())?;
        let is_demo = matches!(config.corpus.sources[..], [DemoOr::Demo]);
        server.add_routes(count_routes(
            corpus,
            &name_of(path, args.name.as_deref(), is_demo)?,
            CountLimits::default(),
        ));
    }
    let reported = queue.clone();
    server.set_health(move || reported.health());

    // A client may stop the server as soon as it knows the address.
    let interrupted = server.interrupted()?;
    let url = format!("http://{}", server.address());
    if json {
        output::json(&json!({"url": url, "rule": rule}))?;
    } else {
        output::line(format_args!(
            "{url}: rewards by {rule}; OpenRLHF takes {url}/get_reward; Ctrl-C stops it"
        ));
    }
    server.run(interrupted);
    queue.end(limits.grace);
    Ok(())
}

const CHECK: &str = concat!(
    r#"{"texts": [{"text", "question", "triplets"}], "passages"}, where "question", "passages" "#,
    r#"and "triplets" ([[sentence, [[head, relation, tail], …]], …]) are optional"#,
);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CheckRequest {
    texts: Vec<Text>,
    passages: Option<usize>,
}

#[derive(Serialize)]
struct CheckReply {
    texts: Vec<CheckedText>,
}

/// Checks the texts of a request, as `corver-host check --json` does.
fn check(scorer: &mut Scorer, request: CheckRequest) -> Result<CheckReply, HttpError> {
    let CheckRequest { texts, passages } = request;
    let passages = passages.unwrap_or(usize::from(scorer.has_passages()));
    if passages > MAX_PASSAGES {
        return Err(HttpError::bad_request(format!(
            "\"passages\" is {passages}; at most {MAX_PASSAGES} are shown"
        )));
    }
    let splitter = scorer.check_splitter();
    let sentences: usize = texts.iter().map(|text| split_text(&text.text, splitter).len()).sum();
    if sentences > MAX_SENTENCES {
        return Err(HttpError::too_large(format!(
            "{sentences} sentences; at most {MAX_SENTENCES} are checked at a time"
        )));
    }
    if passages * sentences > MAX_PASSAGES_IN_ALL {
        let message = format!(
            "{passages} passages for each of {sentences} sentences; at most \
             {MAX_PASSAGES_IN_ALL} in all"
        );
        return Err(HttpError::too_large(message));
    }
    if passages > 0 && !scorer.has_passages() {
        return Err(HttpError::bad_request(
            "this server's index is on another one, which has no passages to show",
        ));
    }
    let checked = scorer
        .check(&texts, passages)
        .map_err(|error| HttpError::internal(error_chain(error.as_ref())))?;
    Ok(CheckReply { texts: checked })
}
