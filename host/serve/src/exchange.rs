//! One HTTP exchange: authorization, routing, the request's body, and error responses.

use std::convert::Infallible;
use std::sync::Arc;

use corver_http::Token;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{
    ALLOW, AUTHORIZATION, CONNECTION, CONTENT_TYPE, EXPECT, HeaderName, HeaderValue, RETRY_AFTER,
    WWW_AUTHENTICATE,
};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::json;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::ServerLimits;
use crate::connections::{ConnectionLimiter, ConnectionSlot, Peer};
use crate::memory::{RequestBytes, RequestMemory};
use crate::metrics::Metrics;
use crate::route::{HttpError, HttpReply, Route};

/// Clients without a slot that are answered at the same time.
const MAX_TURNED_AWAY: usize = 256;

/// Most bytes of a refused body that are read and dropped, as a multiple of the route's limit.
const DISCARDED_BODIES: u64 = 4;

/// Paths that monitors request.
const MONITORS: [&str; 3] = ["/health", "/ready", "/metrics"];

/// Message to a client whose body was dropped.
const DROPPED: &str =
    "the request was incomplete when other requests needed its memory; send it again";

/// Condition of a server that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// The server accepts requests.
    Ready,
    /// The server accepts no more requests at present, for this reason.
    Busy(&'static str),
    /// The server cannot recover and has to be restarted, for this reason.
    Broken(&'static str),
}

/// State that all exchanges share.
pub(crate) struct Service {
    pub(crate) limits: ServerLimits,
    pub(crate) routes: Vec<Route>,
    pub(crate) health: Box<dyn Fn() -> Health + Send + Sync>,
    token: Option<Token>,
    metrics: Metrics,
    pub(crate) connections: Arc<ConnectionLimiter>,
    memory: Arc<RequestMemory>,
    pub(crate) turned_away: Arc<Semaphore>,
    /// Deadline of the last requests; `None` until the server is stopped.
    pub(crate) end: watch::Sender<Option<Instant>>,
}

/// Reply, and the memory of its request, which is held until the reply has been sent.
struct MeteredReply {
    reply: HttpReply,
    memory: Option<RequestBytes>,
}

/// Answers a request. Without a slot, only the requests of monitors are answered.
pub(crate) async fn respond(
    service: Arc<Service>,
    slot: Option<Arc<ConnectionSlot>>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut observed = service.metrics.start_request(service.label(request.uri().path()));
    let path = request.uri().path().to_owned();
    let answer = tokio::select! {
        biased;
        answer = service.answer(slot.as_deref(), request) => answer,
        () = service.wait_for_end() => Err(HttpError::busy("the server is stopping")),
    };
    let mut response = match answer {
        Ok(MeteredReply { reply: HttpReply { content_type, body }, memory }) => {
            response(StatusCode::OK, content_type, AccountedBody { body, _memory: memory })
        }
        Err(error) => service.error_response(&path, error),
    };
    // The rest of a body that did not arrive in time is not the next request.
    if service.end.borrow().is_some() || response.status() == StatusCode::REQUEST_TIMEOUT {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    observed.status = response.status().as_u16();
    Ok(response)
}

impl Service {
    pub(crate) fn new(limits: ServerLimits, token: Option<Token>, metrics: Metrics) -> Self {
        Self {
            limits,
            routes: Vec::new(),
            health: Box::new(|| Health::Ready),
            token,
            metrics,
            connections: ConnectionLimiter::new(&limits),
            memory: RequestMemory::new(limits.request_bytes),
            turned_away: Arc::new(Semaphore::new(MAX_TURNED_AWAY)),
            end: watch::Sender::new(None),
        }
    }

    async fn answer(
        &self,
        slot: Option<&ConnectionSlot>,
        request: Request<Incoming>,
    ) -> Result<MeteredReply, HttpError> {
        if let Some(result) = self.answer_monitor(&request) {
            return result.map(|reply| MeteredReply { reply, memory: None });
        }
        let Some(slot) = slot else {
            discard(request.into_body(), u64::MAX).await; // the caller limits the time
            return Err(HttpError::busy("all connections of this server are in use"));
        };
        self.authorize(&request)?;
        let route = self.find_route(&request)?;
        let deadline = Instant::now() + self.limits.time;
        // A client that waits for a status before it sends the body gets the refusal as that.
        let waits = request.headers().contains_key(EXPECT);
        let mut incoming = request.into_body();
        let reading = self.read_body(&mut incoming, slot.peer, route.body_bytes);
        let read = timeout_at(deadline, reading)
            .await
            .unwrap_or_else(|_| Err(late("the request did not arrive in time")));
        // What is late, or had to give way, is not waited for any longer.
        if let Err(refused) = &read
            && refused.status != StatusCode::REQUEST_TIMEOUT
            && !waits
        {
            let max_bytes = (route.body_bytes as u64).saturating_mul(DISCARDED_BODIES);
            // The refusal is sent whether the rest arrives or not.
            let _ = timeout_at(deadline, discard(incoming, max_bytes)).await;
        }
        let (body, memory) = read?;
        let _busy = slot.start_request();
        let reply = (route.handler)(body).await?;
        Ok(MeteredReply { reply, memory: Some(memory) })
    }

    /// Answers the request of a monitor; `None` if it is another request.
    fn answer_monitor(&self, request: &Request<Incoming>) -> Option<Result<HttpReply, HttpError>> {
        if request.method() != Method::GET {
            return None;
        }
        let is_ending = self.end.borrow().is_some();
        let answer = match (request.uri().path(), (self.health)()) {
            ("/health" | "/ready", Health::Broken(problem)) => Err(HttpError::internal(problem)),
            ("/health", _) => Ok(HttpReply::text("text/plain", "alive\n".to_owned())),
            ("/ready", _) if is_ending => Err(HttpError::busy("the server is stopping")),
            ("/ready", Health::Busy(problem)) => Err(HttpError::busy(problem)),
            ("/ready", Health::Ready) => Ok(HttpReply::text("text/plain", "ready\n".to_owned())),
            ("/metrics", _) => self.authorize(request).map(|()| self.metrics.encode()),
            _ => return None,
        };
        Some(answer)
    }

    fn authorize(&self, request: &Request<Incoming>) -> Result<(), HttpError> {
        let Some(token) = &self.token else { return Ok(()) };
        let message = match request.headers().get(AUTHORIZATION) {
            Some(header) if token.is_in_header(header.as_bytes()) => return Ok(()),
            Some(_) => "the bearer token is not the one of this server",
            None => "this server requires a bearer token",
        };
        Err(HttpError::new(StatusCode::UNAUTHORIZED, message))
    }

    fn find_route<'s>(&'s self, request: &Request<Incoming>) -> Result<&'s Route, HttpError> {
        let path = request.uri().path();
        let routes = self.routes_at(path);
        if let Some(route) = routes.iter().find(|route| route.method == request.method()) {
            return Ok(route);
        }
        if routes.is_empty() {
            let message = format!("there is {}", list(self.routes.iter()));
            return Err(HttpError::new(StatusCode::NOT_FOUND, message));
        }
        let message = format!("there is {}", list(routes.into_iter()));
        Err(HttpError::new(StatusCode::METHOD_NOT_ALLOWED, message))
    }

    fn routes_at(&self, path: &str) -> Vec<&Route> {
        self.routes.iter().filter(|route| route.path == path).collect()
    }

    /// Returns the name of a path in metrics. There are only as many as routes, whatever paths
    /// clients request.
    fn label(&self, path: &str) -> &'static str {
        let routes = self.routes.iter().map(|route| route.path);
        MONITORS.into_iter().chain(routes).find(|known| *known == path).unwrap_or("other")
    }

    /// Reads a body of a peer, and returns it with its memory.
    async fn read_body(
        &self,
        incoming: &mut Incoming,
        peer: Peer,
        limit: usize,
    ) -> Result<(Bytes, RequestBytes), HttpError> {
        if incoming.size_hint().lower() > limit as u64 {
            return Err(too_long(limit));
        }
        let mut body = Vec::new();
        let (memory, mut dropped) = self.memory.start(peer);
        loop {
            let next = tokio::select! {
                biased;
                _ = &mut dropped => return Err(late(DROPPED)),
                next = incoming.frame() => next,
            };
            let Some(frame) = next else { break };
            let frame = frame.map_err(|error| {
                HttpError::bad_request(format!("the request broke off: {error}"))
            })?;
            let Ok(data) = frame.into_data() else { continue };
            if body.len() + data.len() > limit {
                return Err(too_long(limit));
            }
            memory
                .reserve(data.len())
                .map_err(|_| HttpError::busy("too many requests are being answered"))?;
            body.extend_from_slice(&data);
        }
        memory.finish().map_err(|_| late(DROPPED))?;
        Ok((body.into(), memory))
    }

    /// Completes at the deadline of the last requests; never, unless the server is stopped.
    async fn wait_for_end(&self) {
        let end = self.end.subscribe().wait_for(Option::is_some).await.ok().and_then(|end| *end);
        match end {
            Some(end) => sleep_until(end).await,
            None => std::future::pending().await,
        }
    }

    fn error_response(&self, path: &str, error: HttpError) -> Response<Full<Bytes>> {
        let HttpError { status, message } = error;
        tracing::debug!(%status, message, "refused");
        let HttpReply { content_type, body } = HttpReply::json(&json!({ "error": message }));
        let mut response = response(status, content_type, body);
        if let Some((name, value)) = self.error_header(path, status) {
            response.headers_mut().insert(name, value);
        }
        response
    }

    /// Returns the header that HTTP prescribes for a status.
    fn error_header(&self, path: &str, status: StatusCode) -> Option<(HeaderName, HeaderValue)> {
        match status {
            StatusCode::SERVICE_UNAVAILABLE => Some((RETRY_AFTER, HeaderValue::from_static("1"))),
            StatusCode::METHOD_NOT_ALLOWED => {
                let routes = self.routes_at(path);
                let methods: Vec<&str> = routes.iter().map(|route| route.method.as_str()).collect();
                Some((ALLOW, HeaderValue::try_from(methods.join(", ")).ok()?))
            }
            StatusCode::UNAUTHORIZED => {
                Some((WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")))
            }
            _ => None,
        }
    }
}

fn late(problem: &str) -> HttpError {
    HttpError::new(StatusCode::REQUEST_TIMEOUT, problem)
}

fn list<'a>(routes: impl Iterator<Item = &'a Route>) -> String {
    let names: Vec<String> =
        routes.map(|route| format!("{} {}", route.method, route.path)).collect();
    names.join(", ")
}

fn too_long(limit: usize) -> HttpError {
    HttpError::too_large(format!("the request is longer than {limit} bytes"))
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

/// Body that holds the memory of its request until it has been sent.
struct AccountedBody {
    body: Vec<u8>,
    _memory: Option<RequestBytes>,
}

impl AsRef<[u8]> for AccountedBody {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

/// Reads up to `max_bytes` of a body and drops them: a client may read no answer while it is still
/// sending. A body that announces more is not read.
async fn discard(mut body: Incoming, max_bytes: u64) {
    let mut remaining = max_bytes;
    while body.size_hint().lower() <= remaining
        && let Some(Ok(frame)) = body.frame().await
    {
        let num_bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
        let Some(rest) = remaining.checked_sub(num_bytes) else { return };
        remaining = rest;
    }
}
