//! One server: its routes, its models, and patience with it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use corver_http::{
    AttemptError, Client, FirstFailure, Host, HttpResponse, RequestError, RetryPolicy, Token,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::draw::{Completion, Draw, Unusable};
use crate::error::{EngineError, Result};
use crate::settings::{EngineSettings, Kind};
use crate::{sglang, vllm};

/// Bytes of a reply that are read. A token takes some 150: this is a group of 16 with 100,000
/// tokens each.
const REPLY_BYTES: u64 = 256 << 20;

/// A server that was found.
#[derive(Debug)]
pub(crate) struct Server {
    kind: Kind,
    root: String,
    model: String,
    token: Option<Token>,
    timeout: Duration,
    patience: RetryPolicy,
    generate: Client,
}

/// What a server serves.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct ServedModel {
    /// A base model's name, or an adapter's.
    pub(crate) id: String,
    /// Tokens of prompt and completion together; adapters have their model's.
    pub(crate) max_model_len: Option<usize>,
}

#[derive(Deserialize)]
struct ModelList {
    data: Vec<ServedModel>,
}

/// How a request ended that was answered.
pub(crate) enum Reply<T> {
    Done(T),
    /// The status 404: nothing here has this name.
    NotFound(String),
}

impl Server {
    pub(crate) fn new(settings: &EngineSettings) -> Result<Self> {
        let EngineSettings { kind, url, model, token, concurrency, timeout, patience } =
            settings.clone();
        let host = Host::from_url(&url)?;
        let root = url.trim_end_matches('/').to_owned();
        if token.is_some() && !host.is_encrypted && !host.is_loopback() {
            return Err(EngineError::InvalidSettings(format!(
                "the key of the engine (engine.token_file) would go to {root} unencrypted: use \
                 https://, or a tunnel from localhost"
            )));
        }
        let route = match kind {
            Kind::Vllm => "/v1/completions",
            Kind::Sglang => "/generate",
        };
        let generate =
            Client::new(&format!("{root}{route}"), concurrency, timeout, token.as_ref())?;
        let patience = RetryPolicy::new(patience, None);
        Ok(Self {
            kind,
            root,
            model,
            token,
            timeout,
            patience,
            generate: generate.with_max_response_bytes(REPLY_BYTES),
        })
    }

    /// The address that errors name.
    pub(crate) fn url(&self) -> &str {
        &self.root
    }

    /// Returns the error of a server without this model, or one that no longer has this adapter.
    pub(crate) fn no_model(&self, model: &str, served: &[ServedModel]) -> EngineError {
        let names: Vec<&str> = served.iter().map(|served| served.id.as_str()).collect();
        let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        EngineError::NoModel(format!(
            "the engine {} has no model {model:?} (engine.model); it has {names}",
            self.root
        ))
    }

    /// The base model and its adapters.
    pub(crate) fn models(&self, patience: &RetryPolicy) -> Result<Vec<ServedModel>> {
        let client = self.client("/v1/models")?;
        let read = |answer: &HttpResponse| {
            let list: Option<ModelList> = serde_json::from_slice(&answer.body).ok();
            list.map(|list| list.data)
                .ok_or_else(|| AttemptError::Refused(answer.refusal_message()))
        };
        let list = patience.run(client.url(), &FirstFailure::<()>::default(), || {
            answered(client.get()?).and_then(|answer| read(&answer))
        });
        Ok(list.map_err(|unanswered| failed(client.url(), unanswered))?.unwrap_or_default())
    }

    /// As [`Self::models`], with the patience of the settings.
    pub(crate) fn models_now(&self) -> Result<Vec<ServedModel>> {
        self.models(&self.patience)
    }

    /// The completions of one prompt; `None` where another request of the batch failed first. It is
    /// not tried again once `stop` is set.
    pub(crate) fn draw(
        &self,
        draw: &Draw<'_>,
        batch: &FirstFailure<EngineError>,
        stop: &AtomicBool,
    ) -> Result<Option<Reply<Vec<Completion>>>> {
        let request = match self.kind {
            Kind::Vllm => vllm::request(draw),
            Kind::Sglang => sglang::request(draw, &self.model),
        };
        let url = self.generate.url();
        let reply = self.patience.run(url, batch, || match stop.load(Ordering::Relaxed) {
            false => post(&self.generate, &request),
            true => Err(AttemptError::Refused("stopped, as asked".into())),
        });
        let answer = match reply.map_err(|unanswered| failed(url, unanswered))? {
            None => return Ok(None),
            Some(Reply::NotFound(message)) => return Ok(Some(Reply::NotFound(message))),
            Some(Reply::Done(answer)) => answer,
        };
        let completions = match self.kind {
            Kind::Vllm => vllm::read(&answer.body, draw),
            Kind::Sglang => sglang::read(&answer.body, draw),
        };
        let completions = completions.map_err(|unusable| match unusable {
            Unusable::Lacks { what, remedy } => {
                EngineError::Unusable(format!("the engine {url} answered without {what}: {remedy}"))
            }
            Unusable::Unexpected(problem) => unexpected(url, &problem),
        })?;
        match completions.iter().find_map(|completion| problem_of(completion, draw)) {
            Some(problem) => Err(unexpected(url, &problem)),
            None => Ok(Some(Reply::Done(completions))),
        }
    }

    /// Has the server load the adapter of a folder, by the path that it sees.
    pub(crate) fn load_adapter(&self, name: &str, path: &str) -> Result<Reply<()>> {
        self.about_adapters(
            "load_lora_adapter",
            &json!({ "lora_name": name, "lora_path": path }),
            &self.patience,
        )
    }

    /// Has the server forget an adapter.
    pub(crate) fn unload_adapter(&self, name: &str, patience: &RetryPolicy) -> Result<Reply<()>> {
        self.about_adapters("unload_lora_adapter", &json!({ "lora_name": name }), patience)
    }

    fn about_adapters(
        &self,
        action: &str,
        request: &Value,
        patience: &RetryPolicy,
    ) -> Result<Reply<()>> {
        let client = self.client(&match self.kind {
            Kind::Vllm => format!("/v1/{action}"),
            Kind::Sglang => format!("/{action}"),
        })?;
        let reply =
            patience.run(client.url(), &FirstFailure::<()>::default(), || post(&client, request));
        match reply.map_err(|unanswered| failed(client.url(), unanswered))? {
            Some(Reply::NotFound(message)) => Ok(Reply::NotFound(message)),
            Some(Reply::Done(_)) | None => Ok(Reply::Done(())), // nothing fails beside it
        }
    }

    fn client(&self, route: &str) -> Result<Client> {
        Ok(Client::new(&format!("{}{route}", self.root), 1, self.timeout, self.token.as_ref())?)
    }
}

/// What is wrong with a completion, whichever server drew it.
fn problem_of(completion: &Completion, draw: &Draw<'_>) -> Option<String> {
    let (tokens, log_probs) = (completion.tokens.len(), completion.log_probs.len());
    if tokens != log_probs {
        return Some(format!("{tokens} tokens with {log_probs} log-probabilities"));
    }
    if tokens > draw.max_tokens {
        return Some(format!(
            "a completion of {tokens} tokens, where at most {} were asked for",
            draw.max_tokens
        ));
    }
    let odd = completion.log_probs.iter().find(|log_prob| !log_prob.is_finite());
    odd.map(|log_prob| format!("a token whose log-probability is {log_prob}"))
}

fn post(
    client: &Client,
    request: &Value,
) -> std::result::Result<Reply<HttpResponse>, AttemptError> {
    let answer = client.post(request)?;
    if answer.is_not_found() {
        return Ok(Reply::NotFound(answer.refusal_message()));
    }
    answered(answer).map(Reply::Done)
}

fn answered(answer: HttpResponse) -> std::result::Result<HttpResponse, AttemptError> {
    match answer.transient_error() {
        Some(passing) => Err(passing),
        None if answer.is_success() => Ok(answer),
        None => Err(AttemptError::Refused(answer.refusal_message())),
    }
}

fn failed(url: &str, unanswered: RequestError) -> EngineError {
    match unanswered {
        RequestError::Refused(message) => EngineError::Refused { url: url.to_owned(), message },
        RequestError::RetriesExhausted { attempts, seconds, last_error } => {
            EngineError::Away(format!(
                "the engine {url} did not answer in {attempts} attempts and {seconds:.0} s \
             (engine.patience_s); last error: {last_error}"
            ))
        }
    }
}

/// Returns the error of an answer that is not what the API's documents say, or that belongs to
/// something else.
pub(crate) fn unexpected(url: &str, problem: &str) -> EngineError {
    EngineError::Unusable(format!("the engine {url} answered what was not expected: {problem}"))
}
