//! `POST /v1/score`: the trace of each completion, and the return of each token.

use std::ops::Range;
use std::sync::Arc;

use corver_core::split::split;
use corver_core::{Explained, GivenTriplets, Question, RewardSettings, ScoredCompletion};
use corver_data::GoldsField;
use hyper::body::Bytes;
use serde::{Deserialize, Serialize};

use super::queue::WhenFull;
use super::{Queue, QueueLimits, SubmittedCompletion, parse_request, run_blocking};
use crate::{HttpError, HttpReply, Route};

const FORM: &str = r#"{"completions": [{"question", "answers", "title", "evidence", "completion", "tokens", "triplets"}]}, where "title", "evidence" (a list of texts), "tokens" and "triplets" may be left out; triplets are [[sentence, [[head, relation, tail], …]], …], in place of the extractor's; tokens are the characters of each token, as [[start, end], null, …]"#;

const MIXED: &str =
    "some completions have \"triplets\", others have none; give them with every one or with none";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScoreRequest {
    completions: Vec<CompletionRecord>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CompletionRecord {
    #[serde(default)]
    question: String,
    answers: GoldsField,
    title: Option<String>,
    #[serde(default)]
    evidence: Vec<String>,
    completion: String,
    tokens: Option<Vec<Option<(usize, usize)>>>,
    triplets: Option<GivenTriplets>,
}

#[derive(Serialize)]
struct ScoreReply<'a> {
    completions: Vec<ScoreRecord<'a>>,
}

/// Line of `corver-host score --json`, with the returns if the request has tokens, and with the
/// advantage signs if the rule sets any.
#[derive(Serialize)]
struct ScoreRecord<'a> {
    #[serde(flatten)]
    explained: Explained<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    returns: Option<&'a [f64]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    advantage_signs: Option<&'a [i8]>,
}

/// Returns the route `POST /v1/score`.
#[must_use]
pub fn score_route<S: Send + 'static>(queue: &Arc<Queue<S>>) -> Route {
    let body_bytes = queue.limits.body_bytes;
    let queue = queue.clone();
    Route::post("/v1/score", body_bytes, move |body| answer(queue.clone(), body))
}

async fn answer<S: Send + 'static>(
    queue: Arc<Queue<S>>,
    body: Bytes,
) -> Result<HttpReply, HttpError> {
    let request: ScoreRequest = parse_request(body, FORM).await?;
    if request.completions.is_empty() {
        return Err(HttpError::bad_request("there is no completion"));
    }
    queue.check_number(request.completions.len())?;
    let mut has_tokens = Vec::with_capacity(request.completions.len());
    for record in &request.completions {
        has_tokens.push(record.tokens.is_some());
    }
    let (limits, settings) = (queue.limits, queue.settings);
    let (completions, triplets) =
        run_blocking(move || request.completions(&limits, &settings)).await??;
    let scored = queue.score(completions, triplets, WhenFull::Refuse).await?;
    run_blocking(move || {
        let mut records = Vec::with_capacity(scored.len());
        for (completion, has_own_tokens) in scored.iter().zip(has_tokens) {
            records.push(ScoreRecord::new(completion, has_own_tokens, &settings));
        }
        HttpReply::json(&ScoreReply { completions: records })
    })
    .await
}

/// Checks that every sentence of a completion has triplets.
fn check_given(
    completion: &SubmittedCompletion,
    triplets: &GivenTriplets,
    settings: &RewardSettings,
) -> Result<(), String> {
    for sentence in split(&completion.text, settings.text()).sentences {
        triplets.of(&sentence.text).map_err(|error| error.to_string())?;
    }
    Ok(())
}

impl ScoreRequest {
    /// Returns the completions, with their triplets if they have any.
    fn completions(
        self,
        limits: &QueueLimits,
        settings: &RewardSettings,
    ) -> Result<(Vec<SubmittedCompletion>, Option<GivenTriplets>), HttpError> {
        let has_triplets = self.completions[0].triplets.is_some();
        let mut given = GivenTriplets::default();
        let mut completions = Vec::with_capacity(self.completions.len());
        for (index, mut record) in self.completions.into_iter().enumerate() {
            let invalid = |problem: String| {
                HttpError::bad_request(format!("completions[{index}]: {problem}"))
            };
            let triplets = record.triplets.take();
            if triplets.is_some() != has_triplets {
                return Err(invalid(MIXED.to_owned()));
            }
            let completion = record.into_completion().map_err(invalid)?;
            completion.check(limits, settings)?;
            if let Some(triplets) = triplets {
                check_given(&completion, &triplets, settings).map_err(invalid)?;
                given.merge(triplets).map_err(|error| invalid(error.to_string()))?;
            }
            completions.push(completion);
        }
        Ok((completions, has_triplets.then_some(given)))
    }
}

impl<'a> ScoreRecord<'a> {
    fn new(scored: &'a ScoredCompletion, has_tokens: bool, settings: &RewardSettings) -> Self {
        Self {
            explained: Explained::new(&scored.trace, settings),
            returns: has_tokens.then_some(&scored.returns),
            advantage_signs: (has_tokens && scored.has_signs()).then_some(&scored.advantage_signs),
        }
    }
}

impl CompletionRecord {
    fn into_completion(self) -> Result<SubmittedCompletion, String> {
        let GoldsField(golds) = self.answers;
        let num_chars = self.completion.chars().count();
        let tokens = self.tokens.map(|spans| check_spans(spans, num_chars)).transpose()?;
        let question = Question {
            question: self.question,
            golds,
            title: self.title,
            evidence: self.evidence,
            ..Question::default()
        };
        Ok(SubmittedCompletion { question, text: self.completion, tokens })
    }
}

fn check_spans(
    spans: Vec<Option<(usize, usize)>>,
    num_chars: usize,
) -> Result<Vec<Option<Range<usize>>>, String> {
    let mut checked = Vec::with_capacity(spans.len());
    for (index, span) in spans.into_iter().enumerate() {
        if let Some((start, end)) = span
            && (start > end || end > num_chars)
        {
            return Err(format!(
                "tokens[{index}] is [{start}, {end}], in a completion of {num_chars} characters"
            ));
        }
        checked.push(span.map(|(start, end)| start..end));
    }
    Ok(checked)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn score_request_accepts_title_and_evidence() {
        let read = |record: serde_json::Value| {
            let record: CompletionRecord = serde_json::from_value(record).unwrap();
            record.into_completion().unwrap().question
        };
        let bare = read(json!({"answers": ["Rome"], "completion": "Rome."}));
        assert_eq!((bare.title, bare.evidence.len()), (None, 0));
        let full = read(
            json!({"answers": [], "completion": "Rome.", "title": "Italy", "evidence": ["Rome is in Italy."]}),
        );
        assert_eq!(
            (full.title.as_deref(), full.evidence),
            (Some("Italy"), vec!["Rome is in Italy.".to_owned()])
        );
    }
}
