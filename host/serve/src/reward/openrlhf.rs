//! `POST /get_reward`: the protocol of OpenRLHF's remote reward models (`--reward.remote_url`),
//! version 0.11.
//!
//! Its client repeats a request that got a 4xx or 5xx four times, a second apart, and then trains
//! without a reward, which ends in an error. So a completion that cannot be scored gets a neutral
//! reward and sets `corver/error`, unless the server is strict, and a request waits if the queue is
//! full.
//!
//! A rule that sets advantage signs is refused, strict or not: the protocol has one number for a
//! completion, and signs act on the advantages of single tokens.

use std::collections::BTreeMap;
use std::sync::Arc;

use corver_core::{Question, ReturnParts, RewardSettings, ScoredCompletion};
use corver_data::golds::{golds, question_in};
use corver_pretrained::transcript;
use hyper::body::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::queue::{QueueError, WhenFull};
use super::{Queue, QueueLimits, SubmittedCompletion, parse_request, run_blocking};
use crate::{HttpError, HttpReply, Route};

const SIGNS_REFUSED: &str = "the rule sets signs of advantages, which OpenRLHF cannot apply; \
                             use another rule or another trainer";
const FORM: &str =
    r#"{"query": [prompt and response, …], "prompts": [prompt, …], "labels": [gold answers, …]}"#;

#[derive(Deserialize)]
struct RewardRequest {
    query: Vec<String>,
    prompts: Option<Vec<String>>,
    labels: Option<Vec<Value>>,
}

/// Reply as one object, the only form that the client accepts.
#[derive(Serialize)]
struct RewardReply {
    rewards: Numbers,
    scores: Numbers,
    extra_logs: BTreeMap<&'static str, Numbers>,
}

/// Column of the reply: a bare number for one query, as the client's tensors need it.
#[derive(Serialize)]
#[serde(untagged)]
enum Numbers {
    One(f64),
    Many(Vec<f64>),
}

/// Reward and metrics of one query. All of them are finite.
#[derive(Default)]
struct Figures {
    reward: f64,
    /// 1 if the judge's reward is positive, else 0. It selects the groups that are trained on
    /// (`algo.dynamic_filtering_range`).
    accuracy: f64,
    judge: f64,
    format: f64,
    sentences: f64,
    num_sentences: f64,
    num_counted: f64,
    error: f64,
}

/// Returns the route `POST /get_reward`. If `strict`, a completion that cannot be scored is an error
/// of the request.
#[must_use]
pub fn reward_route<S: Send + 'static>(queue: &Arc<Queue<S>>, strict: bool) -> Route {
    let body_bytes = queue.limits.body_bytes;
    let queue = queue.clone();
    Route::post("/get_reward", body_bytes, move |body| answer(queue.clone(), strict, body))
}

async fn answer<S: Send + 'static>(
    queue: Arc<Queue<S>>,
    strict: bool,
    body: Bytes,
) -> Result<HttpReply, HttpError> {
    let request: RewardRequest = parse_request(body, FORM).await?;
    request.check_lengths()?;
    queue.check_number(request.query.len())?;
    let (limits, settings) = (queue.limits, queue.settings);
    let readable = run_blocking(move || request.readable(&limits, &settings)).await?;
    let completions = readable.completions;
    if let Some(error) = readable.first_error {
        if strict {
            return Err(error);
        }
        let unreadable = readable.is_readable.iter().filter(|readable| !**readable).count();
        tracing::warn!(unreadable, error = error.message, "neutral rewards for unreadable queries");
    }

    let when_full = if strict { WhenFull::Refuse } else { WhenFull::Wait };
    let scored = match queue.score(completions, None, when_full).await {
        // Not if the thread has ended: endless neutral rewards would be worse than an error.
        Err(QueueError::Request(error)) if !strict && error.status.is_server_error() => {
            tracing::warn!(error = error.message, "a neutral reward, because of an error");
            Vec::new()
        }
        result => result?,
    };
    if scored.iter().any(ScoredCompletion::has_signs) {
        return Err(HttpError::internal(SIGNS_REFUSED));
    }
    let mut scored = scored.into_iter();
    let mut figures = Vec::with_capacity(readable.is_readable.len());
    for is_readable in readable.is_readable {
        let completion = if is_readable { scored.next() } else { None };
        figures.push(match completion {
            Some(completion) => Figures::new(&completion, &queue.settings),
            None => Figures { error: 1.0, ..Figures::default() },
        });
    }
    Ok(HttpReply::json(&RewardReply::new(&figures)))
}

/// Completions of a request that can be scored.
struct ReadableCompletions {
    completions: Vec<SubmittedCompletion>,
    /// By query: true if it has a completion.
    is_readable: Vec<bool>,
    /// Error of the first query without one. `None`: all can be scored.
    first_error: Option<HttpError>,
}

impl RewardRequest {
    fn readable(&self, limits: &QueueLimits, settings: &RewardSettings) -> ReadableCompletions {
        let mut completions = Vec::with_capacity(self.query.len());
        let mut is_readable = Vec::with_capacity(self.query.len());
        let mut first_error = None;
        for index in 0..self.query.len() {
            let result = self.completion(index, limits, settings);
            is_readable.push(result.is_ok());
            match result {
                Ok(completion) => completions.push(completion),
                Err(error) => _ = first_error.get_or_insert(error),
            }
        }
        ReadableCompletions { completions, is_readable, first_error }
    }

    fn check_lengths(&self) -> Result<(), HttpError> {
        let num_queries = self.query.len();
        let num_prompts = self.prompts.as_ref().map(Vec::len);
        let num_labels = self.labels.as_ref().map(Vec::len);
        for (name, number) in [("prompts", num_prompts), ("labels", num_labels)] {
            if let Some(number) = number
                && number != num_queries
            {
                return Err(HttpError::bad_request(format!(
                    "there are {num_queries} entries in query and {number} in {name}"
                )));
            }
        }
        if num_queries == 0 {
            return Err(HttpError::bad_request("there is no query"));
        }
        Ok(())
    }

    /// Returns the completion of a query.
    ///
    /// # Errors
    /// If it cannot be scored.
    fn completion(
        &self,
        index: usize,
        limits: &QueueLimits,
        settings: &RewardSettings,
    ) -> Result<SubmittedCompletion, HttpError> {
        let prompt = self.prompts.as_ref().map(|prompts| prompts[index].as_str());
        let label = self.labels.as_ref().map_or(&Value::Null, |labels| &labels[index]);
        let golds = golds(label)
            .map_err(|problem| HttpError::bad_request(format!("labels[{index}]: {problem}")))?;
        let question = match question_in(label) {
            Some(text) => text.to_owned(),
            None => transcript::question(prompt.unwrap_or_default()),
        };
        let text = transcript::response(&self.query[index], prompt).ok_or_else(|| {
            HttpError::bad_request(format!(
                "query[{index}]: it neither begins with its prompt nor has a header of the \
                 assistant's turn"
            ))
        })?;
        let question = Question { question, golds, ..Question::default() };
        let completion = SubmittedCompletion { question, text, tokens: None };
        completion.check(limits, settings)?;
        Ok(completion)
    }
}

impl Figures {
    fn new(ScoredCompletion { trace, .. }: &ScoredCompletion, settings: &RewardSettings) -> Self {
        let parts = ReturnParts::new(trace, settings);
        let num_counted = trace.sentences.iter().filter(|sentence| sentence.is_counted()).count();
        Self {
            reward: trace.mean_return,
            accuracy: f64::from(u8::from(trace.response.judge.reward > 0.0)),
            judge: parts.judge,
            format: parts.format,
            sentences: parts.sentences,
            num_sentences: trace.sentences.len() as f64,
            num_counted: num_counted as f64,
            error: 0.0,
        }
    }
}

impl RewardReply {
    fn new(figures: &[Figures]) -> Self {
        let column = |figure: fn(&Figures) -> f64| match figures {
            [single] => Numbers::One(figure(single)),
            several => Numbers::Many(several.iter().map(figure).collect()),
        };
        let extra_logs = BTreeMap::from([
            ("corver/judge", column(|query| query.judge)),
            ("corver/format", column(|query| query.format)),
            ("corver/sentences", column(|query| query.sentences)),
            ("corver/num_sentences", column(|query| query.num_sentences)),
            ("corver/num_counted", column(|query| query.num_counted)),
            ("corver/error", column(|query| query.error)),
        ]);
        Self {
            rewards: column(|query| query.reward),
            scores: column(|query| query.accuracy),
            extra_logs,
        }
    }
}
