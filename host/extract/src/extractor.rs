//! The extractor: sentences in, replies and triplets out.

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use corver_core::triplet::triplets_from_reply;
use corver_core::{PartError, Triplet};

use crate::folder::{self, Options};
use crate::worker::{Answer, QUEUE, Request, Stats, Worker};
use crate::{Device, ExtractError, Result, RuntimeLibrary};

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
        self.replies_to_all(&mut std::iter::once(
            sentences.iter().map(|&sentence| sentence.to_owned()).collect(),
        ))
    }

    fn replies_to_all(
        &self,
        sentences: &mut dyn Iterator<Item = Vec<String>>,
    ) -> Result<Vec<Arc<str>>> {
        let mut stream = self.stream();
        let mut asked = 0;
        for sentence in sentences.flatten() {
            stream.submit(asked, &sentence)?;
            asked += 1;
        }
        let mut replies = vec![Arc::from(""); asked];
        while let Some((id, reply)) = stream.answer()? {
            replies[id] = reply;
        }
        Ok(replies)
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
    fn extract(&mut self, sentences: &[&str]) -> std::result::Result<Vec<Vec<Triplet>>, PartError> {
        Ok(self.replies(sentences)?.iter().map(|reply| triplets_from_reply(reply)).collect())
    }

    fn extract_as_they_come(
        &mut self,
        sentences: &mut dyn Iterator<Item = Vec<String>>,
    ) -> std::result::Result<Vec<Vec<Triplet>>, PartError> {
        Ok(self.replies_to_all(sentences)?.iter().map(|reply| triplets_from_reply(reply)).collect())
    }
}
