//! Routes whose requests are answered one after the other, with a state that they share.

use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::reward::{parse_request, run_blocking};
use crate::{HttpError, HttpReply, Route};

/// Returns a route for POST with bodies of at most `body_bytes`. `form` describes a valid request in
/// the error message.
pub fn exclusive_route<S, Q, A>(
    path: &'static str,
    body_bytes: usize,
    form: &'static str,
    state: S,
    answer: fn(&mut S, Q) -> Result<A, HttpError>,
) -> Route
where
    S: Send + 'static,
    Q: DeserializeOwned + Send + 'static,
    A: Serialize + Send + 'static,
{
    let state = Arc::new(Mutex::new(state));
    Route::post(path, body_bytes, move |body| {
        let state = state.clone();
        async move {
            let request: Q = parse_request(body, form).await?;
            run_blocking(move || {
                let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
                answer(&mut state, request).map(|reply| HttpReply::json(&reply))
            })
            .await?
        }
    })
}
