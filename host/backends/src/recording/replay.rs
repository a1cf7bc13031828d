//! Replaying a recording, and reading its file.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use corver_core::{
    Backends, BoxError, ChatModel, ChatPrompt, ChatReply, CorpusInfo, Count, CountPrecision,
    Counter, Entailment, Lookup, NliModel, NliPair, Passage, Query, Retriever, Search, Usage,
};
use serde::{Deserialize, Serialize};

use crate::recording::RecordingError;
use crate::recording::line::{RecordedLine, ShownRequest};
use crate::recording::replies::{Added, RecordedReplies, key, without_limit};

/// The first line of a recording.
#[derive(Serialize, Deserialize)]
pub(crate) struct RecordingHeader {
    pub(crate) corpus: CorpusInfo,
}

/// A backend that answers from a recording alone.
///
/// The usage of a chat reply is returned once, as in the recorded run, so that a replay has the
/// same cost.
#[derive(Debug, Clone)]
pub struct Recording {
    path: PathBuf,
    info: CorpusInfo,
    replies: Arc<RecordedReplies>,
    /// Keys of the prompts whose usage has been returned.
    charged: HashSet<String>,
}

impl Recording {
    /// Reads a recording.
    ///
    /// # Errors
    /// Fails if the file cannot be read, a line is malformed or has a reply that no backend gives,
    /// or two lines contradict each other.
    pub fn open(path: &Path) -> Result<Self, RecordingError> {
        let (info, replies) = read(path)?;
        Ok(Self {
            path: path.to_owned(),
            info,
            replies: Arc::new(replies),
            charged: HashSet::new(),
        })
    }

    /// Creates a recording of the counts in the traces at `path`. A count that stopped at a query's
    /// limit serves smaller limits only.
    #[must_use]
    pub fn of_lookups(path: &Path, lookups: impl IntoIterator<Item = Lookup>) -> Self {
        let mut replies = RecordedReplies::default();
        for Lookup { query, count } in lookups {
            let known = replies.counts.entry(without_limit(&query)).or_insert(count);
            if known.precision == CountPrecision::AtLeast && known.occurrences <= count.occurrences
            {
                *known = count;
            }
        }
        Self {
            path: path.to_owned(),
            info: CorpusInfo::default(),
            replies: Arc::new(replies),
            charged: HashSet::new(),
        }
    }

    /// Returns the queries whose counts were recorded, without limits.
    pub fn queries(&self) -> impl Iterator<Item = &Query> {
        self.replies.counts.keys()
    }

    /// Returns backends for all capabilities. A request that was not recorded is an error.
    #[must_use]
    pub fn backends(self) -> Backends<'static> {
        Backends::counting(self.clone())
            .with_nli(self.clone())
            .with_chat(self.clone())
            .with_passages(self)
    }

    fn missing(&self, request: &ShownRequest<'_>) -> BoxError {
        RecordingError::InvalidRecording(format!(
            "the recording {} does not hold {request}: record it with --record, where it can be \
             answered",
            self.path.display()
        ))
        .into()
    }
}

/// Returns the description of the corpus and all replies. A truncated last line is ignored.
pub(crate) fn read(path: &Path) -> Result<(CorpusInfo, RecordedReplies), RecordingError> {
    let io = RecordingError::io("read", path);
    let mut reader = BufReader::new(File::open(path).map_err(&io)?);
    let mut info = CorpusInfo::default();
    let mut replies = RecordedReplies::default();
    let mut text = Vec::new();
    for number in 1.. {
        text.clear();
        if reader.read_until(b'\n', &mut text).map_err(&io)? == 0 {
            break;
        }
        if number == 1
            && let Ok(header) =
                serde_json::from_slice::<RecordingHeader>(corver_files::strip_bom(&text))
        {
            info = header.corpus;
            continue;
        }
        let line = match RecordedLine::parse(corver_files::strip_bom(&text)) {
            Ok(line) => line,
            Err(error) if error.is_eof() && !text.ends_with(b"\n") => {
                tracing::warn!(
                    path = %path.display(),
                    line = number,
                    "ignored the recording's truncated last line"
                );
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
        if let Some(problem) = line.find_problem() {
            return Err(RecordingError::InvalidRecording(format!(
                "{}:{number}: {problem}; record it again",
                path.display()
            )));
        }
        if replies.add(&line) == Added::Different {
            return Err(RecordingError::InvalidRecording(format!(
                "{}:{number}: {} was answered differently before",
                path.display(),
                line.request()
            )));
        }
    }
    Ok((info, replies))
}

/// Returns false if counting stopped before the limit of the query.
fn serves(count: &Count, query: &Query) -> bool {
    count.precision != CountPrecision::AtLeast
        || query.limit.is_some_and(|limit| count.occurrences.is_some_and(|found| found >= limit))
}

impl Counter for Recording {
    fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, BoxError> {
        let mut counts = Vec::with_capacity(queries.len());
        for query in queries {
            match self.replies.counts.get(&without_limit(query)) {
                Some(count) if serves(count, query) => counts.push(*count),
                _ => return Err(self.missing(&ShownRequest::Query(query))),
            }
        }
        Ok(counts)
    }

    fn info(&self) -> CorpusInfo {
        self.info
    }
}

impl NliModel for Recording {
    fn entail(&mut self, pairs: &[NliPair]) -> Result<Vec<Entailment>, BoxError> {
        let mut entailments = Vec::with_capacity(pairs.len());
        for pair in pairs {
            match self.replies.entailments.get(pair) {
                Some(entailment) => entailments.push(*entailment),
                None => return Err(self.missing(&ShownRequest::Pair(pair))),
            }
        }
        Ok(entailments)
    }
}

impl ChatModel for Recording {
    fn reply(&mut self, prompts: &[ChatPrompt]) -> Result<Vec<ChatReply>, BoxError> {
        let mut replies = Vec::with_capacity(prompts.len());
        for prompt in prompts {
            let key = key(prompt);
            let Some(recorded) = self.replies.chats.get(&key) else {
                return Err(self.missing(&ShownRequest::Prompt(prompt)));
            };
            let mut reply = recorded.clone();
            if !self.charged.insert(key) {
                reply.usage = Usage::default();
            }
            replies.push(reply);
        }
        Ok(replies)
    }
}

impl Retriever for Recording {
    fn passages(&mut self, searches: &[Search]) -> Result<Vec<Vec<Passage>>, BoxError> {
        let mut passages = Vec::with_capacity(searches.len());
        for search in searches {
            match self.replies.passages.get(search) {
                Some(found) => passages.push(found.clone()),
                None => return Err(self.missing(&ShownRequest::Search(search))),
            }
        }
        Ok(passages)
    }
}
