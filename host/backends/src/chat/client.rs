//! Requests to a chat endpoint: batching, retries, the cache and the cost ceiling.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use corver_core::{BoxError, ChatModel, ChatPrompt, ChatReply, Usage};
use corver_http::{
    AttemptError, Client, FirstFailure, RequestError, RetryPolicy, excerpt, for_each_concurrent,
};
use corver_settings::{ChatSettings, is_temperature, is_top_p};

use crate::chat::cache::{self, EndpointReply, ReplyCache};
use crate::chat::settings::{self, EndpointModel};
use crate::chat::wire::{CompletionRequest, CompletionResponse, MessageContent};
use crate::chat::{ChatError, Spending};

/// A client of a chat endpoint, with the account of what its replies cost.
#[derive(Debug)]
pub struct ChatClient {
    client: Client,
    retry_policy: RetryPolicy,
    /// The endpoint's name for the model.
    model: String,
    settings: ChatSettings,
    section: &'static str,
    cache: ReplyCache,
}

/// A reply without the reasoning of a thinking model.
struct Answer {
    content: String,
    /// True if the largest length cut it off.
    is_cut: bool,
}

impl Answer {
    /// True if the request is not sent once more.
    fn is_final(&self, accepts: impl Fn(&str) -> bool) -> bool {
        self.is_cut || accepts(&self.content)
    }

    /// True if the largest length cut it off before an answer. `accepts` may accept an empty reply.
    fn is_lost(&self, accepts: impl Fn(&str) -> bool) -> bool {
        self.is_cut && (self.content.trim().is_empty() || !accepts(&self.content))
    }
}

/// The replies of a batch, by prompt.
struct ReplyBatch {
    finished: usize,
    num_cut: usize,
    replies: Vec<Option<ChatReply>>,
}

impl ChatClient {
    /// Checks the settings and opens the cache file `cache`; sends nothing. `section` is the name
    /// of the settings' section, for messages.
    ///
    /// # Errors
    /// Fails if a setting, the key or the cache file cannot be used.
    pub fn open(
        settings: ChatSettings,
        section: &'static str,
        cache: &Path,
    ) -> Result<Self, ChatError> {
        let EndpointModel { endpoint, name } = settings::check(&settings, section)?;
        let url = format!("{}/chat/completions", endpoint.trim_end_matches('/'));
        let key = settings::key(&settings, &endpoint, section)?;
        let timeout = Duration::from_secs_f64(settings.timeout_s);
        let client = Client::new(&url, settings.connections, timeout, key.as_ref())
            .map_err(|error| ChatError::InvalidArgument(error.to_string()))?;
        let retry_policy = RetryPolicy::new(
            Duration::from_secs_f64(settings.retry_timeout_s),
            settings.requests_per_second,
        );
        Ok(Self {
            client,
            retry_policy,
            cache: ReplyCache::open(cache)?,
            model: name,
            settings,
            section,
        })
    }

    /// Returns a reply to every prompt, in order, with up to `connections` requests in flight.
    ///
    /// Equal prompts share one request. A reply that `accepts` rejects is requested once more. The
    /// usage of a reply is reported with its first return alone. `progress` gets the number of
    /// prompts that have a reply.
    ///
    /// # Errors
    /// Returns the first failure. Earlier replies are cached, and are not requested again.
    pub fn reply_all(
        &self,
        prompts: &[ChatPrompt],
        accepts: impl Fn(&str) -> bool + Sync,
        progress: impl Fn(usize) + Sync,
    ) -> Result<Vec<ChatReply>, ChatError> {
        for prompt in prompts {
            check(prompt)?;
        }
        let distinct = self.distinct(prompts);
        // Charge all cached replies before the first request, so that the ceiling takes them into
        // account wherever they are among the prompts.
        for (request, _) in &distinct {
            if self.cached(request, 0)?.is_some_and(|first| !first.is_final(&accepts)) {
                self.cached(request, 1)?;
            }
        }
        let batch =
            Mutex::new(ReplyBatch { finished: 0, num_cut: 0, replies: vec![None; prompts.len()] });
        for_each_concurrent(distinct, self.settings.connections, |(request, indices), failure| {
            let Some((answer, usage)) = self.accepted_reply(&request, &accepts, failure)? else {
                return Ok(());
            };
            let mut batch = batch.lock().expect("no thread panics with it");
            batch.finished += indices.len();
            if answer.is_lost(&accepts) {
                batch.num_cut += indices.len();
            }
            let mut reply = ChatReply { content: answer.content, usage };
            for index in indices {
                batch.replies[index] = Some(reply.clone());
                reply.usage = Usage::default();
            }
            progress(batch.finished);
            Ok(())
        })?;
        let batch = batch.into_inner().expect("no thread panics with it");
        if batch.num_cut > 0 {
            tracing::warn!(
                "{} of {} replies of {} were cut off before their answer ended (finish_reason \
                 \"length\"); raise {}.reasoning_tokens, now {}, if the model thinks first",
                batch.num_cut,
                prompts.len(),
                self.model,
                self.section,
                self.settings.reasoning_tokens
            );
        }
        Ok(batch
            .replies
            .into_iter()
            .map(|reply| reply.expect("a batch without a failure is complete"))
            .collect())
    }

    /// Returns the cost so far of this client's prompts, including their cached replies.
    #[must_use]
    pub fn spending(&self) -> Spending {
        self.cache.spending()
    }

    /// Returns each distinct request once, with the indices of its prompts.
    fn distinct<'a>(
        &'a self,
        prompts: &'a [ChatPrompt],
    ) -> Vec<(CompletionRequest<'a>, Vec<usize>)> {
        let mut distinct: Vec<(CompletionRequest<'_>, Vec<usize>)> = Vec::new();
        let mut numbers: HashMap<String, usize> = HashMap::new();
        for (index, prompt) in prompts.iter().enumerate() {
            let request = CompletionRequest::new(&self.model, prompt, &self.settings);
            let number = *numbers.entry(self.key(&request, 0)).or_insert(distinct.len());
            if number == distinct.len() {
                distinct.push((request, Vec::new()));
            }
            distinct[number].1.push(index);
        }
        distinct
    }

    fn key(&self, request: &CompletionRequest<'_>, attempt: u32) -> String {
        cache::key(self.client.url(), request, attempt)
    }

    fn cached(
        &self,
        request: &CompletionRequest<'_>,
        attempt: u32,
    ) -> Result<Option<Answer>, ChatError> {
        match self.cache.get(&self.key(request, attempt)) {
            Some(reply) => self.answer(reply).map(Some),
            None => Ok(None),
        }
    }

    /// Returns the first answer, or the second if `accepts` rejects the first, and what they used. A
    /// reply that was cut off is not requested again: the next one would be, too. `None`: another
    /// request of the batch failed.
    fn accepted_reply(
        &self,
        request: &CompletionRequest<'_>,
        accepts: impl Fn(&str) -> bool,
        failure: &FirstFailure<ChatError>,
    ) -> Result<Option<(Answer, Usage)>, ChatError> {
        let Some((first, usage)) = self.reply_to(request, 0, failure)? else { return Ok(None) };
        if first.is_final(&accepts) {
            return Ok(Some((first, usage)));
        }
        let Some((second, own_usage)) = self.reply_to(request, 1, failure)? else {
            return Ok(None);
        };
        Ok(Some((second, usage.plus(own_usage))))
    }

    fn reply_to(
        &self,
        request: &CompletionRequest<'_>,
        attempt: u32,
        failure: &FirstFailure<ChatError>,
    ) -> Result<Option<(Answer, Usage)>, ChatError> {
        let answer = match self.cached(request, attempt)? {
            Some(answer) => answer,
            None => {
                self.check_ceiling()?;
                let reply = self
                    .retry_policy
                    .run(self.client.url(), failure, || exchange(&self.client, request));
                let Some(reply) = reply.map_err(|error| self.no_reply(error))? else {
                    return Ok(None);
                };
                self.cache.insert(self.key(request, attempt), reply.clone())?;
                self.answer(reply)?
            }
        };
        let usage = self.cache.take_usage(&self.key(request, attempt));
        Ok(Some((answer, usage)))
    }

    /// Returns the answer of a reply. With prices, a reply without token counts is an error: it
    /// would escape the ceiling.
    fn answer(&self, reply: EndpointReply) -> Result<Answer, ChatError> {
        match reply.usage {
            None if settings::has_prices(&self.settings) => Err(ChatError::NoReply(format!(
                "{} does not say how many tokens it used, so they cannot be counted at the \
                     prices of {}.prices",
                self.client.url(),
                self.section
            ))),
            _ => Ok(Answer {
                content: after_thinking(&reply, self.settings.reasoning_tokens > 0).to_owned(),
                is_cut: reply.is_cut,
            }),
        }
    }

    fn check_ceiling(&self) -> Result<(), ChatError> {
        let cost = self.spending().cost(self.settings.prices);
        match self.settings.max_cost {
            Some(max_cost) if cost >= max_cost => {
                Err(ChatError::CostCeiling { section: self.section, cost, max_cost })
            }
            _ => Ok(()),
        }
    }

    fn no_reply(&self, error: RequestError) -> ChatError {
        let url = self.client.url();
        ChatError::NoReply(match error {
            RequestError::Refused(message) => {
                format!("{url} refuses the model {}: {message}", self.model)
            }
            RequestError::RetriesExhausted { attempts, seconds, last_error } => format!(
                "{url} did not answer within {seconds:.0} s (attempts: {attempts}); last error: \
                 {last_error}"
            ),
        })
    }
}

impl ChatModel for ChatClient {
    fn reply(&mut self, prompts: &[ChatPrompt]) -> Result<Vec<ChatReply>, BoxError> {
        Ok(self.reply_all(prompts, |_| true, |_| ())?)
    }

    /// Counts the usage towards the cost ceiling.
    fn add_prior_usage(&mut self, usage: Usage) {
        self.cache.add_prior_usage(usage);
    }
}

/// Rejects prompts that an endpoint would reject or misinterpret.
fn check(prompt: &ChatPrompt) -> Result<(), ChatError> {
    let ChatPrompt { messages, temperature, top_p, max_tokens, .. } = prompt;
    let checks = [
        (!messages.is_empty(), "messages", "at least one"),
        (is_temperature(f64::from(*temperature)), "temperature", "from 0 to 2"),
        (is_top_p(f64::from(*top_p)), "top_p", "above 0 and at most 1"),
        (*max_tokens > 0, "max_tokens", "at least 1"),
    ];
    for (is_valid, part, expected) in checks {
        if !is_valid {
            let problem = format!("a prompt's {part} must be {expected}");
            return Err(ChatError::InvalidArgument(problem));
        }
    }
    Ok(())
}

/// Returns what follows the think block at the start of a reply; nothing if the block does not end.
/// If the model `thinks`, its chat template may have opened the block.
fn after_thinking(reply: &EndpointReply, thinks: bool) -> &str {
    let content = reply.content.as_str();
    let is_open = content.trim_start().starts_with("<think>");
    match content.split_once("</think>") {
        Some((_, answer)) if is_open || thinks => answer.trim_start(),
        None if is_open || (thinks && reply.is_cut) => "",
        _ => content,
    }
}

fn exchange(
    client: &Client,
    request: &CompletionRequest<'_>,
) -> Result<EndpointReply, AttemptError> {
    let answer = client.post(request)?;
    // OpenAI answers 429 also if the quota is used up; a retry does not help then.
    let is_out_of_money = answer.error_code().is_some_and(|code| code == "insufficient_quota");
    if let Some(passing) = answer.transient_error().filter(|_| !is_out_of_money) {
        return Err(passing);
    }
    if !answer.is_success() {
        return Err(AttemptError::Refused(answer.refusal_message()));
    }
    // A proxy's error page may come with status 200: anything but a completion is transient.
    let response: Option<CompletionResponse> = serde_json::from_slice(&answer.body).ok();
    if let Some(CompletionResponse { mut choices, usage }) = response
        && let Some(choice) = choices.pop()
    {
        let finish_reason = choice.finish_reason.unwrap_or_default();
        // OpenRouter and Mistral end a broken reply with "error", a vLLM that is stopped with
        // "abort".
        if matches!(finish_reason.as_str(), "error" | "abort") {
            return Err(AttemptError::transient(format!(
                "the reply was broken off (finish_reason {finish_reason:?})"
            )));
        }
        return Ok(EndpointReply {
            content: choice.message.content.map(MessageContent::into_text).unwrap_or_default(),
            is_cut: matches!(finish_reason.as_str(), "length" | "model_length"),
            usage,
        });
    }
    let problem = format!("this is not a chat completion: {}", excerpt(&answer.body));
    Err(AttemptError::transient(problem))
}
