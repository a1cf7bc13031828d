//! vLLM's `/v1/completions`, as much as is used of it (0.33).

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::draw::{Completion, Draw, Unusable, falling, malformed};

/// The request, with every setting that a draw depends on.
pub(crate) fn request(draw: &Draw<'_>) -> Value {
    json!({
        "model": draw.model,
        "prompt": draw.prompt,
        "n": draw.number,
        "max_tokens": draw.max_tokens,
        "min_tokens": 0,
        "temperature": draw.sampling.temperature,
        "top_p": draw.sampling.top_p,
        "top_k": draw.sampling.top_k.unwrap_or(0),
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "seed": draw.seed,
        "stop": draw.stop.texts,
        "stop_token_ids": draw.stop.tokens,
        "include_stop_str_in_output": true,
        "ignore_eos": false,
        "logprobs": draw.alternatives, // 0: of the sampled token alone
        "return_token_ids": true,
        "return_tokens_as_token_ids": true,
        "skip_special_tokens": false,
        "echo": false,
        "stream": false,
    })
}

#[derive(Deserialize)]
struct Reply {
    model: String,
    choices: Vec<Choice>,
}

#[derive(Deserialize)]
struct Choice {
    index: usize,
    finish_reason: Option<String>,
    token_ids: Option<Vec<u32>>,
    prompt_token_ids: Option<Vec<u32>>,
    logprobs: Option<LogProbs>,
}

#[derive(Deserialize)]
struct LogProbs {
    token_logprobs: Vec<Option<f32>>,
    tokens: Vec<String>,
    top_logprobs: Option<Vec<Option<HashMap<String, f64>>>>,
}

/// The completions of a reply, in their order.
pub(crate) fn read(body: &[u8], draw: &Draw<'_>) -> Result<Vec<Completion>, Unusable> {
    let Reply { model, mut choices } =
        serde_json::from_slice(body).map_err(|error| malformed(&error, body))?;
    if model != draw.model {
        return Err(Unusable::Unexpected(format!(
            "completions of the model {model:?}, not of {:?}",
            draw.model
        )));
    }
    choices.sort_by_key(|choice| choice.index);
    if choices.iter().map(|choice| choice.index).ne(0..draw.number) {
        return Err(Unusable::Unexpected(format!(
            "{} completions in place of {}",
            choices.len(),
            draw.number
        )));
    }
    choices.into_iter().map(|choice| completion(choice, draw)).collect()
}

fn completion(choice: Choice, draw: &Draw<'_>) -> Result<Completion, Unusable> {
    let Some(tokens) = choice.token_ids else {
        let remedy = "it needs vLLM 0.10.2 or later, whose completions have `token_ids`";
        return Err(Unusable::Lacks { what: "token ids", remedy });
    };
    let Some(LogProbs { token_logprobs, tokens: names, top_logprobs }) = choice.logprobs else {
        let remedy = "vLLM must not run with --max-logprobs 0 or a proxy that drops `logprobs`";
        return Err(Unusable::Lacks { what: "log-probabilities", remedy });
    };
    if choice.prompt_token_ids.is_some_and(|prompt| prompt != draw.prompt) {
        return Err(Unusable::Unexpected("a prompt other than the one that was sent".into()));
    }
    if names.iter().ne(&tokens.iter().map(|id| format!("token_id:{id}")).collect::<Vec<_>>()) {
        return Err(Unusable::Unexpected(
            "log-probabilities of other tokens than those drawn".into(),
        ));
    }
    let finished = match choice.finish_reason.as_deref() {
        Some("stop") => true,
        Some("length") => false,
        other => {
            return Err(Unusable::Unexpected(format!("a completion that ended with {other:?}")));
        }
    };
    let of_place = |place: Option<HashMap<String, f64>>| {
        falling(place.into_iter().flatten().map(|(_, x)| x).collect())
    };
    Ok(Completion {
        log_probs: token_logprobs
            .into_iter()
            .map(|log_prob| log_prob.unwrap_or(f32::NAN))
            .collect(),
        tokens,
        finished,
        alternatives: top_logprobs.unwrap_or_default().into_iter().map(of_place).collect(),
    })
}
