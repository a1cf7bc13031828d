//! `POST /v1/score`: everything about each completion, and the return of each token.

use std::ops::Range;
use std::sync::Arc;

use corver_core::{Explained, Question, RewardSettings, ScoredCompletion};
use corver_data::GoldsField;
use hyper::body::Bytes;
use serde::{Deserialize, Serialize};

use super::queue::WhenFull;
use super::{Completion, Queue, compute, read};
use crate::{Refusal, Reply, Route};

const FORM: &str = r#"{"completions": [{"question", "answers", "title", "evidence", "completion", "tokens"}]}, where "title", "evidence" (a list of texts) and "tokens" may be left out; tokens are the characters of each token, as [[start, end], null, …]"#;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    completions: Vec<Given>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    #[serde(default)]
    question: String,
    answers: GoldsField,
    title: Option<String>,
    #[serde(default)]
    evidence: Vec<String>,
    completion: String,
    tokens: Option<Vec<Option<(usize, usize)>>>,
}

#[derive(Serialize)]
struct Scores<'a> {
    completions: Vec<Score<'a>>,
}

/// What `corver-host score --json` prints, and, where there are tokens, the returns, and the labels
/// if the rule gave any.
#[derive(Serialize)]
struct Score<'a> {
    #[serde(flatten)]
    explained: Explained<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    returns: Option<&'a [f64]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    labels: Option<&'a [i8]>,
}

/// `POST /v1/score`.
#[must_use]
pub fn score<S: Send + 'static>(queue: &Arc<Queue<S>>) -> Route {
    let body_bytes = queue.limits.body_bytes;
    let queue = queue.clone();
    Route::post("/v1/score", body_bytes, move |body| answer(queue.clone(), body))
}

async fn answer<S: Send + 'static>(queue: Arc<Queue<S>>, body: Bytes) -> Result<Reply, Refusal> {
    let Request { completions: given } = read(body, FORM).await?;
    if given.is_empty() {
        return Err(Refusal::bad("there is no completion"));
    }
    let has_tokens: Vec<bool> = given.iter().map(|one| one.tokens.is_some()).collect();
    let one = |(index, record): (usize, Given)| {
        let completion = completion(record)
            .map_err(|problem| Refusal::bad(format!("completions[{index}]: {problem}")))?;
        completion.check(&queue.limits).map(|()| completion)
    };
    let completions = given.into_iter().enumerate().map(one).collect::<Result<_, _>>()?;
    let paid = queue.score(completions, WhenFull::Refuse).await?;
    let settings = queue.settings;
    let show = move || {
        let scores = paid
            .iter()
            .zip(has_tokens)
            .map(|(paid, has_tokens)| Score::of(paid, has_tokens, &settings));
        Reply::json(&Scores { completions: scores.collect() })
    };
    compute(show).await
}

impl<'a> Score<'a> {
    fn of(scored: &'a ScoredCompletion, has_tokens: bool, settings: &RewardSettings) -> Self {
        Self {
            explained: Explained::new(&scored.trace, settings),
            returns: has_tokens.then_some(&scored.returns),
            labels: (has_tokens && scored.has_signs()).then_some(&scored.advantage_signs),
        }
    }
}

fn completion(given: Given) -> Result<Completion, String> {
    let golds = given.answers.golds()?;
    let length = given.completion.chars().count();
    let span = |(index, span): (usize, Option<(usize, usize)>)| match span {
        Some((start, end)) if start > end || end > length => Err(format!(
            "tokens[{index}] is [{start}, {end}], in a completion of {length} characters"
        )),
        span => Ok(span.map(|(start, end)| start..end)),
    };
    let spans = |spans: Vec<_>| {
        spans.into_iter().enumerate().map(span).collect::<Result<Vec<Option<Range<usize>>>, _>>()
    };
    Ok(Completion {
        question: Question {
            question: given.question,
            golds,
            title: given.title,
            evidence: given.evidence,
            ..Question::default()
        },
        tokens: given.tokens.map(spans).transpose()?,
        text: given.completion,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn score_request_accepts_title_and_evidence() {
        let read = |given: serde_json::Value| {
            completion(serde_json::from_value(given).unwrap()).unwrap().question
        };
        let bare = read(json!({"answers": ["Rome"], "completion": "Rome."}));
        assert_eq!((bare.title, bare.evidence.len()), (None, 0));
        let told = read(
            json!({"answers": [], "completion": "Rome.", "title": "Italy", "evidence": ["Rome is in Italy."]}),
        );
        assert_eq!(
            (told.title.as_deref(), told.evidence),
            (Some("Italy"), vec!["Rome is in Italy.".to_owned()])
        );
    }
}
