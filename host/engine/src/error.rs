//! Why there are no rollouts, with what the reader needs to change it.

use std::path::PathBuf;

use corver_core::PartError;
use corver_http::UrlError;
use corver_pretrained::PretrainedError;

/// Errors of an engine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The address cannot be used.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// Everyone on the way to the server would see the key.
    #[error(
        "the key of the engine (engine.token_file) would go to {url} unencrypted: use https://, or a tunnel from localhost"
    )]
    TokenInClear {
        /// The server.
        url: String,
    },
    /// The server gave no usable answer for as long as one is waited for.
    #[error(
        "the engine {url} did not answer in {attempts} attempts and {seconds:.0} s (engine.patience_s); at last: {last}"
    )]
    Away {
        /// The address that was asked.
        url: String,
        /// How often it was tried.
        attempts: u32,
        /// For how long.
        seconds: f64,
        /// How the last attempt failed.
        last: String,
    },
    /// The server understood and will not do it; asking again is of no use.
    #[error("the engine {url} refuses: {message}")]
    Refused {
        /// The address that was asked.
        url: String,
        /// What it said.
        message: String,
    },
    /// The server does not have the model, or no longer has the adapter.
    #[error("the engine {url} has no model {model:?} (engine.model); it has {}", listed(served))]
    NoModel {
        /// The server.
        url: String,
        /// What was asked for.
        model: String,
        /// What it lists.
        served: Vec<String>,
    },
    /// An answer without what a rollout is made of.
    #[error("the engine {url} answered without {what}: {remedy}")]
    Lacks {
        /// The address that was asked.
        url: String,
        /// What is missing.
        what: &'static str,
        /// What to do about it.
        remedy: &'static str,
    },
    /// An answer that is not what the API's documents say, or that belongs to something else.
    #[error("the engine {url} answered what was not expected: {problem}")]
    Unexpected {
        /// The address that was asked.
        url: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The log-probabilities belong to another temperature than the one that sampled.
    #[error(
        "the engine {url} gives log-probabilities of temperature 1, and rollout.temperature is {temperature}: {}",
        "start vLLM with --logprobs-mode processed_logprobs (SGLang without SGLANG_RETURN_ORIGINAL_LOGPROB)"
    )]
    RawLogProbs {
        /// The server.
        url: String,
        /// What was asked for.
        temperature: f64,
    },
    /// What the server calls log-probabilities are none.
    #[error(
        "the engine {url} gives numbers that are no log-probabilities: start vLLM with --logprobs-mode processed_logprobs"
    )]
    NotLogProbs {
        /// The server.
        url: String,
    },
    /// No token fits behind a prompt.
    #[error(
        "the prompt of {question:?} has {tokens} tokens; the engine {url} takes {most}, completion included (--max-model-len)"
    )]
    PromptTooLong {
        /// The server.
        url: String,
        /// The question.
        question: String,
        /// Of the prompt.
        tokens: usize,
        /// What the server takes.
        most: usize,
    },
    /// An adapter was not taken.
    #[error(
        "the engine {url} does not load the adapter {path}: {message}. It must find this folder ({}), and serve adapters of this rank: {}",
        "engine.adapters_as_seen_by_server is the path there",
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 vllm serve … --enable-lora --max-lora-rank N --max-loras 2 (docs/engines.md)"
    )]
    Adapter {
        /// The server.
        url: String,
        /// As the server is told.
        path: PathBuf,
        /// What it said.
        message: String,
    },
    /// The adapter could not be written.
    #[error("writing the adapter {}", path.display())]
    WriteAdapter {
        /// Its folder.
        path: PathBuf,
        /// Why.
        source: PartError,
    },
    /// An adapter was to be published before there was a folder for it.
    #[error("no folder was claimed for the adapters of the engine")]
    NoFolder,
    /// Another process publishes its adapters there.
    #[error("another run publishes its adapters in {}; give each run a folder of its own (engine.adapters)", path.display())]
    InUse {
        /// The folder.
        path: PathBuf,
    },
    /// The file system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// Where.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A prompt cannot be made, or a completion cannot be read.
    #[error(transparent)]
    Pretrained(#[from] PretrainedError),
    /// Whoever watches the sampling broke it off.
    #[error("stopped, as asked")]
    Stopped,
}

/// Shorthand of this crate.
pub type Result<T> = std::result::Result<T, EngineError>;

fn listed(served: &[String]) -> String {
    if served.is_empty() { "none".to_owned() } else { served.join(", ") }
}
