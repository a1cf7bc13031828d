//! SGLang's `/generate`, as much as is used of it (0.5.23).

use serde::Deserialize;
use serde_json::{Value, json};

use crate::draw::{Completion, Draw, Unusable, falling, malformed};

/// The request, with every setting that a draw depends on. The prompt is sent once for each
/// completion, because completions of one prompt would share its seed; the server computes it once
/// (its radix cache). `base` is the model without an adapter.
pub(crate) fn request(draw: &Draw<'_>, base: &str) -> Value {
    let Draw { sampling, number, .. } = *draw;
    let adapter = (draw.model != base).then_some(draw.model);
    let parameters = |completion| {
        json!({
            "n": 1,
            "max_new_tokens": draw.max_tokens,
            "min_new_tokens": 0,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k.map_or(json!(-1), |k| json!(k)),
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "sampling_seed": draw.seed_of(completion), // used with --enable-deterministic-inference
            "stop": draw.stop.texts,
            "stop_token_ids": draw.stop.tokens,
            "no_stop_trim": true,
            "ignore_eos": false,
            "skip_special_tokens": false,
        })
    };
    json!({
        "input_ids": vec![draw.prompt; number],
        "sampling_params": (0..number).map(parameters).collect::<Vec<_>>(),
        "lora_path": vec![adapter; number],
        "return_logprob": true,
        "logprob_start_len": -1,
        "top_logprobs_num": draw.alternatives,
        "return_text_in_logprobs": false,
        "stream": false,
    })
}

#[derive(Deserialize)]
struct Reply {
    output_ids: Option<Vec<u32>>,
    meta_info: Meta,
}

#[derive(Deserialize)]
struct Meta {
    finish_reason: Option<Finish>,
    prompt_tokens: usize,
    output_token_logprobs: Option<Vec<Scored>>,
    output_top_logprobs: Option<Vec<Option<Vec<Scored>>>>,
}

#[derive(Deserialize)]
struct Finish {
    #[serde(rename = "type")]
    kind: String,
}

/// Log-probability, token id, text.
type Scored = (f64, u32, Option<String>);

/// The completions of a reply, in their order.
pub(crate) fn read(body: &[u8], draw: &Draw<'_>) -> Result<Vec<Completion>, Unusable> {
    let replies: Vec<Reply> =
        serde_json::from_slice(body).map_err(|error| malformed(&error, body))?;
    if replies.len() != draw.number {
        return Err(Unusable::Unexpected(format!(
            "{} completions in place of {}",
            replies.len(),
            draw.number
        )));
    }
    replies.into_iter().map(|reply| completion(reply, draw)).collect()
}

fn completion(
    Reply { output_ids, meta_info: meta }: Reply,
    draw: &Draw<'_>,
) -> Result<Completion, Unusable> {
    let Some(tokens) = output_ids else {
        let remedy = "it needs SGLang 0.4.4 or later, whose /generate has `output_ids`";
        return Err(Unusable::Lacks { what: "token ids", remedy });
    };
    let Some(scored) = meta.output_token_logprobs else {
        let remedy =
            "`meta_info.output_token_logprobs` is what /generate answers to `return_logprob`";
        return Err(Unusable::Lacks { what: "log-probabilities", remedy });
    };
    if meta.prompt_tokens != draw.prompt.len() {
        let problem =
            format!("a prompt of {} tokens in place of {}", meta.prompt_tokens, draw.prompt.len());
        return Err(Unusable::Unexpected(problem));
    }
    if scored.iter().map(|(_, id, _)| id).ne(&tokens) {
        return Err(Unusable::Unexpected(
            "log-probabilities of other tokens than those drawn".into(),
        ));
    }
    let finished = match meta.finish_reason.as_ref().map(|finish| finish.kind.as_str()) {
        Some("stop") => true,
        Some("length") => false,
        other => {
            return Err(Unusable::Unexpected(format!("a completion that ended with {other:?}")));
        }
    };
    let of_place = |place: Option<Vec<Scored>>| {
        falling(place.into_iter().flatten().map(|(log_prob, ..)| log_prob).collect())
    };
    Ok(Completion {
        log_probs: scored.iter().map(|(log_prob, ..)| *log_prob as f32).collect(),
        tokens,
        finished,
        alternatives: meta
            .output_top_logprobs
            .unwrap_or_default()
            .into_iter()
            .map(of_place)
            .collect(),
    })
}
