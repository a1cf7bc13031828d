//! Requests other than counts.

use std::fmt;

use crate::{ChatPrompt, ChatRole, Message, NliPair, Request, Search};

impl NliPair {
    /// Returns the request for the probability that `hypothesis` follows from `premise`.
    #[must_use]
    pub fn new(premise: &str, hypothesis: &str) -> Self {
        Self { premise: premise.to_owned(), hypothesis: hypothesis.to_owned() }
    }
}

impl ChatPrompt {
    /// Returns a prompt of one user message, for the most probable reply of at most 512 tokens.
    #[must_use]
    pub fn user(content: &str) -> Self {
        let messages = vec![Message { role: ChatRole::User, content: content.to_owned() }];
        Self { messages, temperature: 0.0, top_p: 1.0, max_tokens: 512, seed: None }
    }

    /// Puts a system message before the others.
    #[must_use]
    pub fn system(mut self, content: &str) -> Self {
        self.messages.insert(0, Message { role: ChatRole::System, content: content.to_owned() });
        self
    }
}

/// As in tests: a query by itself, any other request after its kind.
impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(query) => query.fmt(f),
            Self::Nli(NliPair { premise, hypothesis }) => {
                write!(f, "nli: {premise} => {hypothesis}")
            }
            Self::Chat(ChatPrompt { messages, .. }) => {
                write!(
                    f,
                    "chat: {}",
                    messages.last().map_or("", |message| message.content.as_str())
                )
            }
            Self::Passages(Search { title: None, query, .. }) => write!(f, "passages: {query}"),
            Self::Passages(Search { title: Some(title), query, .. }) => {
                write!(f, "passages of {title}: {query}")
            }
        }
    }
}
