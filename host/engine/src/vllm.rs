//! vLLM's `/v1/completions` (0.33), as far as it is used.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::request::{
    EngineCompletion, InvalidReply, SampleRequest, descending, is_finished, malformed,
    other_tokens, wrong_number,
};

/// Builds the body of a request, with every setting that a draw depends on.
pub(crate) fn body(request: &SampleRequest<'_>) -> Value {
    json!({
        "model": request.model,
        "prompt": request.prompt,
        "n": request.number,
        "max_tokens": request.max_tokens,
        "min_tokens": 0,
        "temperature": request.sampling.temperature,
        "top_p": request.sampling.top_p,
        "top_k": request.sampling.top_k.unwrap_or(0),
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "seed": request.seed,
        "stop": request.stop.texts,
        "stop_token_ids": request.stop.tokens,
        "include_stop_str_in_output": true,
        "ignore_eos": false,
        "logprobs": request.alternatives, // 0: of the sampled token alone
        "return_token_ids": true,
        "return_tokens_as_token_ids": true,
        "skip_special_tokens": false,
        "echo": false,
        "stream": false,
    })
}

#[derive(Deserialize)]
struct VllmReply {
    model: String,
    choices: Vec<VllmChoice>,
}

#[derive(Deserialize)]
struct VllmChoice {
    index: usize,
    finish_reason: Option<String>,
    token_ids: Option<Vec<u32>>,
    prompt_token_ids: Option<Vec<u32>>,
    logprobs: Option<VllmLogProbs>,
}

#[derive(Deserialize)]
struct VllmLogProbs {
    token_logprobs: Vec<Option<f32>>,
    tokens: Vec<String>,
    top_logprobs: Option<Vec<Option<HashMap<String, f64>>>>,
}

/// Reads the completions of a reply, in their order.
pub(crate) fn read(
    reply: &[u8],
    request: &SampleRequest<'_>,
) -> Result<Vec<EngineCompletion>, InvalidReply> {
    let VllmReply { model, mut choices } =
        serde_json::from_slice(reply).map_err(|error| malformed(&error, reply))?;
    if model != request.model {
        return Err(InvalidReply::Unexpected(format!(
            "completions of the model {model:?}, not of {:?}",
            request.model
        )));
    }
    choices.sort_by_key(|choice| choice.index);
    if choices.iter().map(|choice| choice.index).ne(0..request.number) {
        return Err(wrong_number(choices.len(), request));
    }
    choices.into_iter().map(|choice| completion(choice, request)).collect()
}

fn completion(
    choice: VllmChoice,
    request: &SampleRequest<'_>,
) -> Result<EngineCompletion, InvalidReply> {
    // An aborted completion may lack everything else.
    let finished = is_finished(choice.finish_reason.as_deref())?;
    let Some(tokens) = choice.token_ids else {
        let remedy = "it needs vLLM 0.10.2 or later, whose completions have `token_ids`";
        return Err(InvalidReply::Lacks { what: "token ids", remedy });
    };
    let Some(scores) = choice.logprobs else {
        let remedy = "vLLM must not run with --max-logprobs 0 or a proxy that drops `logprobs`";
        return Err(InvalidReply::Lacks { what: "log-probabilities", remedy });
    };
    if choice.prompt_token_ids.is_some_and(|prompt| prompt != request.prompt) {
        return Err(InvalidReply::Unexpected("a prompt other than the one that was sent".into()));
    }
    let names: Vec<String> = tokens.iter().map(|id| format!("token_id:{id}")).collect();
    if scores.tokens != names {
        return Err(other_tokens());
    }
    let mut log_probs = Vec::with_capacity(tokens.len());
    for log_prob in scores.token_logprobs {
        log_probs.push(log_prob.unwrap_or(f32::NAN)); // refused with other non-finite numbers
    }
    let mut alternatives = Vec::new();
    for position in scores.top_logprobs.unwrap_or_default() {
        alternatives.push(descending(position.unwrap_or_default().into_values().collect()));
    }
    Ok(EngineCompletion { tokens, log_probs, finished, alternatives })
}
