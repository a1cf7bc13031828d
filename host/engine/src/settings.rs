//! Settings of a server and of the requests to it.

use std::time::Duration;

use corver_http::Token;

/// The API of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineApi {
    /// Route `/v1/completions` of vLLM.
    Vllm,
    /// Route `/generate` of SGLang.
    Sglang,
}

/// A server, and limits of the requests to it.
#[derive(Debug, Clone)]
pub struct EngineSettings {
    /// API of the server.
    pub api: EngineApi,
    /// Root of the server, such as `http://localhost:8000`.
    pub url: String,
    /// Server's name of the base model.
    pub model: String,
    /// API key; `None` if the server needs none.
    pub token: Option<Token>,
    /// Most requests in flight. Each is for all completions of a question.
    pub concurrency: usize,
    /// Longest time of one attempt, which is for all completions of a question.
    pub timeout: Duration,
    /// Longest time of a request with its retries.
    pub patience: Duration,
}
