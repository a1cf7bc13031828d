//! Writing down.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use corver_core::{
    Backends, BoxError, Capability, ChatModel, ChatPrompt, ChatReply, CorpusSize, Count, Counter,
    Entailment, Exchange, Lookup, NliModel, NliPair, Passage, Query, Retriever, Search, Usage,
};
use serde::Serialize;

use crate::recording::RecordingError;
use crate::recording::answers::{Added, Answers, in_full};
use crate::recording::line::{Exchanged, Line};
use crate::recording::replay::{Header, read};

/// Passes every question on, and writes each answer down once, in a new file. The same is granted
/// as before.
///
/// # Errors
/// Where the file exists already or cannot be written.
pub fn record<'a>(path: &Path, backends: Backends<'a>) -> Result<Backends<'a>, RecordingError> {
    let file = File::create_new(path).map_err(|source| match source.kind() {
        ErrorKind::AlreadyExists => RecordingError::Exists { path: path.to_owned() },
        _ => RecordingError::io("write", path)(source),
    })?;
    let header = Header { corpus: backends.size() };
    let mut recorder = Recorder::new(path, file, Answers::default(), backends);
    recorder.append([header])?;
    Ok(recorder.into_verifiers())
}

/// The same in a file that an earlier process began. What it holds already is not written again.
///
/// # Errors
/// Where the file cannot be read or written.
pub fn go_on<'a>(path: &Path, backends: Backends<'a>) -> Result<Backends<'a>, RecordingError> {
    let write = RecordingError::io("write", path);
    let file = File::options().append(true).open(path).map_err(&write)?;
    let whole = whole_lines(path).map_err(RecordingError::io("read", path))?;
    file.set_len(whole).map_err(write)?;
    let (_, answers) = read(path)?;
    let header = Header { corpus: backends.size() };
    let mut recorder = Recorder::new(path, file, answers, backends);
    if whole == 0 {
        recorder.append([header])?;
    }
    Ok(recorder.into_verifiers())
}

/// Bytes of the lines that have an end.
fn whole_lines(path: &Path) -> std::io::Result<u64> {
    let mut reader = BufReader::new(File::open(path)?);
    let (mut whole, mut line) = (0, Vec::new());
    while reader.read_until(b'\n', &mut line)? > 0 {
        if line.ends_with(b"\n") {
            whole += line.len() as u64;
        }
        line.clear();
    }
    Ok(whole)
}

struct Recorder<'a> {
    inner: Backends<'a>,
    path: PathBuf,
    file: BufWriter<File>,
    answers: Answers,
}

impl<'a> Recorder<'a> {
    fn new(path: &Path, file: File, answers: Answers, inner: Backends<'a>) -> Self {
        Self { inner, path: path.to_owned(), file: BufWriter::new(file), answers }
    }

    fn into_verifiers(self) -> Backends<'a> {
        let grants = [Capability::Nli, Capability::Chat, Capability::Passages]
            .map(|verifier| self.inner.grants(verifier));
        let size = self.inner.size();
        let shared = Shared { recorder: Arc::new(Mutex::new(self)), size };
        let mut backends = Backends::counting(shared.clone());
        if grants[0] {
            backends = backends.with_nli(shared.clone());
        }
        if grants[1] {
            backends = backends.with_chat(shared.clone());
        }
        if grants[2] {
            backends = backends.with_passages(shared);
        }
        backends
    }

    /// Writes what is new.
    fn keep(&mut self, lines: impl IntoIterator<Item = Line>) -> Result<(), RecordingError> {
        let new = lines
            .into_iter()
            .filter(|line| self.answers.add(line) == Added::New)
            .collect::<Vec<_>>();
        self.append(new)
    }

    fn append<T: Serialize>(
        &mut self,
        lines: impl IntoIterator<Item = T>,
    ) -> Result<(), RecordingError> {
        let write = || -> std::io::Result<()> {
            for line in lines {
                serde_json::to_writer(&mut self.file, &line)?;
                self.file.write_all(b"\n")?;
            }
            self.file.flush()
        };
        write().map_err(RecordingError::io("write", &self.path))
    }
}

/// One recorder for all kinds of questions.
#[derive(Clone)]
struct Shared<'a> {
    recorder: Arc<Mutex<Recorder<'a>>>,
    size: CorpusSize,
}

impl<'a> Shared<'a> {
    fn lock(&self) -> MutexGuard<'_, Recorder<'a>> {
        // A panic may have left an answer out of the file, and no more.
        self.recorder.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Counter for Shared<'_> {
    fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, BoxError> {
        let mut recorder = self.lock();
        let all: Vec<Query> = queries.iter().map(in_full).collect();
        let counts = recorder.inner.count(&all)?;
        recorder.keep(
            all.into_iter()
                .zip(&counts)
                .map(|(query, &count)| Line::Count(Lookup { query, count })),
        )?;
        Ok(counts)
    }

    fn size(&self) -> CorpusSize {
        self.size
    }
}

impl NliModel for Shared<'_> {
    fn entail(&mut self, pairs: &[NliPair]) -> Result<Vec<Entailment>, BoxError> {
        let mut recorder = self.lock();
        let answers = recorder.inner.entail(pairs)?;
        let line = |(pair, &answer): (&NliPair, &Entailment)| {
            Line::exchange(Exchange::Nli { pair: pair.clone(), answer })
        };
        recorder.keep(pairs.iter().zip(&answers).map(line))?;
        // Rounding may differ from batch to batch; the rule is given what a replay gives.
        let recorded =
            |(pair, answer)| recorder.answers.entailments.get(pair).copied().unwrap_or(answer);
        Ok(pairs.iter().zip(answers).map(recorded).collect())
    }
}

impl ChatModel for Shared<'_> {
    fn reply(&mut self, prompts: &[ChatPrompt]) -> Result<Vec<ChatReply>, BoxError> {
        let mut recorder = self.lock();
        let replies = recorder.inner.reply(prompts)?;
        let line = |(prompt, reply): (&ChatPrompt, &ChatReply)| {
            let exchange = Exchange::Chat { prompt: prompt.clone(), reply: reply.content.clone() };
            Line::Exchange(Exchanged { exchange, usage: reply.usage })
        };
        recorder.keep(prompts.iter().zip(&replies).map(line))?;
        Ok(replies)
    }

    fn add_prior_usage(&mut self, usage: Usage) {
        self.lock().inner.add_prior_usage(usage);
    }
}

impl Retriever for Shared<'_> {
    fn passages(&mut self, searches: &[Search]) -> Result<Vec<Vec<Passage>>, BoxError> {
        let mut recorder = self.lock();
        let found = recorder.inner.passages(searches)?;
        let line = |(search, passages): (&Search, &Vec<Passage>)| {
            Line::exchange(Exchange::Passages { search: search.clone(), found: passages.clone() })
        };
        recorder.keep(searches.iter().zip(&found).map(line))?;
        Ok(found)
    }
}
