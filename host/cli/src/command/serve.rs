//! `corver-host serve`: serves rewards over HTTP.

use anyhow::{Context, Result};
use corver_core::error_chain;
use corver_corpus::OpenOptions;
use corver_counts::CorpusSource;
use corver_reward::check::{CheckedText, Text};
use corver_reward::config::{self, DemoOr, Grader, RewardConfig, RulesConfig};
use corver_reward::{Scorer, parts};
use corver_serve::{
    CountLimits, HttpError, HttpReply, Metrics, Queue, QueueLimits, Route, ServerLimits,
    count_routes, reward_route, score_route, unbatched_route,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::args::ServeArgs;
use crate::check_request::{self, CheckError};
use crate::index_folder::{name_of, open_folder};
use crate::scoring::grader_fingerprint;
use crate::server::bind;
use crate::{output, settings};

pub fn run(args: &ServeArgs, json: bool) -> Result<()> {
    let settings = settings::load(&args.settings, &[&args.reward, &args.graders])?;
    let (settings, config) = config::resolve::<RewardConfig>(settings)?;
    let scorer = Scorer::open(&config, &settings)?;
    let served = served_rules(&scorer, &config.rules)?;
    let rule = scorer.rule().to_owned();
    let reward = *scorer.settings();
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
    server.add_routes([Route::get("/v1/rule", move || Ok(HttpReply::json(&served)))]);
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

/// Describes the rules of the server, so that a client can check which reward it gets. A built-in
/// judge or format check is `null`.
fn served_rules(scorer: &Scorer, rules: &RulesConfig) -> Result<Value> {
    let grader = |grader: Option<&Grader>| {
        let Some(rule) = grader else { return anyhow::Ok(Value::Null) };
        Ok(json!({
            "name": rule.name(), "blake3": grader_fingerprint(grader)?, "settings": rule.settings,
        }))
    };
    Ok(json!({
        "rules": scorer.loaded_rules(), "settings": rules.settings,
        "judge": grader(rules.judge.as_ref())?, "format": grader(rules.format.as_ref())?,
        "reward": rules.reward,
    }))
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

/// Checks the texts of a request.
fn check(scorer: &mut Scorer, request: CheckRequest) -> Result<CheckReply, HttpError> {
    let checked = check_request::check(scorer, &request.texts, request.passages);
    let texts = checked.map_err(|error| match error {
        CheckError::Invalid(message) => HttpError::bad_request(message),
        CheckError::TooLarge(message) => HttpError::too_large(message),
        CheckError::Failed(error) => HttpError::internal(error_chain(error.as_ref())),
    })?;
    Ok(CheckReply { texts })
}
