//! The thread that decodes, with continuous batching: requests are admitted to rows while others
//! are being decoded, and a row whose reply has ended makes room for the next sentence.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use corver_core::reply;
use corver_core::text::excerpt;

use crate::extract::folder::LoadedExtractor;
use crate::extract::memo::ReplyMemo;
use crate::extract::{ExtractError, Result};

/// A reply, or the reason why there is none.
pub(crate) type ReplyResult = Result<Arc<str>>;

/// A request for the reply to a sentence.
pub(crate) struct SentenceRequest {
    pub(crate) sentence: Arc<str>,
    /// The client's own number of the sentence.
    pub(crate) id: usize,
    pub(crate) sender: Sender<(usize, ReplyResult)>,
    /// Expires when the client no longer waits.
    pub(crate) client: Weak<()>,
}

/// Totals of an extractor since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Stats {
    /// Number of sentences requested.
    pub sentences: usize,
    /// Number of requests that needed no decoding of their own: the reply was remembered, or the
    /// sentence was being decoded.
    pub hits: usize,
    /// Number of sentences decoded to their end.
    pub decoded: usize,
    /// Number of decoded sentences whose reply was not understood.
    pub not_understood: usize,
    /// Tokens of the decoded replies.
    pub tokens: usize,
    /// Largest number of rows decoded together.
    pub rows: usize,
    /// Time spent decoding, in wall-clock time.
    pub busy: Duration,
}

/// Most sentences that wait for a row; clients with more wait too.
pub(crate) const QUEUE: usize = 1024;

/// Number of first replies that are not understood after which a wrong prompt is suspected.
const PROBATION: usize = 32;

/// A sentence to be decoded, once for all its requests.
struct DecodeJob {
    sentence: Arc<str>,
    /// Token ids after the shared prompt.
    ids: Vec<u32>,
}

/// A sentence that is being decoded, with its reply so far.
struct ActiveRow {
    job: DecodeJob,
    reply: Vec<u32>,
}

/// The scheduler of the decoding thread.
pub(crate) struct Scheduler {
    model: LoadedExtractor,
    requests: Receiver<SentenceRequest>,
    stats: Arc<Mutex<Stats>>,
    memo: ReplyMemo,
    /// Requests by their sentence, for sentences that are queued or being decoded.
    pending: HashMap<Arc<str>, Vec<SentenceRequest>>,
    queue: VecDeque<DecodeJob>,
    /// Rows in the order of the decoder.
    rows: Vec<ActiveRow>,
    /// Most rows decoded together.
    max_rows: usize,
    /// By token id, true if the token contains a `]`.
    has_bracket: Vec<bool>,
    /// Number of replies so far, while none was understood. `None` after the first that was, or the
    /// warning.
    not_understood_so_far: Option<usize>,
}

impl Scheduler {
    pub(crate) fn new(
        model: LoadedExtractor,
        requests: Receiver<SentenceRequest>,
        memo_capacity: usize,
        stats: Arc<Mutex<Stats>>,
    ) -> Self {
        let tokenizer = model.prompt.tokenizer();
        let num_ids = tokenizer.get_vocab(true).into_values().max().map_or(0, |id| id + 1);
        let mut has_bracket = Vec::with_capacity(num_ids as usize);
        for id in 0..num_ids {
            has_bracket.push(tokenizer.id_to_token(id).is_some_and(|token| token.contains(']')));
        }
        Self {
            has_bracket,
            max_rows: model.limits.batch_size,
            model,
            requests,
            stats,
            memo: ReplyMemo::new(memo_capacity),
            pending: HashMap::new(),
            queue: VecDeque::new(),
            rows: Vec::new(),
            not_understood_so_far: Some(0),
        }
    }

    /// Decodes until all clients are gone. After a failure, every request gets its error.
    pub(crate) fn run(mut self) {
        let cause = match catch_unwind(AssertUnwindSafe(|| self.serve())) {
            Ok(Ok(())) => return,
            Ok(Err(error)) => Arc::new(error),
            Err(_) => Arc::new(ExtractError::panicked()),
        };
        let pending = self.pending.into_values().flatten();
        for request in pending.chain(self.requests) {
            respond(&request, Err(ExtractError::Stopped(cause.clone())));
        }
    }

    fn serve(&mut self) -> Result<()> {
        while self.poll_requests() {
            let start = Instant::now();
            self.schedule()?;
            self.update_stats(|stats| stats.busy += start.elapsed());
        }
        self.update_stats(|stats| {
            let &mut Stats { sentences, hits, decoded, not_understood, tokens, rows, busy } = stats;
            tracing::info!(
                sentences,
                hits,
                decoded,
                not_understood,
                tokens,
                rows,
                ?busy,
                "closed the extractor"
            );
            if not_understood > 0 {
                tracing::warn!(
                    "{not_understood} of {decoded} replies of the extractor were not understood; \
                     their sentences have no triplets"
                );
            }
        });
        Ok(())
    }

    /// Admits queued sentences if enough rows are free, and decodes one token of all rows
    /// otherwise.
    fn schedule(&mut self) -> Result<()> {
        let free = self.max_rows.saturating_sub(self.rows.len());
        // Admission costs a run of its own, in which the other rows stand still. A quarter of the
        // rows at a time repays that.
        let can_admit = self.rows.is_empty()
            || (self.model.decoder.admits_while_active() && free * 4 >= self.max_rows);
        if can_admit && !self.queue.is_empty() {
            self.admit(free)
        } else if !self.rows.is_empty() {
            self.step()
        } else {
            Ok(())
        }
    }

    /// Receives the pending requests, and blocks only if there is nothing to decode. Returns
    /// `false` once all clients are gone and the queue is empty.
    fn poll_requests(&mut self) -> bool {
        let mut jobs = Vec::new();
        if self.rows.is_empty() && self.queue.is_empty() {
            match self.requests.recv() {
                Ok(request) => jobs.extend(self.accept(request)),
                Err(_) => return false,
            }
        }
        while self.queue.len() + jobs.len() < QUEUE {
            let Ok(request) = self.requests.try_recv() else { break };
            jobs.extend(self.accept(request));
        }
        self.enqueue(jobs);
        true
    }

    /// Answers a request from memory, attaches it to a pending sentence, or returns the job that it
    /// needs.
    fn accept(&mut self, request: SentenceRequest) -> Option<DecodeJob> {
        self.update_stats(|stats| stats.sentences += 1);
        if let Some(reply) = self.memo.get(&request.sentence) {
            respond(&request, Ok(reply.clone()));
            self.update_stats(|stats| stats.hits += 1);
            return None;
        }
        if let Some(requests) = self.pending.get_mut(&request.sentence) {
            requests.push(request);
            self.update_stats(|stats| stats.hits += 1);
            return None;
        }
        let sentence = request.sentence.clone();
        let limit = self.model.limits.max_sentence_tokens;
        match self.model.prompt.encode(&sentence) {
            Ok(Some(ids)) if ids.len() <= limit && !ids.is_empty() => {
                self.pending.insert(sentence.clone(), vec![request]);
                Some(DecodeJob { sentence, ids })
            }
            Ok(_) => {
                tracing::warn!(
                    limit,
                    sentence = excerpt(&sentence),
                    "skipped a sentence that has too many tokens, has none, or merges with the \
                     prompt"
                );
                respond(&request, Ok("".into()));
                None
            }
            Err(error) => {
                respond(&request, Err(error));
                None
            }
        }
    }

    /// Adds jobs to the queue, and drops queued ones for which no client waits.
    fn enqueue(&mut self, mut jobs: Vec<DecodeJob>) {
        // Rows that are admitted together are padded to the longest, so similar lengths go together.
        jobs.sort_by_key(|job| job.ids.len());
        self.queue.extend(jobs);
        let pending = &mut self.pending;
        self.queue.retain(|job| is_wanted(pending, &job.sentence));
    }

    /// Moves up to `free` jobs from the queue to rows, and decodes their first token.
    fn admit(&mut self, free: usize) -> Result<()> {
        let jobs: Vec<DecodeJob> = self.queue.drain(..free.min(self.queue.len())).collect();
        let ids: Vec<&[u32]> = jobs.iter().map(|job| job.ids.as_slice()).collect();
        let decoded = self.model.decoder.admit(&ids);
        let first = self.rows.len();
        for job in jobs {
            self.rows.push(ActiveRow { job, reply: Vec::new() });
        }
        self.update_stats(|stats| stats.rows = stats.rows.max(self.rows.len()));
        match decoded {
            Ok(tokens) => self.append_tokens(first, &tokens),
            Err(error) => self.retry_with_smaller_batch(error),
        }
    }

    /// Decodes one token of every row.
    fn step(&mut self) -> Result<()> {
        let tokens: Vec<u32> =
            self.rows.iter().filter_map(|row| row.reply.last().copied()).collect();
        match self.model.decoder.step(&tokens) {
            Ok(tokens) => self.append_tokens(0, &tokens),
            Err(error) => self.retry_with_smaller_batch(error),
        }
    }

    /// Appends a token to every row from `first` on, and removes the rows whose reply has ended or
    /// for which no client waits.
    fn append_tokens(&mut self, first: usize, tokens: &[u32]) -> Result<()> {
        let mut live = Vec::with_capacity(self.rows.len());
        let mut finished = Vec::new();
        for (index, row) in self.rows.iter_mut().enumerate() {
            let has_ended = match index.checked_sub(first) {
                None => false,
                Some(new) => self.model.append(row, tokens[new], &self.has_bracket)?,
            };
            if !has_ended && is_wanted(&mut self.pending, &row.job.sentence) {
                live.push(index);
            } else {
                finished.push(index);
            }
        }
        if finished.is_empty() {
            return Ok(());
        }
        self.model.decoder.retain(&live)?;
        for index in finished.into_iter().rev() {
            let row = self.rows.remove(index);
            // Absent if the row was dropped because no client waits.
            if let Some(requests) = self.pending.remove(&row.job.sentence) {
                self.finish(&row, &requests)?;
            }
        }
        Ok(())
    }

    /// Sends a finished reply to all clients that wait for it, and remembers it.
    fn finish(&mut self, row: &ActiveRow, requests: &[SentenceRequest]) -> Result<()> {
        let reply: Arc<str> = self.model.prompt.decode(&row.reply)?.into();
        self.update_stats(|stats| {
            stats.decoded += 1;
            stats.tokens += row.reply.len();
        });
        self.check_reading(&reply);
        for request in requests {
            respond(request, Ok(reply.clone()));
        }
        self.memo.insert(row.job.sentence.clone(), reply);
        Ok(())
    }

    /// Counts a reply that is not understood, and warns of the first one, or if none of the first
    /// replies is.
    fn check_reading(&mut self, reply: &str) {
        if reply::read(reply, self.model.grammar).is_understood {
            self.not_understood_so_far = None;
            return;
        }
        let mut is_first = false;
        self.update_stats(|stats| {
            stats.not_understood += 1;
            is_first = stats.not_understood == 1;
        });
        let start = excerpt(reply);
        if is_first {
            tracing::warn!(
                reply = start,
                "a reply of the extractor is not understood, and its sentence has no triplets; \
                 `corver-host extract --raw` shows replies"
            );
        }
        let Some(earlier) = self.not_understood_so_far else { return };
        self.not_understood_so_far = Some(earlier + 1);
        if earlier + 1 == PROBATION {
            self.not_understood_so_far = None;
            tracing::warn!(
                reply = start,
                "none of the first {PROBATION} replies of the extractor is understood: its prompt \
                 may be wrong"
            );
        }
    }

    /// Preempts all rows after an error. If memory was short, they are queued again, to be decoded
    /// from their beginning in half as many rows; any other error is returned.
    fn retry_with_smaller_batch(&mut self, error: ExtractError) -> Result<()> {
        if !matches!(error, ExtractError::OutOfMemory { .. }) || self.rows.len() < 2 {
            return Err(error);
        }
        self.max_rows = self.rows.len() / 2;
        tracing::warn!(
            %error,
            rows = self.max_rows,
            "memory is short: the extractor continues with fewer rows"
        );
        self.model.decoder.retain(&[])?;
        for row in self.rows.drain(..).rev() {
            self.queue.push_front(row.job);
        }
        Ok(())
    }

    fn update_stats(&self, update: impl FnOnce(&mut Stats)) {
        update(&mut self.stats.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl LoadedExtractor {
    /// Appends a token to a reply, and returns true if the reply ends with it or before it.
    fn append(&self, row: &mut ActiveRow, token: u32, has_bracket: &[bool]) -> Result<bool> {
        if self.stop.contains(&token) {
            return Ok(true);
        }
        let ActiveRow { job, reply } = row;
        reply.push(token);
        let longest = self.limits.max_new_tokens.min(self.limits.max_own_tokens - job.ids.len());
        // Decoding the reply after every token would be quadratic: only a `]` can close a list.
        let may_close = has_bracket.get(token as usize).is_some_and(|has_bracket| *has_bracket);
        Ok(reply.len() == longest || (may_close && self.is_complete(reply)?))
    }

    fn is_complete(&self, reply: &[u32]) -> Result<bool> {
        Ok(reply::is_complete(&self.prompt.decode(reply)?, self.grammar))
    }
}

/// True if a client still waits for a sentence. Removes its requests otherwise.
fn is_wanted(pending: &mut HashMap<Arc<str>, Vec<SentenceRequest>>, sentence: &Arc<str>) -> bool {
    let is_wanted = pending
        .get(sentence)
        .is_some_and(|requests| requests.iter().any(|request| request.client.strong_count() > 0));
    if !is_wanted {
        pending.remove(sentence);
    }
    is_wanted
}

fn respond(request: &SentenceRequest, reply: ReplyResult) {
    // The client may have dropped its receiver; that is fine.
    let _ = request.sender.send((request.id, reply));
}
