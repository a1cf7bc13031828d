//! One exchange with a server, without retries.

use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde_json::Value;
use tracing::subscriber::NoSubscriber;
use ureq::http::header::{AUTHORIZATION, CONTENT_TYPE};
use ureq::http::{HeaderValue, Response, StatusCode};
use ureq::{Agent, Body, RequestBuilder};

use crate::foreign::Redaction;
use crate::{Host, Token, UrlError, shorten_foreign};

/// Default limit of a response body, bytes.
const MAX_RESPONSE_BYTES: u64 = 1 << 20;

/// The failure of one attempt.
#[derive(Debug)]
pub enum AttemptError {
    /// A retry may succeed: the connection failed, or the server is busy.
    Transient {
        /// Cause of the failure, for the log.
        problem: String,
        /// Shortest wait before a retry: the server's `Retry-After`, or zero.
        retry_after: Duration,
    },
    /// The server refuses the request, with this message. A retry is of no use.
    Refused(String),
}

impl AttemptError {
    /// Creates a transient error without a `Retry-After`.
    pub fn transient(problem: impl Into<String>) -> Self {
        Self::Transient { problem: problem.into(), retry_after: Duration::ZERO }
    }
}

/// A server's response to one request.
#[derive(Debug)]
pub struct HttpResponse {
    /// Response body without the client's token; at most 1 MiB, or the limit of
    /// [`Client::with_max_response_bytes`].
    pub body: Vec<u8>,
    status: StatusCode,
    retry_after: Duration,
}

impl HttpResponse {
    pub(crate) fn new(response: &Response<Body>, body: Vec<u8>) -> Self {
        let header = response.headers().get("retry-after").and_then(|value| value.to_str().ok());
        let retry_after = header
            .and_then(|value| parse_retry_after(value, SystemTime::now()))
            .unwrap_or_default();
        Self { body, status: response.status(), retry_after }
    }

    /// True if the status is 2xx.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.status.is_success()
    }

    /// True if the status is 401: the token is missing or not accepted.
    #[must_use]
    pub fn is_unauthorized(&self) -> bool {
        self.status == StatusCode::UNAUTHORIZED
    }

    /// True if the status is 404.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.status == StatusCode::NOT_FOUND
    }

    /// True if the status is 413: the request is too large and may be split.
    #[must_use]
    pub fn is_too_large(&self) -> bool {
        self.status == StatusCode::PAYLOAD_TOO_LARGE
    }

    /// Returns the message of a refused request: the status, and the error that the body reports.
    #[must_use]
    pub fn refusal_message(&self) -> String {
        let error = self.error_message().unwrap_or_else(|| excerpt(&self.body));
        format!("status {}: {error}", self.status)
    }

    /// Returns the error that the body reports: `{"error": "…"}` or `{"error": {"message": "…"}}`.
    fn error_message(&self) -> Option<String> {
        let body: Value = serde_json::from_slice(&self.body).ok()?;
        let error = &body["error"];
        error.as_str().or_else(|| error["message"].as_str()).map(shorten_foreign)
    }

    /// Returns the error code of the body, if it has one: `{"error": {"code": "…"}}`.
    #[must_use]
    pub fn error_code(&self) -> Option<String> {
        let body: Value = serde_json::from_slice(&self.body).ok()?;
        body["error"]["code"].as_str().map(str::to_owned)
    }

    /// Returns the transient error of a server that is busy or broken: status 408, 429 or 5xx.
    #[must_use]
    pub fn transient_error(&self) -> Option<AttemptError> {
        let status = self.status;
        let is_transient = status.is_server_error()
            || [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS].contains(&status);
        if !is_transient {
            return None;
        }
        let problem = match self.error_message() {
            Some(error) => format!("status {status}: {error}"),
            None => format!("status {status}"),
        };
        Some(AttemptError::Transient { problem, retry_after: self.retry_after })
    }
}

/// A client of one URL, with a pool of connections.
#[derive(Debug)]
pub struct Client {
    url: String,
    agent: Agent,
    authorization: Option<HeaderValue>,
    redaction: Redaction,
    max_response_bytes: u64,
}

impl Client {
    /// Creates a client that keeps up to `connections` idle connections. `timeout` limits one
    /// attempt.
    ///
    /// # Errors
    /// Fails if the URL is invalid.
    pub fn new(
        url: &str,
        connections: usize,
        timeout: Duration,
        token: Option<&Token>,
    ) -> Result<Self, UrlError> {
        let host = Host::from_url(url)?;
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0) // a redirected POST would arrive as a GET
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
            header.set_sensitive(true); // redacted in logs
            header
        });
        let agent = config.build().new_agent();
        let max_response_bytes = MAX_RESPONSE_BYTES;
        let redaction = Redaction::new(token);
        Ok(Self { url: url.to_owned(), agent, authorization, redaction, max_response_bytes })
    }

    /// Sets the limit of a response body. A longer body is a transient error.
    #[must_use]
    pub fn with_max_response_bytes(self, max_response_bytes: u64) -> Self {
        Self { max_response_bytes, ..self }
    }

    /// Returns the URL that requests are sent to.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Sends a POST request with a JSON body.
    ///
    /// # Errors
    /// Fails with a transient error if the connection fails or times out.
    pub fn post(&self, request: &impl Serialize) -> Result<HttpResponse, AttemptError> {
        let json = serde_json::to_vec(request).expect("a request is plain JSON");
        let post =
            self.authorized(self.agent.post(&self.url)).header(CONTENT_TYPE, "application/json");
        self.without_trace(|| {
            let mut response =
                post.send(&json).map_err(|error| AttemptError::transient(error.to_string()))?;
            let body = self.read_body(&mut response).map_err(|error| {
                AttemptError::transient(format!("failed to read the response body: {error}"))
            })?;
            Ok(HttpResponse::new(&response, body))
        })
    }

    /// Sends a GET request. A body that cannot be read is empty: not every server supports GET.
    ///
    /// # Errors
    /// Fails with a transient error if the connection fails or times out.
    pub fn get(&self) -> Result<HttpResponse, AttemptError> {
        let get = self.authorized(self.agent.get(&self.url));
        let mut response = self
            .without_trace(|| get.call())
            .map_err(|error| AttemptError::transient(error.to_string()))?;
        let body = self.read_body(&mut response).unwrap_or_default();
        Ok(HttpResponse::new(&response, body))
    }

    fn read_body(&self, response: &mut Response<Body>) -> Result<Vec<u8>, ureq::Error> {
        let limit = self.max_response_bytes;
        let body = response.body_mut().with_config().limit(limit).read_to_vec()?;
        Ok(self.redaction.apply(body))
    }

    /// Runs a request without logging if there is a token: at the level `trace`, ureq logs each
    /// exchange byte by byte, the token included.
    fn without_trace<T>(&self, request: impl FnOnce() -> T) -> T {
        match self.authorization {
            Some(_) => tracing::subscriber::with_default(NoSubscriber::default(), request),
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

/// Returns the wait of a `Retry-After` header, which is in seconds or a date; `None` if it is
/// neither.
fn parse_retry_after(header: &str, now: SystemTime) -> Option<Duration> {
    if let Ok(seconds) = header.trim().parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(header.trim()).ok()?;
    Some(date.duration_since(now).unwrap_or_default()) // no wait for a date in the past
}

/// Returns the quoted start of an unexpected body, for messages; `nothing` if it is blank.
#[must_use]
pub fn excerpt(body: &[u8]) -> String {
    const MAX_CHARS: usize = 120;
    let text = String::from_utf8_lossy(body);
    let start: String = text.trim().chars().take(MAX_CHARS).collect();
    if start.is_empty() { "nothing".to_owned() } else { format!("{start:?}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_parses_seconds_or_date() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        assert_eq!(parse_retry_after("7", now), Some(Duration::from_secs(7)));
        let in_a_minute = httpdate::fmt_http_date(now + Duration::from_secs(60));
        assert_eq!(parse_retry_after(&in_a_minute, now), Some(Duration::from_secs(60)));
        assert_eq!(
            parse_retry_after(&httpdate::fmt_http_date(SystemTime::UNIX_EPOCH), now),
            Some(Duration::ZERO)
        );
        assert_eq!(parse_retry_after("soon", now), None);
    }
}
