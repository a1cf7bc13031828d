//! One exchange with a server of counts.

use corver_core::CountPrecision;
use corver_http::{AttemptError, Client, HttpResponse, excerpt};
use serde::de::DeserializeOwned;

use crate::wire::{ApiReply, CountReply, CountRequest, CountResult, Counts, ServerInfo};

/// Requests the count of one query.
pub(super) fn fetch_count(
    client: &Client,
    request: &CountRequest,
) -> Result<CountResult, AttemptError> {
    let CountReply { count, approx, precision, .. } = parse(&client.post(request)?)?;
    let by_flag = if approx { CountPrecision::Estimate } else { CountPrecision::Exact };
    Ok(CountResult { count, approx, precision: precision.unwrap_or(by_flag) })
}

/// Requests `num_queries` counts. Returns `None` if the server asks for a smaller request.
pub(super) fn fetch_counts(
    client: &Client,
    request: &CountRequest,
    num_queries: usize,
) -> Result<Option<Vec<Option<CountResult>>>, AttemptError> {
    let response = client.post(request)?;
    if num_queries > 1 && response.is_too_large() {
        return Ok(None);
    }
    let Counts { counts, .. } = parse(&response)?;
    match counts.len() {
        number if number == num_queries => Ok(Some(counts)),
        number => {
            Err(AttemptError::transient(format!("{number} counts for {num_queries} queries")))
        }
    }
}

fn parse<T: DeserializeOwned>(response: &HttpResponse) -> Result<T, AttemptError> {
    if let Some(transient) = response.transient_error() {
        return Err(transient);
    }
    match serde_json::from_slice(&response.body) {
        // The public API reports errors with status 200, too.
        Ok(ApiReply::Error { error }) => Err(AttemptError::Refused(error)),
        Ok(ApiReply::Success(reply)) if response.is_success() => Ok(reply),
        // A proxy's page, for example: a retry may reach the server.
        _ if response.is_success() => Err(AttemptError::transient(format!(
            "this is not a reply of Infini-gram's API: {}",
            excerpt(&response.body)
        ))),
        _ => Err(AttemptError::Refused(response.refusal_message())),
    }
}

/// Requests the server's description. Returns `None` if it has none: other servers of the API may
/// respond with any status. A server that sends `Retry-After` is only busy, and so is one with any
/// transient error if `info_required`.
pub(super) fn fetch_info(
    client: &Client,
    info_required: bool,
) -> Result<Option<ServerInfo>, AttemptError> {
    let response = client.get()?;
    if response.is_unauthorized() {
        return Err(AttemptError::Refused(excerpt(&response.body)));
    }
    match response.transient_error() {
        Some(AttemptError::Transient { problem, retry_after })
            if retry_after.is_zero() && !info_required =>
        {
            tracing::warn!(
                url = client.url(),
                problem,
                "the server does not describe itself; sending it one query per request"
            );
        }
        Some(transient) => return Err(transient),
        None => {}
    }
    Ok(serde_json::from_slice(&response.body).ok().filter(|_| response.is_success()))
}
