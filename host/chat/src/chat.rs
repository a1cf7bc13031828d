//! Asking.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use corver_http::{Client, Failure, FirstFailure, Patience, Unanswered, each, excerpt};

use crate::kept::{self, Kept, Said};
use crate::wire::{Completion, Message, Request};
use crate::{ChatError, ChatSettings, Spent};

/// A chat model, and one job's account of what it cost.
#[derive(Debug)]
pub struct Chat {
    client: Client,
    patience: Patience,
    settings: ChatSettings,
    kept: Kept,
}

impl Chat {
    /// Prepares to ask. Replies are kept in the file `kept`; nothing is sent yet.
    ///
    /// # Errors
    /// Where a setting, the key or the file cannot be used.
    pub fn open(settings: ChatSettings, kept: &Path) -> Result<Self, ChatError> {
        settings.check()?;
        let url = format!("{}/chat/completions", settings.endpoint.trim_end_matches('/'));
        let key = settings.key()?;
        let timeout = Duration::from_secs_f64(settings.timeout_s);
        let client = Client::new(&url, settings.connections, timeout, key.as_ref())?;
        let patience = Patience::new(Duration::from_secs_f64(settings.patience_s), settings.requests_per_second);
        Ok(Self { client, patience, kept: Kept::open(kept)?, settings })
    }

    /// Asks every prompt, as many at a time as there are connections; equal prompts are asked once. A reply that `accepts` does not
    /// take is asked for once more. Replies come in the order of the prompts. `progress` is given the number of prompts that have
    /// a reply.
    ///
    /// # Errors
    /// The first failure. The replies that came before it are kept, and are not asked for again.
    pub fn ask_all(
        &self,
        prompts: &[Vec<Message>],
        accepts: impl Fn(&str) -> bool + Sync,
        progress: impl Fn(usize) + Sync,
    ) -> Result<Vec<String>, ChatError> {
        let distinct = distinct(prompts);
        // What was paid for before counts before anything more is paid for.
        for (prompt, _) in &distinct {
            twice(&accepts, |attempt| self.known(&self.request(prompt), attempt))?;
        }
        let replies = Mutex::new((0, vec![None; prompts.len()]));
        each(distinct, self.settings.connections, |(prompt, places), failure| {
            if let Some(reply) = twice(&accepts, |attempt| self.ask(&self.request(prompt), attempt, failure))? {
                let mut replies = replies.lock().expect("no thread panics with it");
                replies.0 += places.len();
                for place in places {
                    replies.1[place] = Some(reply.clone());
                }
                progress(replies.0);
            }
            Ok(())
        })?;
        let (_, replies) = replies.into_inner().expect("no thread panics with it");
        Ok(replies.into_iter().map(|reply| reply.expect("a batch without a failure is whole")).collect())
    }

    /// What the replies to this value's prompts took, those kept from before included.
    #[must_use]
    pub fn spent(&self) -> Spent {
        self.kept.spent()
    }

    fn request<'a>(&'a self, messages: &'a [Message]) -> Request<'a> {
        let ChatSettings { model, temperature, max_tokens, .. } = &self.settings;
        Request { model, messages, temperature: *temperature, max_tokens: *max_tokens }
    }

    fn known(&self, request: &Request<'_>, attempt: u32) -> Result<Option<String>, ChatError> {
        self.kept.get(&kept::key(self.client.url(), request, attempt)).map(|said| self.counted(said)).transpose()
    }

    /// `None` where another request of the batch failed.
    fn ask(
        &self,
        request: &Request<'_>,
        attempt: u32,
        failure: &FirstFailure<ChatError>,
    ) -> Result<Option<String>, ChatError> {
        if let Some(known) = self.known(request, attempt)? {
            return Ok(Some(known));
        }
        self.check_ceiling()?;
        let answer = self.patience.ask(self.client.url(), failure, || exchange(&self.client, request));
        let Some(said) = answer.map_err(|unanswered| self.failed(unanswered))? else { return Ok(None) };
        self.kept.put(kept::key(self.client.url(), request, attempt), said.clone())?;
        self.counted(said).map(Some)
    }

    /// A reply's words. Under a ceiling its cost must be known.
    fn counted(&self, said: Said) -> Result<String, ChatError> {
        match said.usage {
            None if self.settings.max_cost.is_some() => Err(ChatError::NoUsage { url: self.client.url().to_owned() }),
            _ => Ok(said.content),
        }
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
}

/// Each prompt once, with the places where it stands.
fn distinct(prompts: &[Vec<Message>]) -> Vec<(&[Message], Vec<usize>)> {
    let mut places: HashMap<&[Message], Vec<usize>> = HashMap::new();
    for (place, prompt) in prompts.iter().enumerate() {
        places.entry(prompt).or_default().push(place);
    }
    let mut distinct: Vec<_> = places.into_iter().collect();
    distinct.sort_by_key(|(_, places)| places[0]);
    distinct
}

/// The first reply, or the second where the first is not accepted.
fn twice(
    accepts: impl Fn(&str) -> bool,
    reply: impl Fn(u32) -> Result<Option<String>, ChatError>,
) -> Result<Option<String>, ChatError> {
    match reply(0)? {
        Some(first) if !accepts(&first) => reply(1),
        first => Ok(first),
    }
}

fn exchange(client: &Client, request: &Request<'_>) -> Result<Said, Failure> {
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
        return Err(Failure::passing(format!("this is not a chat completion: {}", excerpt(&answer.body))));
    };
    Ok(Said { content: choice.message.content.unwrap_or_default(), usage })
}
