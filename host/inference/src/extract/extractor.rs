//! The extractor: sentences in, replies and triplets out.

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use corver_core::triplet::triplets_from_reply;
use corver_core::{BoxError, ExtractionBatch, Triplet};

use crate::extract::folder::{self, Options};
use crate::extract::worker::{Answer, QUEUE, Request, Stats, Worker};
use crate::extract::{Device, ExtractError, Result, RuntimeLibrary};

/// Sentences remembered, twice: some megabytes.
const MEMORY: usize = 16_384;

/// A triplet model, ready to run in a thread of its own. Decoding is greedy.
///
/// A reply does not depend on the sentences that are decoded beside it, but for rounding: batches
/// of different sizes add in different orders, which could only ever decide between two tokens that
/// are equally likely.
#[derive(Debug)]
pub struct Extractor {
    /// `None` only while it is dropped: the thread ends when nobody can ask any more.
    requests: Option<SyncSender<Request>>,
    thread: Option<JoinHandle<()>>,
    stats: Arc<Mutex<Stats>>,
}

impl Extractor {
    /// Opens an extractor's folder and runs the prompt that stands before every sentence.
    ///
    /// # Errors
    /// A folder that is incomplete or does not fit together, a device that is not there, a library
    /// that does not load.
    pub fn open(
        folder: &Path,
        options: Options,
        device: Device,
        runtime: &RuntimeLibrary,
    ) -> Result<Self> {
        let opened = folder::open(folder, options, device, runtime)?;
        let (requests, received) = sync_channel(QUEUE);
        let stats = Arc::default();
        let worker = Worker::new(opened, received, MEMORY, Arc::clone(&stats));
        let thread =
            std::thread::Builder::new().name("extractor".to_owned()).spawn(move || worker.run());
        let thread = thread.map_err(|source| ExtractError::Thread { source })?;
        Ok(Self { requests: Some(requests), thread: Some(thread), stats })
    }

    /// A way to ask. Several may ask at once: their sentences are decoded together.
    #[must_use]
    pub fn stream(&self) -> Stream {
        let (to, answers) = channel();
        let requests = self.requests.clone().expect("it is there until the extractor is dropped");
        Stream { requests, to, answers, asker: Arc::new(()), under_way: 0 }
    }

    /// The model's replies as they are, one per sentence. The reply to a sentence that is too long
    /// is empty.
    ///
    /// # Errors
    /// Where the tokenizer or the graph fails.
    pub fn replies(&self, sentences: &[&str]) -> Result<Vec<Arc<str>>> {
        let mut stream = self.stream();
        for (id, sentence) in sentences.iter().enumerate() {
            stream.submit(id, sentence)?;
        }
        stream.finish(sentences.len())
    }

    /// What was done so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        *self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Extractor {
    fn drop(&mut self) {
        drop(self.requests.take());
        if let Some(thread) = self.thread.take() {
            // It hands on its own panics.
            let _ = thread.join();
        }
    }
}

/// Sentences that go in one by one, and replies that come out in any order. What is under way when
/// it is dropped is given up.
#[derive(Debug)]
pub struct Stream {
    requests: SyncSender<Request>,
    to: Sender<(usize, Answer)>,
    answers: Receiver<(usize, Answer)>,
    asker: Arc<()>,
    under_way: usize,
}

impl Stream {
    /// Asks for a sentence, which the caller calls `id`. Waits while too many others wait.
    ///
    /// # Errors
    /// Where the extractor has ended.
    pub fn submit(&mut self, id: usize, sentence: &str) -> Result<()> {
        let asker = Arc::downgrade(&self.asker);
        let request = Request { sentence: sentence.into(), id, to: self.to.clone(), asker };
        self.requests.send(request).map_err(|_| ExtractError::Panicked)?;
        self.under_way += 1;
        Ok(())
    }

    /// Asks for a sentence as [`Self::submit`] does, but returns false if it would have to wait or
    /// the extractor has ended.
    fn try_submit(&mut self, id: usize, sentence: &str) -> bool {
        let asker = Arc::downgrade(&self.asker);
        let request = Request { sentence: sentence.into(), id, to: self.to.clone(), asker };
        let is_sent = self.requests.try_send(request).is_ok();
        self.under_way += usize::from(is_sent);
        is_sent
    }

    /// Returns the replies to the sentences `0..sentences`, all of which were submitted.
    fn finish(mut self, sentences: usize) -> Result<Vec<Arc<str>>> {
        let mut replies = vec![Arc::from(""); sentences];
        while let Some((id, reply)) = self.answer()? {
            replies[id] = reply;
        }
        Ok(replies)
    }

    /// The next reply, whichever it is, with its sentence's `id`; `None` where nothing is under
    /// way.
    ///
    /// # Errors
    /// Where the tokenizer or the graph failed: then the extractor answers nothing any more.
    pub fn answer(&mut self) -> Result<Option<(usize, Arc<str>)>> {
        if self.under_way == 0 {
            return Ok(None);
        }
        let (id, answer) = self.answers.recv().expect("this stream has a sender too");
        self.under_way -= 1;
        Ok(Some((id, answer?)))
    }
}

impl corver_core::Extractor for Extractor {
    fn extract(&mut self, sentences: &[&str]) -> std::result::Result<Vec<Vec<Triplet>>, BoxError> {
        Ok(self.replies(sentences)?.iter().map(|reply| triplets_from_reply(reply)).collect())
    }

    fn start(&mut self) -> Box<dyn ExtractionBatch + '_> {
        Box::new(Batch { stream: self.stream(), sentences: Vec::new(), num_submitted: 0 })
    }
}

/// Sentences that are decoded while others are still pushed.
struct Batch {
    stream: Stream,
    sentences: Vec<String>,
    /// The first of the sentences that the extractor has.
    num_submitted: usize,
}

impl ExtractionBatch for Batch {
    fn push(&mut self, sentence: &str) {
        self.sentences.push(sentence.to_owned());
        while self.num_submitted < self.sentences.len() {
            let next = self.num_submitted;
            if !self.stream.try_submit(next, &self.sentences[next]) {
                break; // a later push or `finish` submits it
            }
            self.num_submitted += 1;
        }
    }

    fn finish(mut self: Box<Self>) -> std::result::Result<Vec<Vec<Triplet>>, BoxError> {
        for (id, sentence) in self.sentences.iter().enumerate().skip(self.num_submitted) {
            self.stream.submit(id, sentence)?;
        }
        let replies = self.stream.finish(self.sentences.len())?;
        Ok(replies.iter().map(|reply| triplets_from_reply(reply)).collect())
    }
}
