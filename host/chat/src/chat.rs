//! Asking.

use std::path::Path;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use corver_http::{Client, Failure, FirstFailure, Patience, Token, Unanswered, each, excerpt};

use crate::kept::{self, Kept};
use crate::wire::{Completion, Message, Request, Usage};
use crate::{ChatError, ChatSettings, Spent};

/// A chat model.
#[derive(Debug)]
pub struct Chat {
    client: Client,
    patience: Patience,
    settings: ChatSettings,
    kept: Kept,
    spent: Mutex<Spent>,
}

/// What the model said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// Its words.
    pub content: String,
    /// Whether the caller took it.
    pub accepted: bool,
}

impl Chat {
    /// Prepares to ask. Replies are kept in the file `kept`; nothing is sent yet.
    ///
    /// # Errors
    /// Where a setting, the key or the file cannot be used.
    pub fn open(settings: ChatSettings, kept: &Path) -> Result<Self, ChatError> {
        settings.check()?;
        let url = format!("{}/chat/completions", settings.endpoint.trim_end_matches('/'));
        let key = Token::load(settings.key_file.as_deref(), &settings.key_variable)?;
        let timeout = Duration::from_secs_f64(settings.timeout_s);
        let client = Client::new(&url, settings.connections, timeout, key.as_ref())
            .map_err(|problem| ChatError::Url { url: url.clone(), problem })?;
        let patience = Patience::new(Duration::from_secs_f64(settings.patience_s), settings.requests_per_second);
        Ok(Self { client, patience, kept: Kept::open(kept)?, settings, spent: Mutex::default() })
    }

    /// Asks every prompt, as many at a time as there are connections. A reply that `accepts` does not take is asked for once more.
    /// Replies come in the order of the prompts. `progress` is given the number of prompts that have a reply.
    ///
    /// # Errors
    /// The first failure. The replies that came before it are kept, and are not asked for again.
    pub fn ask_all(
        &self,
        prompts: &[Vec<Message>],
        accepts: impl Fn(&str) -> bool + Sync,
        progress: impl Fn(usize) + Sync,
    ) -> Result<Vec<Reply>, ChatError> {
        let replies: Mutex<(usize, Vec<Option<Reply>>)> = Mutex::new((0, vec![None; prompts.len()]));
        each((0..prompts.len()).collect(), self.settings.connections, |number, failure| {
            if let Some(reply) = self.ask_twice(&prompts[number], &accepts, failure)? {
                let mut replies = replies.lock().expect("no thread panics with it");
                replies.0 += 1;
                replies.1[number] = Some(reply);
                progress(replies.0);
            }
            Ok(())
        })?;
        let (_, replies) = replies.into_inner().expect("no thread panics with it");
        Ok(replies.into_iter().map(|reply| reply.expect("a batch without a failure is whole")).collect())
    }

    /// What was asked and paid for by this value.
    #[must_use]
    pub fn spent(&self) -> Spent {
        *self.lock()
    }

    /// `None` where another request of the batch failed.
    fn ask_twice(
        &self,
        messages: &[Message],
        accepts: impl Fn(&str) -> bool,
        failure: &FirstFailure<ChatError>,
    ) -> Result<Option<Reply>, ChatError> {
        let mut last = None;
        for attempt in 0..2 {
            let Some(content) = self.ask(messages, attempt, failure)? else { return Ok(None) };
            let accepted = accepts(&content);
            last = Some(Reply { content, accepted });
            if accepted {
                break;
            }
        }
        Ok(last)
    }

    fn ask(
        &self,
        messages: &[Message],
        attempt: u32,
        failure: &FirstFailure<ChatError>,
    ) -> Result<Option<String>, ChatError> {
        let ChatSettings { model, temperature, max_tokens, .. } = &self.settings;
        let request = Request { model, messages, temperature: *temperature, max_tokens: *max_tokens };
        let key = kept::key(self.client.url(), &request, attempt);
        if let Some(known) = self.kept.get(&key) {
            self.lock().known += 1;
            return Ok(Some(known));
        }
        self.check_ceiling()?;
        let answer = self.patience.ask(self.client.url(), failure, || exchange(&self.client, &request));
        let Some((content, usage)) = answer.map_err(|unanswered| self.failed(unanswered))? else { return Ok(None) };
        self.kept.put(key, &content, usage)?;
        self.lock().add(usage.unwrap_or_default());
        if usage.is_none() && self.settings.max_cost.is_some() {
            return Err(ChatError::NoUsage { url: self.client.url().to_owned() });
        }
        Ok(Some(content))
    }

    fn check_ceiling(&self) -> Result<(), ChatError> {
        let cost = self.spent().cost(self.settings.prices);
        match self.settings.max_cost {
            Some(max_cost) if cost >= max_cost => Err(ChatError::Ceiling { cost, max_cost }),
            _ => Ok(()),
        }
    }

    fn failed(&self, unanswered: Unanswered) -> ChatError {
        let url = self.client.url().to_owned();
        match unanswered {
            Unanswered::Refused(message) => ChatError::Refused { url, model: self.settings.model.clone(), message },
            Unanswered::GaveUp { attempts, seconds, last } => ChatError::GaveUp { url, attempts, seconds, last },
        }
    }

    fn lock(&self) -> MutexGuard<'_, Spent> {
        self.spent.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) // numbers are never half-written
    }
}

fn exchange(client: &Client, request: &Request<'_>) -> Result<(String, Option<Usage>), Failure> {
    let answer = client.post(request)?;
    // “Too many requests” is also said where the money is used up; waiting does not help then.
    let is_out_of_money = answer.error_code().is_some_and(|code| code == "insufficient_quota");
    if let Some(passing) = answer.passing().filter(|_| !is_out_of_money) {
        return Err(passing);
    }
    if !answer.is_success() {
        return Err(answer.refusal());
    }
    let completion: Option<Completion> = serde_json::from_slice(&answer.body).ok();
    let Some((choice, usage)) = completion.and_then(|mut whole| Some((whole.choices.pop()?, whole.usage))) else {
        return Err(Failure::passing(format!("no answer of a chat model, but {}", excerpt(&answer.body))));
    };
    Ok((choice.message.content.unwrap_or_default(), usage))
}
