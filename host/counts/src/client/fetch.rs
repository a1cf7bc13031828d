//! One exchange with a server of counts.

use corver_http::{Client, Failure, excerpt};
use serde::de::DeserializeOwned;

use crate::wire::{About, Answer, Counted, Counts, Reply, Request};

/// Asks for one count.
pub(super) fn count(client: &Client, request: &Request) -> Result<Counted, Failure> {
    let Answer { count, approx, exact, .. } = read(&client.post(request)?)?;
    Ok(Counted { count, approx, exact: exact.unwrap_or(!approx) })
}

/// Asks for so many counts; `None` where they are too many at once.
pub(super) fn counts(
    client: &Client,
    request: &Request,
    number: usize,
) -> Result<Option<Vec<Option<Counted>>>, Failure> {
    let answer = client.post(request)?;
    if number > 1 && answer.is_too_large() {
        return Ok(None);
    }
    let Counts { counts, .. } = read(&answer)?;
    match counts.len() {
        got if got == number => Ok(Some(counts)),
        got => Err(Failure::passing(format!("{got} counts for {number} queries"))),
    }
}

fn read<T: DeserializeOwned>(answer: &corver_http::Answer) -> Result<T, Failure> {
    if let Some(passing) = answer.passing() {
        return Err(passing);
    }
    match serde_json::from_slice(&answer.body) {
        Ok(Reply::Error { error }) => Err(Failure::Refused(error)),
        Ok(Reply::Answer(told)) if answer.is_success() => Ok(told),
        _ if answer.is_success() => Err(Failure::passing(format!(
            "no answer of Infini-gram's API, but {}",
            excerpt(&answer.body)
        ))),
        _ => Err(answer.refusal()),
    }
}

/// What the server says about itself; `None` where it is none of ours: others may have any status
/// for this. A server that says `Retry-After` is busy, and so is any that has a passing failure
/// where it `must_be_ours`.
pub(super) fn about(client: &Client, must_be_ours: bool) -> Result<Option<About>, Failure> {
    let answer = client.get()?;
    if answer.is_unauthorized() {
        return Err(Failure::Refused(excerpt(&answer.body)));
    }
    match answer.passing() {
        Some(Failure::Passing { problem, retry_after })
            if retry_after.is_zero() && !must_be_ours =>
        {
            tracing::warn!(
                url = client.url(),
                problem,
                "does not say what it serves, and is asked for one count at a time"
            );
        }
        Some(passing) => return Err(passing),
        None => {}
    }
    Ok(serde_json::from_slice(&answer.body).ok().filter(|_| answer.is_success()))
}
