//! Which server, and how it is asked.

use std::time::Duration;

use corver_http::Token;

/// Whose API a server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// vLLM: `/v1/completions`.
    Vllm,
    /// SGLang: `/generate`.
    Sglang,
}

/// A server, and how it is asked.
#[derive(Debug, Clone)]
pub struct EngineSettings {
    /// Whose API it speaks.
    pub kind: Kind,
    /// Its root, such as `http://localhost:8000`.
    pub url: String,
    /// The base model, by the server's name for it.
    pub model: String,
    /// The key that it asks for.
    pub token: Option<Token>,
    /// Requests under way at the same time; each draws all completions of a question.
    pub concurrency: usize,
    /// That one attempt may take: all completions of a question.
    pub timeout: Duration,
    /// For how long a request is tried again and again.
    pub patience: Duration,
}
