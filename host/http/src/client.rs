//! One exchange with a server.

use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde_json::Value;
use ureq::http::header::{AUTHORIZATION, CONTENT_TYPE};
use ureq::http::{HeaderValue, Response, StatusCode};
use ureq::{Agent, Body, RequestBuilder};

use crate::{Host, Token, UrlError};

/// Bytes of an answer that are read, unless more are expected.
const ANSWER_BYTES: u64 = 1 << 20;

/// How an exchange failed.
#[derive(Debug)]
pub enum Failure {
    /// Another attempt may do better, after this time at the earliest.
    Passing {
        /// What went wrong.
        problem: String,
        /// What the server asks for.
        retry_after: Duration,
    },
    /// It may not.
    Refused(String),
}

impl Failure {
    /// Another attempt may do better at once.
    pub fn passing(problem: impl Into<String>) -> Self {
        Self::Passing { problem: problem.into(), retry_after: Duration::ZERO }
    }
}

/// What a server sent.
#[derive(Debug)]
pub struct Answer {
    /// At most 1 MiB, or what [`Client::with_answers_of`] allows.
    pub body: Vec<u8>,
    status: StatusCode,
    retry_after: Duration,
}

impl Answer {
    /// Whether the state is 2xx.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.status.is_success()
    }

    /// Whether the server does not accept the token, or wants one.
    #[must_use]
    pub fn is_unauthorized(&self) -> bool {
        self.status == StatusCode::UNAUTHORIZED
    }

    /// Whether the server does not know what was asked for.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.status == StatusCode::NOT_FOUND
    }

    /// Whether the server asks for smaller requests.
    #[must_use]
    pub fn is_too_large(&self) -> bool {
        self.status == StatusCode::PAYLOAD_TOO_LARGE
    }

    /// The failure of a request that the server will not answer.
    #[must_use]
    pub fn refusal(&self) -> Failure {
        let says = self.error().unwrap_or_else(|| excerpt(&self.body));
        Failure::Refused(format!("status {}: {says}", self.status))
    }

    /// What the body says is wrong: `{"error": "…"}`, or `{"error": {"message": "…"}}`.
    fn error(&self) -> Option<String> {
        let body: Value = serde_json::from_slice(&self.body).ok()?;
        let error = &body["error"];
        error.as_str().or_else(|| error["message"].as_str()).map(str::to_owned)
    }

    /// The code of an error, where the body has one: `{"error": {"code": "…"}}`.
    #[must_use]
    pub fn error_code(&self) -> Option<String> {
        let body: Value = serde_json::from_slice(&self.body).ok()?;
        body["error"]["code"].as_str().map(str::to_owned)
    }

    /// The failure of a server that is busy or broken: the states 408, 429 and 5xx.
    #[must_use]
    pub fn passing(&self) -> Option<Failure> {
        let status = self.status;
        let is_passing = status.is_server_error()
            || [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS].contains(&status);
        let problem = || match self.error() {
            Some(error) => format!("status {status}: {error}"),
            None => format!("status {status}"),
        };
        is_passing.then(|| Failure::Passing { problem: problem(), retry_after: self.retry_after })
    }
}

/// A client of one URL.
#[derive(Debug)]
pub struct Client {
    url: String,
    agent: Agent,
    authorization: Option<HeaderValue>,
    answer_bytes: u64,
}

impl Client {
    /// A client that keeps so many connections, and gives an attempt so much time.
    ///
    /// # Errors
    /// What is wrong with the URL.
    pub fn new(
        url: &str,
        connections: usize,
        timeout: Duration,
        token: Option<&Token>,
    ) -> Result<Self, UrlError> {
        let host = Host::of(url)?;
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0) // a POST that was redirected would arrive as something else
            .max_redirects_will_error(false)
            .max_idle_connections_per_host(connections)
            .timeout_global(Some(timeout))
            .user_agent(concat!("corver/", env!("CARGO_PKG_VERSION")));
        if host.is_loopback() {
            config = config.proxy(None);
        }
        let authorization = token.map(|token| {
            let mut header =
                HeaderValue::from_str(&token.header()).expect("a token has only visible ASCII");
            header.set_sensitive(true); // logs leave it out
            header
        });
        let agent = config.build().new_agent();
        Ok(Self { url: url.to_owned(), agent, authorization, answer_bytes: ANSWER_BYTES })
    }

    /// The same client, which reads answers of so many bytes; a longer one has broken off.
    #[must_use]
    pub fn with_answers_of(self, bytes: u64) -> Self {
        Self { answer_bytes: bytes, ..self }
    }

    /// The URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Sends a request in JSON.
    ///
    /// # Errors
    /// A connection that is lost, or takes too long.
    pub fn post(&self, request: &impl Serialize) -> Result<Answer, Failure> {
        let request = serde_json::to_vec(request).expect("a request is plain JSON");
        let post =
            self.authorized(self.agent.post(&self.url)).header(CONTENT_TYPE, "application/json");
        self.quietly(|| read(post.send(&request), self.answer_bytes))
    }

    /// Asks for the URL itself. Not every server answers that: a body that cannot be read is empty.
    ///
    /// # Errors
    /// A connection that is lost, or takes too long.
    pub fn get(&self) -> Result<Answer, Failure> {
        let response = self.quietly(|| self.authorized(self.agent.get(&self.url)).call());
        let mut response = response.map_err(|error| Failure::passing(error.to_string()))?;
        let body = response
            .body_mut()
            .with_config()
            .limit(self.answer_bytes)
            .read_to_vec()
            .unwrap_or_default();
        Ok(Answer { status: response.status(), body, retry_after: retry_after(&response) })
    }

    /// Makes a request. With a token nothing of it is logged: ureq shows whole exchanges, byte by
    /// byte, at the level `trace`.
    fn quietly<T>(&self, request: impl FnOnce() -> T) -> T {
        match self.authorization {
            Some(_) => tracing::subscriber::with_default(
                tracing::subscriber::NoSubscriber::default(),
                request,
            ),
            None => request(),
        }
    }

    fn authorized<B>(&self, request: RequestBuilder<B>) -> RequestBuilder<B> {
        match &self.authorization {
            Some(header) => request.header(AUTHORIZATION, header),
            None => request,
        }
    }
}

fn read(response: Result<Response<Body>, ureq::Error>, most: u64) -> Result<Answer, Failure> {
    let mut response = response.map_err(|error| Failure::passing(error.to_string()))?;
    let body = response.body_mut().with_config().limit(most).read_to_vec();
    let body = body.map_err(|error| Failure::passing(format!("the answer broke off: {error}")))?;
    Ok(Answer { status: response.status(), body, retry_after: retry_after(&response) })
}

/// How long the server asks to wait.
fn retry_after(response: &Response<Body>) -> Duration {
    let header = response.headers().get("retry-after").and_then(|header| header.to_str().ok());
    header.and_then(|header| wait_until(header, SystemTime::now())).unwrap_or_default()
}

/// What a `Retry-After` header asks for: seconds, or a date. `None` where it is neither.
fn wait_until(header: &str, now: SystemTime) -> Option<Duration> {
    if let Ok(seconds) = header.trim().parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(header.trim()).ok()?;
    Some(date.duration_since(now).unwrap_or_default()) // no wait for a date in the past
}

/// The start of something that was not expected.
#[must_use]
pub fn excerpt(body: &[u8]) -> String {
    const SHOWN: usize = 120;
    let text = String::from_utf8_lossy(body);
    let start: String = text.trim().chars().take(SHOWN).collect();
    if start.is_empty() { "nothing".to_owned() } else { format!("{start:?}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_parses_seconds_or_date() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        assert_eq!(wait_until("7", now), Some(Duration::from_secs(7)));
        let in_a_minute = httpdate::fmt_http_date(now + Duration::from_secs(60));
        assert_eq!(wait_until(&in_a_minute, now), Some(Duration::from_secs(60)));
        assert_eq!(
            wait_until(&httpdate::fmt_http_date(SystemTime::UNIX_EPOCH), now),
            Some(Duration::ZERO)
        );
        assert_eq!(wait_until("soon", now), None);
    }
}
