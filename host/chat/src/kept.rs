//! Replies kept on disk: nothing is paid for twice, and a run that was killed goes on where it was.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};

use corver_http::Lines;
use serde::{Deserialize, Serialize};

use crate::ChatError;
use crate::wire::{Request, Usage};

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Line {
    key: String,
    content: String,
    usage: Option<Usage>,
}

#[derive(Debug)]
pub(crate) struct Kept {
    lines: Lines,
    known: Mutex<HashMap<String, String>>,
}

impl Kept {
    pub(crate) fn open(path: &Path) -> Result<Self, ChatError> {
        let failed = |action| move |source| ChatError::Kept { action, path: path.to_owned(), source };
        std::fs::create_dir_all(path.parent().unwrap_or(path)).map_err(failed("create"))?;
        let mut known = HashMap::new();
        let lines =
            Lines::open(path, |line: Line| drop(known.insert(line.key, line.content))).map_err(failed("open"))?;
        Ok(Self { lines, known: Mutex::new(known) })
    }

    pub(crate) fn get(&self, key: &str) -> Option<String> {
        self.lock().get(key).cloned()
    }

    pub(crate) fn put(&self, key: String, content: &str, usage: Option<Usage>) -> Result<(), ChatError> {
        let line = Line { key, content: content.to_owned(), usage };
        let path = || self.lines.path().to_owned();
        self.lines.append(&line).map_err(|source| ChatError::Kept { action: "append to", path: path(), source })?;
        self.lock().insert(line.key, line.content);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.known.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) // replies are inserted whole
    }
}

/// What a reply depends on: all of the request, where it goes, and how often it was asked before.
pub(crate) fn key(url: &str, request: &Request<'_>, attempt: u32) -> String {
    let request = serde_json::to_string(&(url, request, attempt)).expect("a request is plain JSON");
    blake3::hash(request.as_bytes()).to_hex().to_string()
}
