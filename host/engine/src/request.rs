//! What is drawn from one prompt.

use corver_core::Sampling;

/// One prompt and its completions: a request.
#[derive(Debug, Clone)]
pub(crate) struct Draw<'a> {
    /// A base model or an adapter, by the server's name for it.
    pub(crate) model: &'a str,
    pub(crate) prompt: &'a [u32],
    /// Completions.
    pub(crate) number: usize,
    /// Tokens of each, at most.
    pub(crate) max_tokens: usize,
    pub(crate) sampling: &'a Sampling,
    pub(crate) stop: Stop<'a>,
    pub(crate) seed: u64,
    /// Most probable tokens whose log-probabilities are wanted too, at every place.
    pub(crate) alternatives: usize,
}

/// What ends a completion.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stop<'a> {
    pub(crate) tokens: &'a [u32],
    pub(crate) texts: &'a [String],
}

/// One completion, as a server tells it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Completion {
    /// `[T]`
    pub(crate) tokens: Vec<u32>,
    /// `[T]` nats.
    pub(crate) log_probs: Vec<f32>,
    /// Ended by what ends one, not by its length.
    pub(crate) finished: bool,
    /// `[T]` those of the alternatives, falling.
    pub(crate) alternatives: Vec<Vec<f64>>,
}

/// Why an answer cannot be used.
#[derive(Debug, PartialEq)]
pub(crate) enum Unusable {
    /// It has everything but this.
    Lacks { what: &'static str, remedy: &'static str },
    /// It is something else.
    Unexpected(String),
}

impl Draw<'_> {
    /// The seed of each completion, where a server wants them one by one.
    pub(crate) fn seed_of(&self, completion: usize) -> u64 {
        self.seed + completion as u64
    }
}

/// The seed of a question's request. Servers take 63 bits, and count up from it for further
/// completions.
pub(crate) fn seed_of_request(seed: u64, question: usize) -> u64 {
    let mut hasher = blake3::Hasher::new_derive_key("corver-engine seed of a request v1");
    hasher.update(&seed.to_le_bytes());
    hasher.update(&(question as u64).to_le_bytes());
    let bytes = hasher.finalize().as_bytes()[..8].try_into().expect("a hash has 32 bytes");
    u64::from_le_bytes(bytes) >> 2
}

/// Falling.
pub(crate) fn falling(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(|a, b| b.total_cmp(a));
    values
}

/// The words of an unusable answer that is no JSON of the expected form.
pub(crate) fn malformed(error: &serde_json::Error, body: &[u8]) -> Unusable {
    Unusable::Unexpected(format!("{error} in {}", corver_http::excerpt(body)))
}
