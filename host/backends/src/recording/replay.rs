//! Answering again.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use corver_core::{
    Backends, BoxError, ChatModel, ChatPrompt, ChatReply, CorpusSize, Count, Counter, Entailment,
    NliModel, NliPair, Passage, Query, Retriever, Search, Usage,
};
use serde::{Deserialize, Serialize};

use crate::recording::RecordingError;
use crate::recording::answers::{Added, Answers, in_full, key};
use crate::recording::line::{Asked, Line};

/// The first line of a recording.
#[derive(Serialize, Deserialize)]
pub(crate) struct Header {
    pub(crate) corpus: CorpusSize,
}

/// Answers from a recording, and from nothing else. What a reply took is told as it was when it was
/// recorded, once, so that a replayed run costs what the run did.
#[derive(Debug, Clone)]
pub struct Recording {
    path: PathBuf,
    size: CorpusSize,
    answers: Arc<Answers>,
    /// Prompts whose usage was told.
    told: HashSet<String>,
}

impl Recording {
    /// Reads a recording.
    ///
    /// # Errors
    /// Where the file cannot be read, a line is no question with its answer, or two lines
    /// contradict each other.
    pub fn open(path: &Path) -> Result<Self, RecordingError> {
        let (size, answers) = read(path)?;
        Ok(Self { path: path.to_owned(), size, answers: Arc::new(answers), told: HashSet::new() })
    }

    /// Answers questions of every kind; one that it does not hold is an error.
    #[must_use]
    pub fn backends(self) -> Backends<'static> {
        Backends::counting(self.clone())
            .with_nli(self.clone())
            .with_chat(self.clone())
            .with_passages(self)
    }

    fn not_held(&self, asked: &Asked<'_>) -> BoxError {
        RecordingError::InvalidRecording(format!(
            "the recording {} does not hold {asked}: record it with --record, where it can be \
             answered",
            self.path.display()
        ))
        .into()
    }
}

/// The corpus's size, and every answer. A last line that is torn is left out.
pub(crate) fn read(path: &Path) -> Result<(CorpusSize, Answers), RecordingError> {
    let failed = RecordingError::io("read", path);
    let mut reader = BufReader::new(File::open(path).map_err(&failed)?);
    let (mut size, mut answers) = (CorpusSize::default(), Answers::default());
    let mut text = Vec::new();
    for number in 1.. {
        text.clear();
        if reader.read_until(b'\n', &mut text).map_err(&failed)? == 0 {
            break;
        }
        if number == 1
            && let Ok(header) = serde_json::from_slice::<Header>(&text)
        {
            size = header.corpus;
            continue;
        }
        let line = match Line::parse(&text) {
            Ok(line) => line,
            Err(error) if error.is_eof() && !text.ends_with(b"\n") => {
                tracing::warn!(path = %path.display(), line = number, "the recording's last line is torn, and left out");
                break;
            }
            Err(error) => {
                return Err(RecordingError::InvalidRecording(format!(
                    "{}:{number}: {error}; a line is {{\"query\": {{\"all_of\": [[WORD, …], \
                     …]}}, \"occurrences\", \"exact\"}}, or has a \"kind\": nli, chat or \
                     passages",
                    path.display()
                )));
            }
        };
        if answers.add(&line) == Added::Different {
            return Err(RecordingError::InvalidRecording(format!(
                "{}:{number}: {} was answered differently before",
                path.display(),
                line.question()
            )));
        }
    }
    Ok((size, answers))
}

impl Counter for Recording {
    fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, BoxError> {
        let held = |query: &Query| self.answers.counts.get(&in_full(query)).copied();
        queries
            .iter()
            .map(|query| held(query).ok_or_else(|| self.not_held(&Asked::Query(query))))
            .collect()
    }

    fn size(&self) -> CorpusSize {
        self.size
    }
}

impl NliModel for Recording {
    fn entail(&mut self, pairs: &[NliPair]) -> Result<Vec<Entailment>, BoxError> {
        let held = |pair: &NliPair| self.answers.entailments.get(pair).copied();
        pairs
            .iter()
            .map(|pair| held(pair).ok_or_else(|| self.not_held(&Asked::Pair(pair))))
            .collect()
    }
}

impl ChatModel for Recording {
    fn reply(&mut self, prompts: &[ChatPrompt]) -> Result<Vec<ChatReply>, BoxError> {
        let mut replies = Vec::with_capacity(prompts.len());
        for prompt in prompts {
            let key = key(prompt);
            let held = self.answers.replies.get(&key);
            let mut reply = held.cloned().ok_or_else(|| self.not_held(&Asked::Prompt(prompt)))?;
            if !self.told.insert(key) {
                reply.usage = Usage::default();
            }
            replies.push(reply);
        }
        Ok(replies)
    }
}

impl Retriever for Recording {
    fn passages(&mut self, searches: &[Search]) -> Result<Vec<Vec<Passage>>, BoxError> {
        let held = |search: &Search| self.answers.passages.get(search).cloned();
        searches
            .iter()
            .map(|search| held(search).ok_or_else(|| self.not_held(&Asked::Search(search))))
            .collect()
    }
}
