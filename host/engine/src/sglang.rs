//! SGLang's `/generate` (0.5.23), as far as it is used.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::request::{
    EngineCompletion, InvalidReply, SampleRequest, descending, is_finished, malformed,
    other_tokens, wrong_number,
};

/// Builds the body of a request, with every setting that a draw depends on. `base` is the model
/// without an adapter.
///
/// The prompt is sent once for each completion, because completions of one prompt would share its
/// seed. The server computes it once (radix cache).
pub(crate) fn body(request: &SampleRequest<'_>, base: &str) -> Value {
    let SampleRequest { sampling, number, .. } = *request;
    let adapter = (request.model != base).then_some(request.model);
    let mut parameters = Vec::with_capacity(number);
    for completion in 0..number {
        parameters.push(json!({
            "n": 1,
            "max_new_tokens": request.max_tokens,
            "min_new_tokens": 0,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k.map_or(json!(-1), |k| json!(k)),
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            // Used with --enable-deterministic-inference.
            "sampling_seed": request.completion_seed(completion),
            "stop": request.stop.texts,
            "stop_token_ids": request.stop.tokens,
            "no_stop_trim": true,
            "ignore_eos": false,
            "skip_special_tokens": false,
        }));
    }
    json!({
        "input_ids": vec![request.prompt; number],
        "sampling_params": parameters,
        "lora_path": vec![adapter; number],
        "return_logprob": true,
        "logprob_start_len": -1,
        "top_logprobs_num": request.alternatives,
        "return_text_in_logprobs": false,
        "stream": false,
    })
}

#[derive(Deserialize)]
struct SglangReply {
    output_ids: Option<Vec<u32>>,
    meta_info: SglangMeta,
}

#[derive(Deserialize)]
struct SglangMeta {
    finish_reason: Option<SglangFinish>,
    /// 0 if an aborted reply has no such field.
    #[serde(default)]
    prompt_tokens: usize,
    output_token_logprobs: Option<Vec<ScoredToken>>,
    output_top_logprobs: Option<Vec<Option<Vec<ScoredToken>>>>,
}

#[derive(Deserialize)]
struct SglangFinish {
    #[serde(rename = "type")]
    kind: String,
}

/// Log-probability, token id, text.
type ScoredToken = (f64, u32, Option<String>);

/// Reads the completions of a reply, in their order.
pub(crate) fn read(
    reply: &[u8],
    request: &SampleRequest<'_>,
) -> Result<Vec<EngineCompletion>, InvalidReply> {
    let replies: Vec<SglangReply> =
        serde_json::from_slice(reply).map_err(|error| malformed(&error, reply))?;
    if replies.len() != request.number {
        return Err(wrong_number(replies.len(), request));
    }
    replies.into_iter().map(|one| completion(one, request)).collect()
}

fn completion(
    reply: SglangReply,
    request: &SampleRequest<'_>,
) -> Result<EngineCompletion, InvalidReply> {
    let meta = reply.meta_info;
    // An aborted completion may lack everything else.
    let finished = is_finished(meta.finish_reason.as_ref().map(|finish| finish.kind.as_str()))?;
    let Some(tokens) = reply.output_ids else {
        let remedy = "it needs SGLang 0.4.4 or later, whose /generate has `output_ids`";
        return Err(InvalidReply::Lacks { what: "token ids", remedy });
    };
    let Some(scored) = meta.output_token_logprobs else {
        let remedy =
            "`meta_info.output_token_logprobs` is what /generate answers to `return_logprob`";
        return Err(InvalidReply::Lacks { what: "log-probabilities", remedy });
    };
    if meta.prompt_tokens != request.prompt.len() {
        return Err(InvalidReply::Unexpected(format!(
            "a prompt of {} tokens instead of {}",
            meta.prompt_tokens,
            request.prompt.len()
        )));
    }
    if scored.iter().map(|(_, id, _)| id).ne(&tokens) {
        return Err(other_tokens());
    }
    let mut alternatives = Vec::new();
    for position in meta.output_top_logprobs.unwrap_or_default() {
        let log_probs = position.unwrap_or_default().into_iter().map(|(log_prob, ..)| log_prob);
        alternatives.push(descending(log_probs.collect()));
    }
    Ok(EngineCompletion {
        log_probs: scored.iter().map(|(log_prob, ..)| *log_prob as f32).collect(),
        tokens,
        finished,
        alternatives,
    })
}
