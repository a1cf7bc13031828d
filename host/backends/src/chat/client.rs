//! Asking.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use corver_core::{BoxError, ChatModel, ChatPrompt, ChatReply, Usage};
use corver_http::{Client, Failure, FirstFailure, Patience, Unanswered, each, excerpt};
use corver_settings::{ChatSettings, is_temperature, is_top_p};

use crate::chat::kept::{self, Kept, Said};
use crate::chat::settings::{self, Model};
use crate::chat::wire::{Completion, Request};
use crate::chat::{ChatError, Spent};

/// A chat model, and one job's account of what it cost.
#[derive(Debug)]
pub struct Chat {
    client: Client,
    patience: Patience,
    /// The endpoint's name for the model.
    model: String,
    settings: ChatSettings,
    section: &'static str,
    kept: Kept,
}

impl Chat {
    /// Prepares to ask. `section` is where the settings stand, for messages. Replies are kept in
    /// the file `kept`; nothing is sent yet.
    ///
    /// # Errors
    /// Where a setting, the key or the file cannot be used.
    pub fn open(
        settings: ChatSettings,
        section: &'static str,
        kept: &Path,
    ) -> Result<Self, ChatError> {
        let Model { endpoint, name } = settings::check(&settings, section)?;
        let url = format!("{}/chat/completions", endpoint.trim_end_matches('/'));
        let key = settings::key(&settings, &endpoint, section)?;
        let timeout = Duration::from_secs_f64(settings.timeout_s);
        let client = Client::new(&url, settings.connections, timeout, key.as_ref())?;
        let patience = Patience::new(
            Duration::from_secs_f64(settings.patience_s),
            settings.requests_per_second,
        );
        Ok(Self { client, patience, kept: Kept::open(kept)?, model: name, settings, section })
    }

    /// Asks every prompt, as many at a time as there are connections; equal prompts are asked once.
    /// A reply that `accepts` does not take is asked for once more. Replies come in the order of
    /// the prompts; what they took is told once, however often they are asked for. `progress` is
    /// given the number of prompts that have a reply.
    ///
    /// # Errors
    /// The first failure. The replies that came before it are kept, and are not asked for again.
    pub fn ask_all(
        &self,
        prompts: &[ChatPrompt],
        accepts: impl Fn(&str) -> bool + Sync,
        progress: impl Fn(usize) + Sync,
    ) -> Result<Vec<ChatReply>, ChatError> {
        prompts.iter().try_for_each(check)?;
        let distinct = self.distinct(prompts);
        // What was paid for before counts before anything more is paid for.
        for (request, _) in &distinct {
            if self.known(request, 0)?.is_some_and(|first| !accepts(&first)) {
                self.known(request, 1)?;
            }
        }
        let replies = Mutex::new((0, vec![None; prompts.len()]));
        each(distinct, self.settings.connections, |(request, places), failure| {
            let Some(mut reply) = self.ask_twice(&request, &accepts, failure)? else {
                return Ok(());
            };
            let mut replies = replies.lock().expect("no thread panics with it");
            replies.0 += places.len();
            for place in places {
                replies.1[place] = Some(reply.clone());
                reply.usage = Usage::default();
            }
            progress(replies.0);
            Ok(())
        })?;
        let (_, replies) = replies.into_inner().expect("no thread panics with it");
        Ok(replies
            .into_iter()
            .map(|reply| reply.expect("a batch without a failure is whole"))
            .collect())
    }

    /// What the replies to this value's prompts took, those kept from before included.
    #[must_use]
    pub fn spent(&self) -> Spent {
        self.kept.spent()
    }

    /// Each request once, with the places where it stands.
    fn distinct<'a>(&'a self, prompts: &'a [ChatPrompt]) -> Vec<(Request<'a>, Vec<usize>)> {
        let mut distinct: Vec<(Request<'_>, Vec<usize>)> = Vec::new();
        let mut known: HashMap<String, usize> = HashMap::new();
        for (place, prompt) in prompts.iter().enumerate() {
            let request = Request::new(&self.model, prompt);
            let number = *known.entry(self.key(&request, 0)).or_insert(distinct.len());
            if number == distinct.len() {
                distinct.push((request, Vec::new()));
            }
            distinct[number].1.push(place);
        }
        distinct
    }

    fn key(&self, request: &Request<'_>, attempt: u32) -> String {
        kept::key(self.client.url(), request, attempt)
    }

    fn known(&self, request: &Request<'_>, attempt: u32) -> Result<Option<String>, ChatError> {
        self.kept.get(&self.key(request, attempt)).map(|said| self.counted(said)).transpose()
    }

    /// The first reply, or the second where the first is not accepted. `None` where another request
    /// of the batch failed.
    fn ask_twice(
        &self,
        request: &Request<'_>,
        accepts: impl Fn(&str) -> bool,
        failure: &FirstFailure<ChatError>,
    ) -> Result<Option<ChatReply>, ChatError> {
        match self.ask(request, 0, failure)? {
            Some(first) if !accepts(&first.content) => {
                let both = |second: ChatReply| ChatReply {
                    usage: sum(first.usage, second.usage),
                    ..second
                };
                Ok(self.ask(request, 1, failure)?.map(both))
            }
            first => Ok(first),
        }
    }

    fn ask(
        &self,
        request: &Request<'_>,
        attempt: u32,
        failure: &FirstFailure<ChatError>,
    ) -> Result<Option<ChatReply>, ChatError> {
        let content = match self.known(request, attempt)? {
            Some(known) => known,
            None => {
                self.check_ceiling()?;
                let answer = self
                    .patience
                    .ask(self.client.url(), failure, || exchange(&self.client, request));
                let Some(said) = answer.map_err(|unanswered| self.failed(unanswered))? else {
                    return Ok(None);
                };
                self.kept.put(self.key(request, attempt), said.clone())?;
                self.counted(said)?
            }
        };
        Ok(Some(ChatReply { content, usage: self.kept.usage_once(&self.key(request, attempt)) }))
    }

    /// A reply's words. Where prices are stated, its tokens must be known.
    fn counted(&self, said: Said) -> Result<String, ChatError> {
        match said.usage {
            None if settings::has_prices(&self.settings) => Err(ChatError::Refused(format!(
                "{} does not say how many tokens it used, so they cannot be counted at the \
                     prices of {}.prices",
                self.client.url(),
                self.section
            ))),
            _ => Ok(said.content),
        }
    }

    fn check_ceiling(&self) -> Result<(), ChatError> {
        let cost = self.spent().cost(self.settings.prices);
        match self.settings.max_cost {
            Some(max_cost) if cost >= max_cost => {
                Err(ChatError::Ceiling { section: self.section, cost, max_cost })
            }
            _ => Ok(()),
        }
    }

    fn failed(&self, unanswered: Unanswered) -> ChatError {
        let url = self.client.url();
        match unanswered {
            Unanswered::Refused(message) => {
                ChatError::Refused(format!("{url} refuses the model {}: {message}", self.model))
            }
            Unanswered::GaveUp { attempts, seconds, last } => ChatError::GaveUp(format!(
                "{url} did not answer in {attempts} attempts and {seconds:.0} s; at last: {last}"
            )),
        }
    }
}

impl ChatModel for Chat {
    fn reply(&mut self, prompts: &[ChatPrompt]) -> Result<Vec<ChatReply>, BoxError> {
        Ok(self.ask_all(prompts, |_| true, |_| ())?)
    }

    /// Counts towards the ceiling.
    fn add_prior_usage(&mut self, usage: Usage) {
        self.kept.add_before(usage);
    }
}

/// Refuses what an endpoint would refuse, or misunderstand.
fn check(prompt: &ChatPrompt) -> Result<(), ChatError> {
    let ChatPrompt { messages, temperature, top_p, max_tokens, .. } = prompt;
    let checks = [
        (!messages.is_empty(), "messages", "at least one"),
        (is_temperature(f64::from(*temperature)), "temperature", "from 0 to 2"),
        (is_top_p(f64::from(*top_p)), "top_p", "above 0 and at most 1"),
        (*max_tokens > 0, "max_tokens", "at least 1"),
    ];
    match checks.into_iter().find(|(good, ..)| !good) {
        Some((_, part, expected)) => {
            Err(ChatError::InvalidArgument(format!("a prompt's {part} must be {expected}")))
        }
        None => Ok(()),
    }
}

fn sum(one: Usage, other: Usage) -> Usage {
    Usage {
        prompt_tokens: one.prompt_tokens + other.prompt_tokens,
        completion_tokens: one.completion_tokens + other.completion_tokens,
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
    let Some((choice, usage)) =
        completion.and_then(|mut whole| Some((whole.choices.pop()?, whole.usage)))
    else {
        return Err(Failure::passing(format!(
            "this is not a chat completion: {}",
            excerpt(&answer.body)
        )));
    };
    Ok(Said { content: choice.message.content.unwrap_or_default(), usage })
}
