//! Download of a public file.

use std::time::Duration;

use ureq::Agent;

use crate::client::HttpResponse;
use crate::{AttemptError, FirstFailure, Host, RequestError, RetryPolicy, UrlError};

/// Longest time of one attempt, redirects and body included.
const ATTEMPT: Duration = Duration::from_secs(120);

/// Time in which failed attempts are repeated.
const RETRIES: Duration = Duration::from_secs(30);

/// An error of [`download`].
#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    /// The URL is invalid.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// The server does not have the file, or it is too large.
    #[error("{url}: {message}")]
    Refused {
        /// URL of the file.
        url: String,
        /// Reason.
        message: String,
    },
    /// The server could not be reached, or did not send the whole file.
    #[error("{url}: {attempts} attempts in {seconds:.0} s failed; the last error: {last_error}")]
    Unreachable {
        /// URL of the file.
        url: String,
        /// Number of attempts; 1 or more.
        attempts: u32,
        /// Time since the first attempt, seconds.
        seconds: f64,
        /// Error of the last attempt.
        last_error: String,
    },
}

/// Returns the bytes of a public file: no token is sent. Up to 10 redirects are followed; one from
/// HTTPS to HTTP is an error.
///
/// # Errors
/// Fails if the URL is invalid, the server does not have the file or cannot be reached, or the file
/// has more than `max_bytes`.
pub fn download(url: &str, max_bytes: u64) -> Result<Vec<u8>, DownloadError> {
    let host = Host::from_url(url)?;
    let mut config = Agent::config_builder()
        .http_status_as_error(false)
        .https_only(host.is_encrypted)
        .timeout_global(Some(ATTEMPT))
        .user_agent(concat!("corver/", env!("CARGO_PKG_VERSION")));
    if host.is_loopback() {
        config = config.proxy(None);
    }
    let agent = config.build().new_agent();
    let batch = FirstFailure::<()>::default();
    let result = RetryPolicy::new(RETRIES, None)
        .run(url, &batch, || attempt(&agent, url, max_bytes))
        .map(|body| body.expect("no other request of the batch has failed"));
    result.map_err(|error| match error {
        RequestError::Refused(message) => DownloadError::Refused { url: url.to_owned(), message },
        RequestError::RetriesExhausted { attempts, seconds, last_error } => {
            DownloadError::Unreachable { url: url.to_owned(), attempts, seconds, last_error }
        }
    })
}

fn attempt(agent: &Agent, url: &str, max_bytes: u64) -> Result<Vec<u8>, AttemptError> {
    let as_attempt_error = |error: ureq::Error| match error {
        ureq::Error::BodyExceedsLimit(_) => {
            AttemptError::Refused(format!("the file has more than {max_bytes} bytes"))
        }
        ureq::Error::Io(_) | ureq::Error::Timeout(_) | ureq::Error::ConnectionFailed => {
            AttemptError::transient(error.to_string())
        }
        // Redirects, certificates, host names.
        _ => AttemptError::Refused(error.to_string()),
    };
    let mut response = agent.get(url).call().map_err(as_attempt_error)?;
    let body = response.body_mut().with_config().limit(max_bytes).read_to_vec();
    let response = HttpResponse::new(&response, body.map_err(as_attempt_error)?);
    match response.transient_error() {
        Some(error) => Err(error),
        None if response.is_success() => Ok(response.body),
        None => Err(AttemptError::Refused(response.refusal_message())),
    }
}
