//! Replies kept on disk: nothing is paid for twice, and a run that was killed goes on where it was.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};

use corver_core::Usage;
use corver_http::JsonLines;
use serde::{Deserialize, Serialize};

use crate::chat::wire::Request;
use crate::chat::{ChatError, Spent};

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Line {
    key: String,
    #[serde(flatten)]
    said: Said,
}

/// A reply as the endpoint gave it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Said {
    pub(crate) content: String,
    /// `None` where the endpoint does not count tokens.
    pub(crate) usage: Option<Usage>,
}

#[derive(Debug)]
pub(crate) struct Kept {
    lines: JsonLines,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    known: HashMap<String, Known>,
    spent: Spent,
}

#[derive(Debug)]
struct Known {
    said: Said,
    /// Whether it is part of `spent`. Replies of other jobs never are.
    is_counted: bool,
    /// Whether what it took was told.
    is_told: bool,
}

impl Kept {
    pub(crate) fn open(path: &Path) -> Result<Self, ChatError> {
        let failed = |action| move |source| ChatError::Io { action, path: path.to_owned(), source };
        std::fs::create_dir_all(path.parent().unwrap_or(path)).map_err(failed("create"))?;
        let mut state = State::default();
        let learn = |Line { key, said }: Line| {
            drop(state.known.insert(key, Known { said, is_counted: false, is_told: false }))
        };
        let lines = JsonLines::open(path, learn).map_err(failed("open"))?;
        Ok(Self { lines, state: Mutex::new(state) })
    }

    /// A known reply. One from before counts as spent from now on.
    pub(crate) fn get(&self, key: &str) -> Option<Said> {
        let mut state = self.lock();
        let State { known, spent } = &mut *state;
        let known = known.get_mut(key)?;
        if !std::mem::replace(&mut known.is_counted, true) {
            spent.before.add(known.said.usage.unwrap_or_default());
        }
        Some(known.said.clone())
    }

    /// What a known reply took: the first time that this is asked, and nothing later.
    pub(crate) fn usage_once(&self, key: &str) -> Usage {
        let mut state = self.lock();
        let Some(known) = state.known.get_mut(key) else { return Usage::default() };
        let is_told = std::mem::replace(&mut known.is_told, true);
        if is_told { Usage::default() } else { known.said.usage.unwrap_or_default() }
    }

    /// Keeps a reply that was just paid for.
    pub(crate) fn put(&self, key: String, said: Said) -> Result<(), ChatError> {
        let line = Line { key, said };
        let path = || self.lines.path().to_owned();
        self.lines.append(&line).map_err(|source| ChatError::Io {
            action: "append to",
            path: path(),
            source,
        })?;
        let mut state = self.lock();
        state.spent.now.add(line.said.usage.unwrap_or_default());
        state.known.insert(line.key, Known { said: line.said, is_counted: true, is_told: false });
        Ok(())
    }

    pub(crate) fn add_before(&self, usage: Usage) {
        let before = &mut self.lock().spent.before;
        before.prompt_tokens += usage.prompt_tokens;
        before.completion_tokens += usage.completion_tokens;
    }

    pub(crate) fn spent(&self) -> Spent {
        self.lock().spent
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) // nothing that may panic happens with it
    }
}

/// What a reply depends on: all of the request, where it goes, and how often it was asked before.
pub(crate) fn key(url: &str, request: &Request<'_>, attempt: u32) -> String {
    let request = serde_json::to_string(&(url, request, attempt)).expect("a request is plain JSON");
    blake3::hash(request.as_bytes()).to_hex().to_string()
}
