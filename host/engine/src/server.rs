//! One server: its routes, its models, and retries.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use corver_http::{
    AttemptError, Client, FirstFailure, Host, HttpResponse, RequestError, RetryPolicy, Token,
    shorten_foreign,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::{EngineError, Result};
use crate::request::{EngineCompletion, InvalidReply, SampleRequest};
use crate::settings::{EngineApi, EngineSettings};
use crate::{sglang, vllm};

/// Longest reply that is read, bytes. A token takes some 150: this is a group of 16 with 100,000
/// tokens each.
const REPLY_BYTES: u64 = 256 << 20;

/// Log-probabilities that a sampled token can have. A little above 0 is rounding; far below, no
/// sampler draws a token.
const VALID_LOG_PROBS: RangeInclusive<f32> = -1000.0..=1e-3;

/// A client of one server.
#[derive(Debug)]
pub(crate) struct EngineServer {
    api: EngineApi,
    root: String,
    model: String,
    token: Option<Token>,
    timeout: Duration,
    retries: RetryPolicy,
    generate: Client,
}

/// A model that a server has.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct ServedModel {
    /// Name of a base model or of an adapter.
    pub(crate) id: String,
    /// Most tokens of prompt and completion together; `None` for an adapter.
    pub(crate) max_model_len: Option<usize>,
}

#[derive(Deserialize)]
struct ModelList {
    data: Vec<ServedModel>,
}

/// The result of a request that the server has processed.
pub(crate) enum ServerReply<T> {
    Done(T),
    /// Status 404 with this message: the server has no such model or adapter.
    NotFound(String),
}

impl EngineServer {
    pub(crate) fn new(settings: &EngineSettings) -> Result<Self> {
        let EngineSettings { api, url, model, token, concurrency, timeout, patience } =
            settings.clone();
        let host = Host::from_url(&url)?;
        let root = url.trim_end_matches('/').to_owned();
        if token.is_some() && !host.is_encrypted && !host.is_loopback() {
            return Err(EngineError::InvalidSettings(format!(
                "the key of the engine (engine.token_file) would be sent to {root} unencrypted; \
                 use https://, or a tunnel from localhost"
            )));
        }
        let route = match api {
            EngineApi::Vllm => "/v1/completions",
            EngineApi::Sglang => "/generate",
        };
        let generate =
            Client::new(&format!("{root}{route}"), concurrency, timeout, token.as_ref())?;
        Ok(Self {
            api,
            root,
            model,
            token,
            timeout,
            retries: RetryPolicy::new(patience, None),
            generate: generate.with_max_response_bytes(REPLY_BYTES),
        })
    }

    /// Returns the address for error messages.
    pub(crate) fn url(&self) -> &str {
        &self.root
    }

    /// Returns the error of a server without this model or adapter.
    pub(crate) fn no_model(&self, model: &str, served: &[ServedModel]) -> EngineError {
        let ids: Vec<&str> = served.iter().map(|served| served.id.as_str()).collect();
        let names = if ids.is_empty() { "none".to_owned() } else { ids.join(", ") };
        EngineError::NoModel(format!(
            "the engine {} has no model {model:?} (engine.model); it has {}",
            self.root,
            shorten_foreign(&names)
        ))
    }

    /// Requests the list of the base model and its adapters.
    pub(crate) fn models(&self, retries: &RetryPolicy) -> Result<Vec<ServedModel>> {
        let client = self.client("/v1/models")?;
        let models = retries.run(client.url(), &FirstFailure::<()>::default(), || {
            let answer = check_status(client.get()?)?;
            match serde_json::from_slice::<ModelList>(&answer.body) {
                Ok(list) => Ok(list.data),
                Err(_) => Err(AttemptError::Refused(answer.refusal_message())),
            }
        });
        Ok(models.map_err(|failure| request_error(client.url(), failure))?.unwrap_or_default())
    }

    /// Returns true if the server has a model or adapter with this name.
    pub(crate) fn has_model(&self, name: &str) -> Result<bool> {
        Ok(self.models(&self.retries)?.iter().any(|model| model.id == name))
    }

    /// Requests the completions of one prompt; `None` if another request of the batch has failed
    /// first. There is no retry after `stop` is set.
    pub(crate) fn sample(
        &self,
        request: &SampleRequest<'_>,
        batch: &FirstFailure<EngineError>,
        stop: &AtomicBool,
    ) -> Result<Option<ServerReply<Vec<EngineCompletion>>>> {
        let body = match self.api {
            EngineApi::Vllm => vllm::body(request),
            EngineApi::Sglang => sglang::body(request, &self.model),
        };
        let url = self.generate.url();
        let reply = self.retries.run(url, batch, || match stop.load(Ordering::Relaxed) {
            false => self.request_completions(&body, request),
            true => Err(AttemptError::Refused(EngineError::Stopped.to_string())),
        });
        let completions = match reply.map_err(|failure| request_error(url, failure))? {
            None => return Ok(None),
            Some(ServerReply::NotFound(message)) => {
                return Ok(Some(ServerReply::NotFound(message)));
            }
            Some(ServerReply::Done(completions)) => completions?,
        };
        for completion in &completions {
            if let Some(problem) = find_problem(completion, request) {
                return Err(unexpected(url, &problem));
            }
        }
        Ok(Some(ServerReply::Done(completions)))
    }

    /// Requests completions once, and reads them. An aborted completion is a transient failure.
    fn request_completions(
        &self,
        body: &Value,
        request: &SampleRequest<'_>,
    ) -> std::result::Result<ServerReply<Result<Vec<EngineCompletion>>>, AttemptError> {
        let answer = match post(&self.generate, body)? {
            ServerReply::NotFound(message) => return Ok(ServerReply::NotFound(message)),
            ServerReply::Done(answer) => answer,
        };
        let url = self.generate.url();
        let reading = match self.api {
            EngineApi::Vllm => vllm::read(&answer.body, request),
            EngineApi::Sglang => sglang::read(&answer.body, request),
        };
        Ok(ServerReply::Done(match reading {
            Ok(completions) => Ok(completions),
            Err(InvalidReply::Aborted) => {
                return Err(AttemptError::transient(
                    "a completion was aborted, as by a server that is being stopped",
                ));
            }
            Err(InvalidReply::Lacks { what, remedy }) => Err(EngineError::Unusable(format!(
                "the engine {url} answered without {what}: {remedy}"
            ))),
            Err(InvalidReply::Unexpected(problem)) => Err(unexpected(url, &problem)),
        }))
    }

    /// Requests that the server load the adapter of a folder; `path` is the server's path of it.
    pub(crate) fn load_adapter(&self, name: &str, path: &str) -> Result<ServerReply<()>> {
        let body = json!({ "lora_name": name, "lora_path": path });
        self.post_adapter_request("load_lora_adapter", &body, &self.retries)
    }

    /// Requests that the server unload an adapter.
    pub(crate) fn unload_adapter(
        &self,
        name: &str,
        retries: &RetryPolicy,
    ) -> Result<ServerReply<()>> {
        let body = json!({ "lora_name": name });
        self.post_adapter_request("unload_lora_adapter", &body, retries)
    }

    fn post_adapter_request(
        &self,
        action: &str,
        body: &Value,
        retries: &RetryPolicy,
    ) -> Result<ServerReply<()>> {
        let client = self.client(&match self.api {
            EngineApi::Vllm => format!("/v1/{action}"),
            EngineApi::Sglang => format!("/{action}"),
        })?;
        let reply =
            retries.run(client.url(), &FirstFailure::<()>::default(), || post(&client, body));
        match reply.map_err(|failure| request_error(client.url(), failure))? {
            Some(ServerReply::NotFound(message)) => Ok(ServerReply::NotFound(message)),
            // `None` cannot occur: no other request is in the batch.
            Some(ServerReply::Done(_)) | None => Ok(ServerReply::Done(())),
        }
    }

    fn client(&self, route: &str) -> Result<Client> {
        Ok(Client::new(&format!("{}{route}", self.root), 1, self.timeout, self.token.as_ref())?)
    }
}

/// Describes the first inconsistency of a completion; `None` if it is usable.
fn find_problem(completion: &EngineCompletion, request: &SampleRequest<'_>) -> Option<String> {
    let tokens = completion.tokens.len();
    let log_probs = completion.log_probs.len();
    if tokens != log_probs {
        return Some(format!("{tokens} tokens with {log_probs} log-probabilities"));
    }
    if tokens > request.max_tokens {
        return Some(format!(
            "a completion of {tokens} tokens, but the request allows at most {}",
            request.max_tokens
        ));
    }
    let stop = request.stop.tokens;
    if let Some(index) = completion.tokens.iter().position(|token| stop.contains(token))
        && index + 1 < tokens
    {
        return Some(format!(
            "{} tokens after the stop token {}",
            tokens - index - 1,
            completion.tokens[index]
        ));
    }
    let invalid =
        completion.log_probs.iter().find(|log_prob| !VALID_LOG_PROBS.contains(log_prob))?;
    Some(format!("a token whose log-probability is {invalid:?}"))
}

fn post(
    client: &Client,
    body: &Value,
) -> std::result::Result<ServerReply<HttpResponse>, AttemptError> {
    let answer = client.post(body)?;
    if answer.is_not_found() {
        return Ok(ServerReply::NotFound(answer.refusal_message()));
    }
    check_status(answer).map(ServerReply::Done)
}

fn check_status(answer: HttpResponse) -> std::result::Result<HttpResponse, AttemptError> {
    match answer.transient_error() {
        Some(transient) => Err(transient),
        None if answer.is_success() => Ok(answer),
        None => Err(AttemptError::Refused(answer.refusal_message())),
    }
}

fn request_error(url: &str, failure: RequestError) -> EngineError {
    match failure {
        RequestError::Refused(message) => EngineError::Refused { url: url.to_owned(), message },
        RequestError::RetriesExhausted { attempts, seconds, last_error } => {
            EngineError::Unreachable(format!(
                "the engine {url} did not answer within {seconds:.0} s \
                 (engine.retry_timeout_s; attempts: {attempts}); last error: {last_error}"
            ))
        }
    }
}

/// Returns the error of a reply that contradicts the API or the request.
pub(crate) fn unexpected(url: &str, problem: &str) -> EngineError {
    let problem = shorten_foreign(problem);
    EngineError::Unusable(format!("the engine {url} sent an unexpected reply: {problem}"))
}
