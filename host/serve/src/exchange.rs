//! One request and its answer: token, route, body, and what the client is told where there is no
//! answer.

use std::convert::Infallible;
use std::sync::Arc;

use corver_http::Token;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{
    ALLOW, AUTHORIZATION, CONNECTION, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, sleep_until, timeout};

use crate::Limits;
use crate::metrics::Metrics;
use crate::places::{Place, Places};
use crate::route::{Refusal, Reply, Route};

/// Clients that are told at the same time that there is no place for them.
const TURNED_AWAY: usize = 256;

/// How a server is, besides that it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// It takes requests.
    Ready,
    /// It does not take more requests now, and says why.
    Busy(&'static str),
    /// It will never answer again and has to be restarted, and says why.
    Broken(&'static str),
}

/// Everything that a request meets.
pub(crate) struct Service {
    pub(crate) limits: Limits,
    pub(crate) routes: Vec<Route>,
    pub(crate) health: Box<dyn Fn() -> Health + Send + Sync>,
    token: Option<Token>,
    metrics: Metrics,
    pub(crate) places: Arc<Places>,
    /// A permit for each byte of the requests that are being read or answered.
    memory: Arc<Semaphore>,
    pub(crate) turned_away: Arc<Semaphore>,
    /// When the last requests must have been answered, once that is known.
    pub(crate) end: watch::Sender<Option<Instant>>,
}

/// An answer, and the memory that its request holds until the answer has left.
type Answer = (Reply, Option<OwnedSemaphorePermit>);

/// Answers a request. Where there is no place for it, only what a monitor asks.
pub(crate) async fn respond(
    service: Arc<Service>,
    place: Option<Arc<Place>>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut observed = service.metrics.request(service.label(request.uri().path()));
    let path = request.uri().path().to_owned();
    let answer = tokio::select! {
        biased;
        answer = service.answer(place.as_deref(), request) => answer,
        () = service.is_over() => Err(Refusal::busy("the server is stopping")),
    };
    let mut response = match answer {
        Ok((Reply { content_type, body }, held)) => {
            response(StatusCode::OK, content_type, Sent { body, _held: held })
        }
        Err(refusal) => service.refuse(&path, refusal),
    };
    if service.end.borrow().is_some() {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    observed.status = response.status().as_u16();
    Ok(response)
}

impl Service {
    pub(crate) fn new(limits: Limits, token: Option<Token>, metrics: Metrics) -> Self {
        Self {
            limits,
            routes: Vec::new(),
            health: Box::new(|| Health::Ready),
            token,
            metrics,
            places: Places::new(&limits),
            memory: Arc::new(Semaphore::new(limits.request_bytes.min(Semaphore::MAX_PERMITS))),
            turned_away: Arc::new(Semaphore::new(TURNED_AWAY)),
            end: watch::Sender::new(None),
        }
    }

    async fn answer(
        &self,
        place: Option<&Place>,
        request: Request<Incoming>,
    ) -> Result<Answer, Refusal> {
        if let Some(told) = self.monitor(&request) {
            return told.map(|reply| (reply, None));
        }
        let Some(place) = place else {
            discard(request.into_body()).await;
            return Err(Refusal::busy("every connection that this server has is at work"));
        };
        self.admits(&request)?;
        let route = self.find(&request)?;
        let body = self.read(request.into_body(), route.body_bytes);
        let late =
            |_| Refusal::new(StatusCode::REQUEST_TIMEOUT, "the request did not arrive in time");
        let (body, held) = timeout(self.limits.time, body).await.map_err(late)??;
        let _working = place.work();
        (route.handler)(body).await.map(|reply| (reply, Some(held)))
    }

    /// What monitors ask.
    fn monitor(&self, request: &Request<Incoming>) -> Option<Result<Reply, Refusal>> {
        if request.method() != Method::GET {
            return None;
        }
        let told = |word: &str| Ok(Reply::text("text/plain", format!("{word}\n")));
        let ending = self.end.borrow().is_some();
        let answer = match (request.uri().path(), (self.health)()) {
            ("/health" | "/ready", Health::Broken(problem)) => Err(Refusal::failed(problem)),
            ("/health", _) => told("alive"),
            ("/ready", _) if ending => Err(Refusal::busy("the server is stopping")),
            ("/ready", Health::Busy(problem)) => Err(Refusal::busy(problem)),
            ("/ready", Health::Ready) => told("ready"),
            ("/metrics", _) => self.admits(request).map(|()| self.metrics.show()),
            _ => return None,
        };
        Some(answer)
    }

    fn admits(&self, request: &Request<Incoming>) -> Result<(), Refusal> {
        let Some(token) = &self.token else { return Ok(()) };
        let message = match request.headers().get(AUTHORIZATION) {
            Some(header) if token.is_in_header(header.as_bytes()) => return Ok(()),
            Some(_) => "this server's bearer token is another one",
            None => "this server asks for a bearer token",
        };
        Err(Refusal::new(StatusCode::UNAUTHORIZED, message))
    }

    fn find<'s>(&'s self, request: &Request<Incoming>) -> Result<&'s Route, Refusal> {
        let path = request.uri().path();
        if let Some(route) = self.at(path).find(|route| route.method == request.method()) {
            return Ok(route);
        }
        let takes = |routes: &mut dyn Iterator<Item = &Route>| {
            routes
                .map(|route| format!("{} {}", route.method, route.path))
                .collect::<Vec<_>>()
                .join(", ")
        };
        Err(match self.at(path).next() {
            Some(_) => Refusal::new(
                StatusCode::METHOD_NOT_ALLOWED,
                format!("there is {}", takes(&mut self.at(path))),
            ),
            None => Refusal::new(
                StatusCode::NOT_FOUND,
                format!("there is {}", takes(&mut self.routes.iter())),
            ),
        })
    }

    fn at<'s>(&'s self, path: &str) -> impl Iterator<Item = &'s Route> {
        self.routes.iter().filter(move |route| route.path == path)
    }

    /// What metrics call a path: only as many names as there are routes.
    fn label(&self, path: &str) -> &'static str {
        let monitors = ["/health", "/ready", "/metrics"];
        monitors
            .into_iter()
            .find(|monitor| *monitor == path)
            .or(self.at(path).map(|route| route.path).next())
            .unwrap_or("other")
    }

    /// A body, with the memory that it takes.
    async fn read(
        &self,
        mut body: Incoming,
        limit: usize,
    ) -> Result<(Bytes, OwnedSemaphorePermit), Refusal> {
        let too_long = || Refusal::too_large(format!("the request is longer than {limit} bytes"));
        if body.size_hint().lower() > limit as u64 {
            return Err(too_long());
        }
        let take = |bytes: usize| {
            let permit = self
                .memory
                .clone()
                .try_acquire_many_owned(u32::try_from(bytes).unwrap_or(u32::MAX));
            permit.map_err(|_| Refusal::busy("too many requests are being answered"))
        };
        let (mut whole, mut held) = (Vec::new(), take(0)?);
        while let Some(frame) = body.frame().await {
            let frame =
                frame.map_err(|error| Refusal::bad(format!("the request broke off: {error}")))?;
            let Ok(part) = frame.into_data() else { continue };
            if whole.len() + part.len() > limit {
                return Err(too_long());
            }
            held.merge(take(part.len())?);
            whole.extend_from_slice(&part);
        }
        Ok((whole.into(), held))
    }

    /// Ends with the time for the last requests; never, unless the server is told to stop.
    async fn is_over(&self) {
        let end = self.end.subscribe().wait_for(Option::is_some).await.ok().and_then(|end| *end);
        match end {
            Some(end) => sleep_until(end).await,
            None => std::future::pending().await,
        }
    }

    fn refuse(&self, path: &str, Refusal { status, message }: Refusal) -> Response<Full<Bytes>> {
        tracing::debug!(%status, message, "refused");
        let Reply { content_type, body } = Reply::json(&json!({ "error": message }));
        let mut response = response(status, content_type, body);
        let methods =
            || self.at(path).map(|route| route.method.as_str()).collect::<Vec<_>>().join(", ");
        let further = match status {
            StatusCode::SERVICE_UNAVAILABLE => Some((RETRY_AFTER, HeaderValue::from_static("1"))),
            StatusCode::METHOD_NOT_ALLOWED => {
                HeaderValue::try_from(methods()).ok().map(|methods| (ALLOW, methods))
            }
            StatusCode::UNAUTHORIZED => {
                Some((WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")))
            }
            _ => None,
        };
        response.headers_mut().extend(further);
        response
    }
}

fn response(
    status: StatusCode,
    content_type: &'static str,
    body: impl AsRef<[u8]> + Send + 'static,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(Bytes::from_owner(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// A body that holds its request's memory until it has been sent.
struct Sent {
    body: Vec<u8>,
    _held: Option<OwnedSemaphorePermit>,
}

impl AsRef<[u8]> for Sent {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

/// Reads a body and forgets it: a client that is still sending may not hear an answer.
async fn discard(mut body: Incoming) {
    while let Some(Ok(_)) = body.frame().await {}
}
