//! The extractor: sentences in, replies and triplets out.

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use corver_core::reply;
use corver_core::{
    BoxError, Claim, Extracted, ExtractionBatch, Extractor, ExtractorInput, ReplyGrammar, Triplet,
};

use crate::extract::folder::{self, ExtractOptions};
use crate::extract::scheduler::{QUEUE, ReplyResult, Scheduler, SentenceRequest, Stats};
use crate::extract::{Device, ExtractError, Result, RuntimeLibrary};

/// Sentences per generation of the memo, which has two: some megabytes.
const MEMO_CAPACITY: usize = 16_384;

/// A triplet model that decodes greedily in its own thread.
///
/// A reply does not depend on the sentences that are decoded in the same batch, except for
/// rounding: sums are taken in another order, which can only decide between two tokens of equal
/// probability.
#[derive(Debug)]
pub struct OnnxExtractor {
    /// `None` only during the drop: the thread ends when all senders are gone.
    requests: Option<SyncSender<SentenceRequest>>,
    thread: Option<JoinHandle<()>>,
    stats: Arc<Mutex<Stats>>,
    grammar: ReplyGrammar,
}

impl OnnxExtractor {
    /// Opens an extractor's folder and computes the keys and values of the shared prompt.
    ///
    /// # Errors
    /// Fails if the folder is incomplete or inconsistent, the device does not exist, or the library
    /// cannot be loaded.
    pub fn open(
        folder: &Path,
        options: ExtractOptions,
        device: Device,
        runtime: &RuntimeLibrary,
    ) -> Result<Self> {
        let grammar = options.grammar;
        let model = folder::open(folder, options, device, runtime)?;
        let (sender, requests) = sync_channel(QUEUE);
        let stats = Arc::default();
        let scheduler = Scheduler::new(model, requests, MEMO_CAPACITY, Arc::clone(&stats));
        let thread = std::thread::Builder::new()
            .name("extractor".to_owned())
            .spawn(move || scheduler.run())
            .map_err(|error| {
                ExtractError::Thread(format!("failed to start the extractor's thread: {error}"))
            })?;
        Ok(Self { requests: Some(sender), thread: Some(thread), stats, grammar })
    }

    /// Returns a new client. The sentences of concurrent clients are decoded together.
    #[must_use]
    pub fn stream(&self) -> ReplyStream {
        let (sender, replies) = channel();
        let requests = self.requests.clone().expect("it exists until the extractor is dropped");
        ReplyStream { requests, sender, replies, client: Arc::new(()), in_flight: 0 }
    }

    /// Returns the model's reply to each sentence. The reply to a sentence that is too long is
    /// empty.
    ///
    /// # Errors
    /// Fails if the tokenizer or the graph fails.
    pub fn replies(&self, sentences: &[&str]) -> Result<Vec<Arc<str>>> {
        let mut stream = self.stream();
        for (id, sentence) in sentences.iter().enumerate() {
            stream.submit(id, sentence)?;
        }
        stream.finish(sentences.len())
    }

    /// Returns the claims of each sentence.
    ///
    /// # Errors
    /// Fails if the tokenizer or the graph fails.
    pub fn claims(&self, sentences: &[&str]) -> Result<Vec<Vec<Claim>>> {
        let replies = self.replies(sentences)?;
        Ok(replies.iter().map(|reply| reply::read(reply, self.grammar).claims).collect())
    }

    /// Returns the triplets in a reply.
    #[must_use]
    pub fn triplets(&self, reply: &str) -> Vec<Triplet> {
        reply::read(reply, self.grammar).into_triplets()
    }

    /// Returns the totals so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        *self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OnnxExtractor {
    fn drop(&mut self) {
        drop(self.requests.take());
        if let Some(thread) = self.thread.take() {
            // The thread catches its own panics.
            let _ = thread.join();
        }
    }
}

/// A client of an extractor, which submits sentences one by one and receives replies in any order.
/// A drop cancels the sentences in flight.
#[derive(Debug)]
pub struct ReplyStream {
    requests: SyncSender<SentenceRequest>,
    sender: Sender<(usize, ReplyResult)>,
    replies: Receiver<(usize, ReplyResult)>,
    client: Arc<()>,
    in_flight: usize,
}

impl ReplyStream {
    /// Submits a sentence under a number of the caller's choice. Blocks while the queue is full.
    ///
    /// # Errors
    /// Fails if the extractor has ended.
    pub fn submit(&mut self, id: usize, sentence: &str) -> Result<()> {
        let request = self.request(id, sentence);
        self.requests.send(request).map_err(|_| ExtractError::panicked())?;
        self.in_flight += 1;
        Ok(())
    }

    /// Submits a sentence as [`Self::submit`] does. Returns `false` if the queue is full or the
    /// extractor has ended.
    fn try_submit(&mut self, id: usize, sentence: &str) -> bool {
        let request = self.request(id, sentence);
        let is_sent = self.requests.try_send(request).is_ok();
        self.in_flight += usize::from(is_sent);
        is_sent
    }

    fn request(&self, id: usize, sentence: &str) -> SentenceRequest {
        let client = Arc::downgrade(&self.client);
        SentenceRequest { sentence: sentence.into(), id, sender: self.sender.clone(), client }
    }

    /// Returns the replies to the sentences `0..sentences`, all of which were submitted.
    fn finish(mut self, sentences: usize) -> Result<Vec<Arc<str>>> {
        let mut replies = vec![Arc::from(""); sentences];
        while let Some((id, reply)) = self.next_reply()? {
            replies[id] = reply;
        }
        Ok(replies)
    }

    /// Waits for the next reply and returns it with its sentence's number. `None`: no sentence is
    /// in flight.
    ///
    /// # Errors
    /// Fails if the tokenizer or the graph failed. Every later request then fails too.
    pub fn next_reply(&mut self) -> Result<Option<(usize, Arc<str>)>> {
        if self.in_flight == 0 {
            return Ok(None);
        }
        let (id, reply) = self.replies.recv().expect("this stream has a sender too");
        self.in_flight -= 1;
        Ok(Some((id, reply?)))
    }
}

impl Extractor for OnnxExtractor {
    fn extract(
        &mut self,
        inputs: &[ExtractorInput<'_>],
    ) -> std::result::Result<Vec<Vec<Triplet>>, BoxError> {
        let sentences: Vec<&str> = inputs.iter().map(|input| input.sentence).collect();
        Ok(self.replies(&sentences)?.iter().map(|reply| self.triplets(reply)).collect())
    }

    fn start(&mut self) -> Box<dyn ExtractionBatch + '_> {
        Box::new(StreamedBatch {
            stream: self.stream(),
            grammar: self.grammar,
            sentences: Vec::new(),
            num_submitted: 0,
        })
    }
}

/// A batch whose first sentences are decoded while others are still pushed.
struct StreamedBatch {
    stream: ReplyStream,
    grammar: ReplyGrammar,
    sentences: Vec<String>,
    /// Number of sentences submitted so far.
    num_submitted: usize,
}

impl ExtractionBatch for StreamedBatch {
    fn push(&mut self, input: ExtractorInput<'_>) {
        self.sentences.push(input.sentence.to_owned());
        while self.num_submitted < self.sentences.len() {
            let next = self.num_submitted;
            if !self.stream.try_submit(next, &self.sentences[next]) {
                break; // a later push or `finish` submits it
            }
            self.num_submitted += 1;
        }
    }

    fn finish(mut self: Box<Self>) -> std::result::Result<Extracted, BoxError> {
        for (id, sentence) in self.sentences.iter().enumerate().skip(self.num_submitted) {
            self.stream.submit(id, sentence)?;
        }
        let replies = self.stream.finish(self.sentences.len())?;
        let mut extracted = Extracted::default();
        for reply in &replies {
            let reading = reply::read(reply, self.grammar);
            extracted.not_understood += usize::from(!reading.is_understood);
            extracted.triplets.push(reading.into_triplets());
        }
        Ok(extracted)
    }
}
