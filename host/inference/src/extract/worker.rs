//! The thread that decodes: sentences come in as they are found, rows leave as their replies end,
//! and others take their places.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use corver_core::triplet::closes_a_list;

use crate::extract::folder::Opened;
use crate::extract::memo::Memo;
use crate::extract::{ExtractError, Result};

/// A reply, or why there is none.
pub(crate) type Answer = Result<Arc<str>>;

/// A sentence that somebody waits for.
pub(crate) struct Request {
    pub(crate) sentence: Arc<str>,
    /// The asker's own number of it.
    pub(crate) id: usize,
    pub(crate) to: Sender<(usize, Answer)>,
    /// Gone once nobody waits any more.
    pub(crate) asker: Weak<()>,
}

/// What was done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Stats {
    /// Sentences asked for.
    pub sentences: usize,
    /// Of them, those that were remembered or already under way.
    pub hits: usize,
    /// Sentences decoded to their end.
    pub decoded: usize,
    /// Tokens of their replies.
    pub tokens: usize,
    /// Rows decoded together, at most.
    pub rows: usize,
    /// Time in which something was decoded.
    pub busy: Duration,
}

/// Sentences that wait for a row, at most; whoever brings more waits too.
pub(crate) const QUEUE: usize = 1024;

/// Replies that are watched for a list before a prompt without one is warned about.
const WATCHED: usize = 32;

/// A sentence that is not remembered, once however many ask for it.
struct Job {
    sentence: Arc<str>,
    /// Behind the prompt.
    ids: Vec<u32>,
}

struct Row {
    job: Job,
    reply: Vec<u32>,
}

/// The thread's own.
pub(crate) struct Worker {
    opened: Opened,
    requests: Receiver<Request>,
    stats: Arc<Mutex<Stats>>,
    memo: Memo,
    /// Who waits for a sentence that is under way.
    askers: HashMap<Arc<str>, Vec<Request>>,
    waiting: VecDeque<Job>,
    /// In the decoder's order.
    rows: Vec<Row>,
    /// Rows at once, at most.
    most: usize,
    /// Tokens with a `]` in them.
    brackets: Vec<bool>,
    /// Replies without a list, while there has been no other.
    without_list: Option<usize>,
}

impl Worker {
    pub(crate) fn new(
        opened: Opened,
        requests: Receiver<Request>,
        memory: usize,
        stats: Arc<Mutex<Stats>>,
    ) -> Self {
        let tokenizer = opened.prompt.tokenizer();
        let has_bracket = |id| tokenizer.id_to_token(id).is_some_and(|token| token.contains(']'));
        let ids = tokenizer.get_vocab(true).into_values().max().map_or(0, |id| id + 1);
        Self {
            brackets: (0..ids).map(has_bracket).collect(),
            most: opened.limits.batch_size,
            opened,
            requests,
            stats,
            memo: Memo::new(memory),
            askers: HashMap::new(),
            waiting: VecDeque::new(),
            rows: Vec::new(),
            without_list: Some(0),
        }
    }

    /// Works until nobody can ask any more. What it fails with is everybody's answer from then on.
    pub(crate) fn run(mut self) {
        let worked = catch_unwind(AssertUnwindSafe(|| self.work()));
        let cause = match worked {
            Ok(Ok(())) => return,
            Ok(Err(error)) => Arc::new(error),
            Err(_) => Arc::new(ExtractError::Panicked),
        };
        let left = self.askers.into_values().flatten();
        for request in left.chain(self.requests) {
            answer(&request, Err(ExtractError::Stopped(cause.clone())));
        }
    }

    fn work(&mut self) -> Result<()> {
        while self.listen() {
            let start = Instant::now();
            let free = self.most - self.rows.len().min(self.most);
            let may_enter =
                self.rows.is_empty() || (self.opened.decoder.takes_more() && free * 4 >= self.most);
            if may_enter && !self.waiting.is_empty() {
                self.enter(free)?;
            } else if !self.rows.is_empty() {
                self.step()?;
            }
            self.note(|stats| stats.busy += start.elapsed());
        }
        self.note(|Stats { sentences, hits, decoded, tokens, rows, busy }| {
            tracing::info!(sentences, hits, decoded, tokens, rows, ?busy, "what the extractor did");
        });
        Ok(())
    }

    /// Takes what is asked, waiting only where there is nothing to do; `false` once nobody can ask
    /// any more and all is answered.
    fn listen(&mut self) -> bool {
        let mut new = Vec::new();
        if self.rows.is_empty() && self.waiting.is_empty() {
            match self.requests.recv() {
                Ok(request) => new.extend(self.hear(request)),
                Err(_) => return false,
            }
        }
        while self.waiting.len() + new.len() < QUEUE {
            let Ok(request) = self.requests.try_recv() else { break };
            new.extend(self.hear(request));
        }
        // What is decoded together should be of one length.
        new.sort_by_key(|job| job.ids.len());
        self.waiting.extend(new);
        let askers = &mut self.askers;
        self.waiting.retain(|job| is_wanted(askers, &job.sentence));
        true
    }

    /// Answers from memory, or returns what has to be decoded.
    fn hear(&mut self, request: Request) -> Option<Job> {
        self.note(|stats| stats.sentences += 1);
        if let Some(reply) = self.memo.get(&request.sentence) {
            answer(&request, Ok(reply.clone()));
            self.note(|stats| stats.hits += 1);
            return None;
        }
        if let Some(askers) = self.askers.get_mut(&request.sentence) {
            askers.push(request);
            self.note(|stats| stats.hits += 1);
            return None;
        }
        let (sentence, limit) = (request.sentence.clone(), self.opened.limits.max_sentence_tokens);
        match self.opened.prompt.encode(&sentence) {
            Ok(Some(ids)) if ids.len() <= limit && !ids.is_empty() => {
                self.askers.insert(sentence.clone(), vec![request]);
                Some(Job { sentence, ids })
            }
            Ok(_) => {
                tracing::warn!(
                    limit,
                    %sentence,
                    "a sentence has too many tokens, or none, or cannot be told from the prompt, and is not extracted"
                );
                answer(&request, Ok("".into()));
                None
            }
            Err(error) => {
                answer(&request, Err(error));
                None
            }
        }
    }

    fn enter(&mut self, free: usize) -> Result<()> {
        let jobs: Vec<Job> = self.waiting.drain(..free.min(self.waiting.len())).collect();
        let ids: Vec<&[u32]> = jobs.iter().map(|job| job.ids.as_slice()).collect();
        let entered = self.opened.decoder.enter(&ids);
        let first = self.rows.len();
        self.rows.extend(jobs.into_iter().map(|job| Row { job, reply: Vec::new() }));
        self.note(|stats| stats.rows = stats.rows.max(self.rows.len()));
        match entered {
            Ok(tokens) => self.take(first, &tokens),
            Err(error) => self.begin_again(error),
        }
    }

    fn step(&mut self) -> Result<()> {
        let tokens: Vec<u32> =
            self.rows.iter().filter_map(|row| row.reply.last().copied()).collect();
        match self.opened.decoder.step(&tokens) {
            Ok(tokens) => self.take(0, &tokens),
            Err(error) => self.begin_again(error),
        }
    }

    /// Adds a token to every row from `first` on, and answers those whose reply it ends.
    fn take(&mut self, first: usize, tokens: &[u32]) -> Result<()> {
        let mut live = Vec::with_capacity(self.rows.len());
        let mut ended = Vec::new();
        for (n, row) in self.rows.iter_mut().enumerate() {
            let goes_on = match n.checked_sub(first) {
                None => true,
                Some(new) => !self.opened.ends(row, tokens[new], &self.brackets)?,
            };
            match goes_on && is_wanted(&mut self.askers, &row.job.sentence) {
                true => live.push(n),
                false => ended.push(n),
            }
        }
        if ended.is_empty() {
            return Ok(());
        }
        self.opened.decoder.keep(&live)?;
        for n in ended.into_iter().rev() {
            let row = self.rows.remove(n);
            // Nobody waits any more where it is not here.
            if let Some(askers) = self.askers.remove(&row.job.sentence) {
                self.reply(&row, &askers)?;
            }
        }
        Ok(())
    }

    fn reply(&mut self, row: &Row, askers: &[Request]) -> Result<()> {
        let reply: Arc<str> = self.opened.prompt.decode(&row.reply)?.into();
        self.note(|stats| {
            stats.decoded += 1;
            stats.tokens += row.reply.len();
        });
        if let Some(others) = self.without_list {
            self.without_list =
                (!closes_a_list(&reply)).then_some(others + 1).filter(|seen| *seen < WATCHED);
            if others + 1 == WATCHED && !closes_a_list(&reply) {
                tracing::warn!(
                    %reply,
                    "none of the first {WATCHED} replies of the extractor holds a list: its prompt may be wrong"
                );
            }
        }
        askers.iter().for_each(|request| answer(request, Ok(reply.clone())));
        self.memo.insert(row.job.sentence.clone(), reply);
        Ok(())
    }

    /// After an error: with half the rows, where memory was short.
    fn begin_again(&mut self, error: ExtractError) -> Result<()> {
        if !error.is_out_of_memory() || self.rows.len() < 2 {
            return Err(error);
        }
        self.most = self.rows.len() / 2;
        tracing::warn!(%error, rows = self.most, "memory is short: the extractor goes on with fewer rows");
        self.opened.decoder.keep(&[])?;
        self.rows.drain(..).rev().for_each(|row| self.waiting.push_front(row.job));
        Ok(())
    }

    fn note(&self, change: impl FnOnce(&mut Stats)) {
        change(&mut self.stats.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Opened {
    /// Adds a token to a reply, and says whether the reply ends with it, or before it.
    fn ends(&self, Row { job, reply }: &mut Row, token: u32, brackets: &[bool]) -> Result<bool> {
        if self.stop.contains(&token) {
            return Ok(true);
        }
        reply.push(token);
        let longest = self.limits.max_new_tokens.min(self.limits.max_own_tokens - job.ids.len());
        let may_close = brackets.get(token as usize).is_some_and(|has_bracket| *has_bracket);
        Ok(reply.len() == longest || (may_close && closes_a_list(&self.prompt.decode(reply)?)))
    }
}

/// Whether anybody still waits for a sentence; forgets it where nobody does.
fn is_wanted(askers: &mut HashMap<Arc<str>, Vec<Request>>, sentence: &Arc<str>) -> bool {
    let wanted = askers
        .get(sentence)
        .is_some_and(|askers| askers.iter().any(|request| request.asker.strong_count() > 0));
    if !wanted {
        askers.remove(sentence);
    }
    wanted
}

/// Whoever is gone needs no answer.
fn answer(request: &Request, answer: Answer) {
    let _ = request.to.send((request.id, answer));
}
