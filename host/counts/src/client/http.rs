//! One exchange with a server of counts.

use corver_http::{Client, Failure, excerpt};

use crate::wire::{About, Answer, Reply, Request};

pub(super) fn count(client: &Client, request: &Request) -> Result<Answer, Failure> {
    let answer = client.post(request)?;
    if let Some(passing) = answer.passing() {
        return Err(passing);
    }
    match serde_json::from_slice(&answer.body) {
        Ok(Reply::Error { error }) => Err(Failure::Refused(error)),
        Ok(Reply::Count(count)) if answer.is_success() => Ok(count),
        _ if answer.is_success() => {
            Err(Failure::passing(format!("no answer of Infini-gram's API, but {}", excerpt(&answer.body))))
        }
        _ => Err(answer.refusal()),
    }
}

/// What the server says about itself; `None` where it is none of ours: others may have any status for this.
pub(super) fn about(client: &Client) -> Result<Option<About>, Failure> {
    let answer = client.get()?;
    if answer.is_unauthorized() {
        return Err(Failure::Refused(excerpt(&answer.body)));
    }
    Ok(serde_json::from_slice(&answer.body).ok().filter(|_| answer.is_success()))
}
