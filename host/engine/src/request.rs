//! A request for the completions of one prompt, and its reply, in terms that all servers share.

use corver_core::Sampling;

/// A request for completions of one prompt.
#[derive(Debug, Clone)]
pub(crate) struct SampleRequest<'a> {
    /// Server's name of the base model or of an adapter.
    pub(crate) model: &'a str,
    /// `[P]` token ids of the prompt.
    pub(crate) prompt: &'a [u32],
    /// Number of completions to sample.
    pub(crate) number: usize,
    /// Longest completion, tokens.
    pub(crate) max_tokens: usize,
    pub(crate) sampling: &'a Sampling,
    pub(crate) stop: StopCondition<'a>,
    pub(crate) seed: u64,
    /// Number of most probable tokens whose log-probabilities are returned too, at every position.
    pub(crate) alternatives: usize,
}

/// Tokens and texts that end a completion.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StopCondition<'a> {
    pub(crate) tokens: &'a [u32],
    pub(crate) texts: &'a [String],
}

/// One completion as a server returns it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct EngineCompletion {
    /// `[T]` token ids, including the stop token.
    pub(crate) tokens: Vec<u32>,
    /// `[T]` nats, of each token.
    pub(crate) log_probs: Vec<f32>,
    /// True if a stop token or text ended it; false at the length limit.
    pub(crate) finished: bool,
    /// `[T]` log-probabilities of the alternatives, descending.
    pub(crate) alternatives: Vec<Vec<f64>>,
}

/// A reply that cannot be used.
#[derive(Debug, PartialEq)]
pub(crate) enum InvalidReply {
    /// A part is missing that the server returns if it is set up differently.
    Lacks { what: &'static str, remedy: &'static str },
    /// A completion was aborted, as by a server that is being stopped.
    Aborted,
    /// The reply contradicts the API or the request.
    Unexpected(String),
}

impl SampleRequest<'_> {
    /// Returns the seed of one completion, for servers that need one for each.
    pub(crate) fn completion_seed(&self, completion: usize) -> u64 {
        self.seed + completion as u64
    }
}

/// Returns the seed of a question's request, below 2⁶²: servers take 63 bits, and count up from it
/// for further completions.
pub(crate) fn request_seed(seed: u64, question: usize) -> u64 {
    let mut hasher = blake3::Hasher::new_derive_key("corver-engine seed of a request v1");
    hasher.update(&seed.to_le_bytes());
    hasher.update(&(question as u64).to_le_bytes());
    let bytes = hasher.finalize().as_bytes()[..8].try_into().expect("a hash has 32 bytes");
    u64::from_le_bytes(bytes) >> 2
}

/// Sorts numbers in descending order.
pub(crate) fn descending(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(|a, b| b.total_cmp(a));
    values
}

/// Describes a reply that is not JSON of the expected form.
pub(crate) fn malformed(error: &serde_json::Error, body: &[u8]) -> InvalidReply {
    InvalidReply::Unexpected(format!("{error} in {}", corver_http::excerpt(body)))
}

/// Describes a reply with another number of completions than requested.
pub(crate) fn wrong_number(got: usize, request: &SampleRequest<'_>) -> InvalidReply {
    InvalidReply::Unexpected(format!("{got} completions instead of {}", request.number))
}

/// Describes log-probabilities that belong to other tokens.
pub(crate) fn other_tokens() -> InvalidReply {
    InvalidReply::Unexpected("log-probabilities of other tokens than those drawn".into())
}

/// Returns true if a stop token or text ended the completion, false at the length limit.
pub(crate) fn is_finished(reason: Option<&str>) -> Result<bool, InvalidReply> {
    match reason {
        Some("stop") => Ok(true),
        Some("length") => Ok(false),
        Some("abort") => Err(InvalidReply::Aborted),
        other => Err(InvalidReply::Unexpected(format!("a completion that ended with {other:?}"))),
    }
}
