//! The cache of replies on disk: no reply is requested twice, and a killed run resumes from it.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};

use corver_core::Usage;
use corver_http::JsonLines;
use serde::{Deserialize, Serialize};

use crate::chat::wire::CompletionRequest;
use crate::chat::{ChatError, Spending};

#[derive(Debug, Clone, Serialize, Deserialize)]
struct ReplyLine {
    key: String,
    #[serde(flatten)]
    reply: EndpointReply,
}

/// A reply as the endpoint sent it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct EndpointReply {
    pub(crate) content: String,
    /// True if the largest length cut it off.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_cut: bool,
    /// Tokens of prompt and reply. `None` if the endpoint does not count them.
    pub(crate) usage: Option<Usage>,
}

/// Replies by their requests' keys, in memory and in a file of JSON lines.
#[derive(Debug)]
pub(crate) struct ReplyCache {
    lines: JsonLines,
    state: Mutex<CacheState>,
}

#[derive(Debug, Default)]
struct CacheState {
    replies: HashMap<String, CachedReply>,
    spending: Spending,
}

#[derive(Debug)]
struct CachedReply {
    reply: EndpointReply,
    /// True if `spending` includes it. Replies to other jobs' prompts are never included.
    is_charged: bool,
    /// True if its usage has been returned.
    is_usage_taken: bool,
}

impl ReplyCache {
    pub(crate) fn open(path: &Path) -> Result<Self, ChatError> {
        let io = |action| move |source| ChatError::Io { action, path: path.to_owned(), source };
        std::fs::create_dir_all(path.parent().unwrap_or(path)).map_err(io("create"))?;
        let mut state = CacheState::default();
        let lines = JsonLines::open(path, |ReplyLine { key, reply }| {
            let cached = CachedReply { reply, is_charged: false, is_usage_taken: false };
            state.replies.insert(key, cached);
        })
        .map_err(io("open"))?;
        Ok(Self { lines, state: Mutex::new(state) })
    }

    /// Returns a cached reply. On its first use, a reply of an earlier job is charged.
    pub(crate) fn get(&self, key: &str) -> Option<EndpointReply> {
        let mut state = self.lock();
        let CacheState { replies, spending } = &mut *state;
        let cached = replies.get_mut(key)?;
        if !cached.is_charged {
            cached.is_charged = true;
            spending.cached.add(cached.reply.usage.unwrap_or_default());
        }
        Some(cached.reply.clone())
    }

    /// Returns the usage of a cached reply on the first call, and zero on every later one.
    pub(crate) fn take_usage(&self, key: &str) -> Usage {
        let mut state = self.lock();
        match state.replies.get_mut(key) {
            Some(cached) if !cached.is_usage_taken => {
                cached.is_usage_taken = true;
                cached.reply.usage.unwrap_or_default()
            }
            _ => Usage::default(),
        }
    }

    /// Adds a reply that the endpoint has just sent.
    pub(crate) fn insert(&self, key: String, reply: EndpointReply) -> Result<(), ChatError> {
        let line = ReplyLine { key, reply };
        self.lines.append(&line).map_err(|source| ChatError::Io {
            action: "append to",
            path: self.lines.path().to_owned(),
            source,
        })?;
        let mut state = self.lock();
        state.spending.requested.add(line.reply.usage.unwrap_or_default());
        let cached = CachedReply { reply: line.reply, is_charged: true, is_usage_taken: false };
        state.replies.insert(line.key, cached);
        Ok(())
    }

    pub(crate) fn add_prior_usage(&self, usage: Usage) {
        let cached = &mut self.lock().spending.cached;
        cached.prompt_tokens = cached.prompt_tokens.saturating_add(usage.prompt_tokens);
        cached.completion_tokens = cached.completion_tokens.saturating_add(usage.completion_tokens);
    }

    pub(crate) fn spending(&self) -> Spending {
        self.lock().spending
    }

    fn lock(&self) -> MutexGuard<'_, CacheState> {
        // A poisoned lock is harmless: no code under it panics halfway through a change.
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Returns the hash of everything that decides a reply: address, request and number of the attempt.
pub(crate) fn key(url: &str, request: &CompletionRequest<'_>, attempt: u32) -> String {
    let request = serde_json::to_string(&(url, request, attempt)).expect("a request is plain JSON");
    blake3::hash(request.as_bytes()).to_hex().to_string()
}
