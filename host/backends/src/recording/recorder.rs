//! Recording: a backend that passes requests on and writes the replies to a file.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use corver_core::{
    Backends, BoxError, Capability, ChatModel, ChatPrompt, ChatReply, CorpusInfo, Count, Counter,
    Entailment, Exchange, Lookup, NliModel, NliPair, Passage, Query, Retriever, Search, Usage,
};
use serde::Serialize;

use crate::recording::RecordingError;
use crate::recording::line::{RecordedExchange, RecordedLine};
use crate::recording::replay::{RecordingHeader, read};
use crate::recording::replies::{Added, RecordedReplies, without_limit};

/// Returns backends that pass every request to `backends`, and write each reply once to a new
/// file. They grant the same capabilities.
///
/// # Errors
/// Fails if the file exists already or cannot be written.
pub fn record<'a>(path: &Path, backends: Backends<'a>) -> Result<Backends<'a>, RecordingError> {
    let file = File::create_new(path).map_err(|source| match source.kind() {
        ErrorKind::AlreadyExists => RecordingError::Exists { path: path.to_owned() },
        _ => RecordingError::io("write", path)(source),
    })?;
    let header = RecordingHeader { corpus: backends.info() };
    let mut recorder = Recorder::new(path, file, RecordedReplies::default(), backends);
    recorder.append([header])?;
    corver_files::sync_folder(corver_files::parent(path))
        .map_err(RecordingError::io("write", path))?;
    Ok(recorder.into_backends())
}

/// Does the same as [`record`] with the file of an earlier process. Replies that it has are not
/// written again.
///
/// # Errors
/// Fails if the file cannot be read or written.
pub fn resume<'a>(path: &Path, backends: Backends<'a>) -> Result<Backends<'a>, RecordingError> {
    let write = RecordingError::io("write", path);
    let file = File::options().append(true).open(path).map_err(&write)?;
    let complete = complete_lines(path).map_err(RecordingError::io("read", path))?;
    file.set_len(complete).map_err(write)?;
    let (_, replies) = read(path)?;
    let header = RecordingHeader { corpus: backends.info() };
    let mut recorder = Recorder::new(path, file, replies, backends);
    if complete == 0 {
        recorder.append([header])?;
    }
    Ok(recorder.into_backends())
}

/// Returns the number of bytes up to the last line end.
fn complete_lines(path: &Path) -> std::io::Result<u64> {
    let mut reader = BufReader::new(File::open(path)?);
    let mut bytes = 0;
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line)? > 0 {
        if line.ends_with(b"\n") {
            bytes += line.len() as u64;
        }
        line.clear();
    }
    Ok(bytes)
}

struct Recorder<'a> {
    inner: Backends<'a>,
    path: PathBuf,
    file: BufWriter<File>,
    replies: RecordedReplies,
}

impl<'a> Recorder<'a> {
    fn new(path: &Path, file: File, replies: RecordedReplies, inner: Backends<'a>) -> Self {
        Self { inner, path: path.to_owned(), file: BufWriter::new(file), replies }
    }

    fn into_backends(self) -> Backends<'a> {
        let has_nli = self.inner.grants(Capability::Nli);
        let has_chat = self.inner.grants(Capability::Chat);
        let has_passages = self.inner.grants(Capability::Passages);
        let info = self.inner.info();
        let shared = SharedRecorder { recorder: Arc::new(Mutex::new(self)), info };
        let mut backends = Backends::counting(shared.clone());
        if has_nli {
            backends = backends.with_nli(shared.clone());
        }
        if has_chat {
            backends = backends.with_chat(shared.clone());
        }
        if has_passages {
            backends = backends.with_passages(shared);
        }
        backends
    }

    /// Writes the lines whose requests are new.
    fn append_new(
        &mut self,
        lines: impl IntoIterator<Item = RecordedLine>,
    ) -> Result<(), RecordingError> {
        let mut new = Vec::new();
        for line in lines {
            if self.replies.add(&line) == Added::New {
                new.push(line);
            }
        }
        if new.is_empty() { Ok(()) } else { self.append(new) }
    }

    /// Appends lines and flushes them to disk: after a power cut, a run resumes from its checkpoint and
    /// does not repeat the requests of earlier steps.
    fn append<T: Serialize>(
        &mut self,
        lines: impl IntoIterator<Item = T>,
    ) -> Result<(), RecordingError> {
        write_lines(&mut self.file, lines).map_err(RecordingError::io("write", &self.path))?;
        self.file.get_ref().sync_data().map_err(RecordingError::io("write", &self.path))
    }
}

fn write_lines<T: Serialize>(
    file: &mut BufWriter<File>,
    lines: impl IntoIterator<Item = T>,
) -> std::io::Result<()> {
    for line in lines {
        serde_json::to_writer(&mut *file, &line)?;
        file.write_all(b"\n")?;
    }
    file.flush()
}

/// A recorder that the backends of all capabilities share.
#[derive(Clone)]
struct SharedRecorder<'a> {
    recorder: Arc<Mutex<Recorder<'a>>>,
    info: CorpusInfo,
}

impl<'a> SharedRecorder<'a> {
    fn lock(&self) -> MutexGuard<'_, Recorder<'a>> {
        // At worst, a panic has left a reply out of the file.
        self.recorder.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Counter for SharedRecorder<'_> {
    fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, BoxError> {
        let mut recorder = self.lock();
        let queries: Vec<Query> = queries.iter().map(without_limit).collect();
        let counts = recorder.inner.count(&queries)?;
        let mut lines = Vec::with_capacity(counts.len());
        for (query, &count) in queries.into_iter().zip(&counts) {
            lines.push(RecordedLine::Count(Lookup { query, count }));
        }
        recorder.append_new(lines)?;
        Ok(counts)
    }

    fn info(&self) -> CorpusInfo {
        self.info
    }
}

impl NliModel for SharedRecorder<'_> {
    fn entail(&mut self, pairs: &[NliPair]) -> Result<Vec<Entailment>, BoxError> {
        let mut recorder = self.lock();
        let mut entailments = recorder.inner.entail(pairs)?;
        let mut lines = Vec::with_capacity(entailments.len());
        for (pair, &answer) in pairs.iter().zip(&entailments) {
            lines.push(RecordedLine::exchange(Exchange::Nli { pair: pair.clone(), answer }));
        }
        recorder.append_new(lines)?;
        // Probabilities differ slightly from batch to batch. Return the recorded ones, so that the
        // rule gets the same reply as in a replay.
        for (pair, entailment) in pairs.iter().zip(&mut entailments) {
            if let Some(recorded) = recorder.replies.entailments.get(pair) {
                *entailment = *recorded;
            }
        }
        Ok(entailments)
    }
}

impl ChatModel for SharedRecorder<'_> {
    fn reply(&mut self, prompts: &[ChatPrompt]) -> Result<Vec<ChatReply>, BoxError> {
        let mut recorder = self.lock();
        let replies = recorder.inner.reply(prompts)?;
        let mut lines = Vec::with_capacity(replies.len());
        for (prompt, reply) in prompts.iter().zip(&replies) {
            let exchange = Exchange::Chat { prompt: prompt.clone(), reply: reply.content.clone() };
            let usage = reply.usage;
            lines.push(RecordedLine::Exchange(RecordedExchange { exchange, usage }));
        }
        recorder.append_new(lines)?;
        Ok(replies)
    }

    fn add_prior_usage(&mut self, usage: Usage) {
        self.lock().inner.add_prior_usage(usage);
    }
}

impl Retriever for SharedRecorder<'_> {
    fn passages(&mut self, searches: &[Search]) -> Result<Vec<Vec<Passage>>, BoxError> {
        let mut recorder = self.lock();
        let passages = recorder.inner.passages(searches)?;
        let mut lines = Vec::with_capacity(passages.len());
        for (search, found) in searches.iter().zip(&passages) {
            let exchange = Exchange::Passages { search: search.clone(), found: found.clone() };
            lines.push(RecordedLine::exchange(exchange));
        }
        recorder.append_new(lines)?;
        Ok(passages)
    }
}
