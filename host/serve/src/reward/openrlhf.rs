//! `POST /get_reward`: the protocol of OpenRLHF's remote reward models (`--reward.remote_url`), as
//! version 0.11 speaks it.
//!
//! Its client repeats a request that got a 4xx or 5xx four times, a second apart, and then trains
//! without a reward, which ends in an error. So a completion that cannot be scored gets a neutral
//! reward and raises `corver/error`, unless the server is strict, and a request waits where the
//! queue is full.
//!
//! A rule that labels sentences is refused, strict or not: the protocol has one number for a
//! completion, and labels act on the advantages of single tokens.

use std::collections::BTreeMap;
use std::sync::Arc;

use corver_core::{Question, ReturnParts, RewardSettings, ScoredCompletion};
use corver_data::golds::{golds, question_in};
use corver_pretrained::transcript;
use hyper::body::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::queue::{Unanswered, WhenFull};
use super::{Completion, Queue, QueueLimits, read};
use crate::{Refusal, Reply, Route};

const LABELLED: &str = "the rule labels sentences, which OpenRLHF cannot apply to the advantages of their tokens; use another rule or another trainer";
const FORM: &str =
    r#"{"query": [prompt and response, …], "prompts": [prompt, …], "labels": [gold answers, …]}"#;

#[derive(Deserialize)]
struct Request {
    query: Vec<String>,
    prompts: Option<Vec<String>>,
    labels: Option<Vec<Value>>,
}

/// One object, never an array: the client takes nothing else.
#[derive(Serialize)]
struct Rewards {
    rewards: Numbers,
    scores: Numbers,
    extra_logs: BTreeMap<&'static str, Numbers>,
}

/// A bare number where one query came, as the client's tensors want it.
#[derive(Serialize)]
#[serde(untagged)]
enum Numbers {
    One(f64),
    Many(Vec<f64>),
}

/// The figures of one query. All of them are finite.
#[derive(Default)]
struct Figures {
    reward: f64,
    /// 1 where the judge pays; it decides which groups are trained on
    /// (`algo.dynamic_filtering_range`).
    accuracy: f64,
    judge: f64,
    format: f64,
    sentences: f64,
    num_sentences: f64,
    num_counted: f64,
    error: f64,
}

/// `POST /get_reward`. In `strict` mode what cannot be scored is an error to the client.
#[must_use]
pub fn get_reward<S: Send + 'static>(queue: &Arc<Queue<S>>, strict: bool) -> Route {
    let body_bytes = queue.limits.body_bytes;
    let queue = queue.clone();
    Route::post("/get_reward", body_bytes, move |body| answer(queue.clone(), strict, body))
}

async fn answer<S: Send + 'static>(
    queue: Arc<Queue<S>>,
    strict: bool,
    body: Bytes,
) -> Result<Reply, Refusal> {
    let request: Request = read(body, FORM).await?;
    let lenient = |reading: Result<Completion, Refusal>| match reading {
        Err(refusal) if !strict => {
            tracing::warn!(
                error = refusal.message,
                "a neutral reward, for a query that cannot be scored"
            );
            Ok(None)
        }
        reading => reading.map(Some),
    };
    let readings = readings(&request, &queue.limits)?
        .into_iter()
        .map(lenient)
        .collect::<Result<Vec<_>, _>>()?;
    let readable: Vec<bool> = readings.iter().map(Option::is_some).collect();
    let completions: Vec<Completion> = readings.into_iter().flatten().collect();

    let when_full = if strict { WhenFull::Refuse } else { WhenFull::Wait };
    let scored = match queue.score(completions, when_full).await {
        // Neutral rewards for ever would be worse than an end: where the thread has ended, the
        // client learns it.
        Err(Unanswered::Refused(refusal)) if !strict && refusal.status.is_server_error() => {
            tracing::warn!(error = refusal.message, "a neutral reward, because of an error");
            None
        }
        scored => Some(scored?),
    };
    if scored.iter().flatten().any(ScoredCompletion::has_signs) {
        return Err(Refusal::failed(LABELLED));
    }
    let mut paid = scored.into_iter().flatten();
    let figures = readable.into_iter().map(|readable| {
        let earned = if readable { paid.next() } else { None };
        earned.map_or_else(Figures::neutral, |completion| Figures::of(&completion, &queue.settings))
    });
    Ok(Reply::json(&Rewards::of(&figures.collect::<Vec<_>>())))
}

/// The completion of each query, or why that one cannot be scored.
///
/// # Errors
/// A request that is not as the protocol has it.
fn readings(
    request: &Request,
    limits: &QueueLimits,
) -> Result<Vec<Result<Completion, Refusal>>, Refusal> {
    let Request { query, prompts, labels } = request;
    let lengths =
        [("prompts", prompts.as_ref().map(Vec::len)), ("labels", labels.as_ref().map(Vec::len))];
    if let Some((name, Some(got))) =
        lengths.into_iter().find(|(_, got)| got.is_some_and(|got| got != query.len()))
    {
        return Err(Refusal::bad(format!(
            "there are {} entries in query and {got} in {name}",
            query.len()
        )));
    }
    if query.is_empty() {
        return Err(Refusal::bad("there is no query"));
    }
    let reading = |(index, whole): (usize, &String)| {
        let prompt = prompts.as_ref().map(|prompts| prompts[index].as_str());
        let label = labels.as_ref().map_or(&Value::Null, |labels| &labels[index]);
        let golds = match golds(label) {
            Ok(golds) => golds,
            Err(problem) => return Ok(Err(Refusal::bad(format!("labels[{index}]: {problem}")))),
        };
        let question = question_in(label)
            .map_or_else(|| transcript::question(prompt.unwrap_or_default()), str::to_owned);
        let question = Question { question, golds, ..Question::default() };
        let Some(text) = transcript::response(whole, prompt) else {
            return Ok(Err(no_response(index)));
        };
        let completion = Completion { question, text, tokens: None };
        Ok(completion.check(limits).map(|()| completion))
    };
    query.iter().enumerate().map(reading).collect()
}

fn no_response(index: usize) -> Refusal {
    let message = "it neither begins with its prompt nor has a header of the assistant's turn";
    Refusal::bad(format!("query[{index}]: {message}"))
}

impl Figures {
    fn of(ScoredCompletion { trace, .. }: &ScoredCompletion, settings: &RewardSettings) -> Self {
        let parts = ReturnParts::new(trace, settings);
        Self {
            reward: trace.mean_return,
            accuracy: f64::from(u8::from(trace.response.judge.reward > 0.0)),
            judge: parts.judge,
            format: parts.format,
            sentences: parts.sentences,
            num_sentences: trace.sentences.len() as f64,
            num_counted: trace.sentences.iter().filter(|sentence| sentence.is_counted()).count()
                as f64,
            error: 0.0,
        }
    }

    /// What a completion gets that could not be scored.
    fn neutral() -> Self {
        Self { error: 1.0, ..Self::default() }
    }
}

impl Rewards {
    fn of(all: &[Figures]) -> Self {
        let numbers = |figure: fn(&Figures) -> f64| match all {
            [one] => Numbers::One(figure(one)),
            all => Numbers::Many(all.iter().map(figure).collect()),
        };
        let extra_logs = BTreeMap::from([
            ("corver/judge", numbers(|one| one.judge)),
            ("corver/format", numbers(|one| one.format)),
            ("corver/sentences", numbers(|one| one.sentences)),
            ("corver/num_sentences", numbers(|one| one.num_sentences)),
            ("corver/num_counted", numbers(|one| one.num_counted)),
            ("corver/error", numbers(|one| one.error)),
        ]);
        Self { rewards: numbers(|one| one.reward), scores: numbers(|one| one.accuracy), extra_logs }
    }
}
