//! Infini-gram's HTTP API, answered from a local index: one machine with a big index serves many trainers, and programs
//! written for the public API need only another URL.

mod answer;
mod peers;

use std::convert::Infallible;
use std::future::Future;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use corver_corpus::Corpus;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use serde::Serialize;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_io_timeout::TimeoutStream;

use crate::Token;
use crate::wire::{About, COUNT, Reply};
use answer::Refusal;
use peers::{Peers, Place};

pub use answer::Limits;

/// How long connections are still taken once the server is told to end: some have been made that it has not seen yet.
const LAST_CONNECTIONS: Duration = Duration::from_millis(250);

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The address cannot be had.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The system does not give what a server needs.
    #[error("the server cannot {action}: {source}")]
    Run {
        /// What was tried.
        action: &'static str,
        /// The system's reason.
        source: std::io::Error,
    },
}

/// A server that has its address, and answers once it runs.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    service: Arc<Service>,
}

struct Service {
    corpus: Corpus,
    name: String,
    limits: Limits,
    /// What every request must have, if anything.
    token: Option<Token>,
    /// One per processor: counting does nothing but compute and read memory.
    counting: Arc<Semaphore>,
}

impl Server {
    /// Takes an address (port 0: any that is free) to serve `corpus` there under `name`, to everybody or to those who have the
    /// token.
    ///
    /// # Errors
    /// Where the address cannot be had.
    pub fn bind(
        corpus: Corpus,
        name: &str,
        address: SocketAddr,
        limits: Limits,
        token: Option<Token>,
    ) -> Result<Self, ServeError> {
        let listen = || {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            Ok((listener, address))
        };
        let (listener, address) = listen().map_err(|source| ServeError::Listen { address, source })?;
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let counting = Arc::new(Semaphore::new(processors));
        let service = Service { corpus, name: name.to_owned(), limits, token, counting };
        Ok(Self { listener, address, service: Arc::new(service) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until Ctrl-C or SIGTERM, as [`Server::run`] does.
    ///
    /// # Errors
    /// As [`Server::run`].
    pub fn run_until_interrupted(self) -> Result<(), ServeError> {
        self.run(async {
            let terminated = async {
                match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
                    Ok(mut signal) => signal.recv().await,
                    Err(_) => std::future::pending().await, // Ctrl-C still works
                }
            };
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminated => {}
            }
        })
    }

    /// Serves until `stop`; requests under way are then answered, within the time that any request has.
    ///
    /// # Errors
    /// Where the system gives no threads, or takes the socket away.
    pub fn run(self, stop: impl Future<Output = ()>) -> Result<(), ServeError> {
        let failed = |action| move |source| ServeError::Run { action, source };
        let runtime =
            tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(failed("start its threads"))?;
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(self.listener).map_err(failed("use its socket"))?;
            accept(listener, self.service, stop).await;
            Ok(())
        })?;
        runtime.shutdown_background(); // without waiting for counts that no client waits for
        Ok(())
    }
}

async fn accept(listener: tokio::net::TcpListener, service: Arc<Service>, stop: impl Future<Output = ()>) {
    let limits = service.limits;
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(limits.transfer); // idle connections end so as well
    let places = Arc::new(Semaphore::new(limits.connections));
    let peers = Peers::new(limits.connections_per_peer);
    let graceful = GracefulShutdown::new();
    let serve = |(stream, places): (TcpStream, (OwnedSemaphorePermit, Place))| {
        let _ = stream.set_nodelay(true); // only slower without
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(limits.transfer));
        let service = service.clone();
        let handle = service_fn(move |request| respond(service.clone(), request));
        let connection = graceful.watch(http.serve_connection(TokioIo::new(Box::pin(stream)), handle));
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection broke");
            }
            drop(places);
        });
    };
    let mut stop = std::pin::pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => break,
            connection = next(&listener, &places, &peers) => serve(connection),
        }
    }
    let last = Instant::now() + LAST_CONNECTIONS;
    while let Ok(connection) = timeout_at(last, next(&listener, &places, &peers)).await {
        serve(connection);
    }
    drop(listener);
    if timeout(limits.transfer + limits.time, graceful.shutdown()).await.is_err() {
        tracing::warn!("some requests were not answered in time");
    }
}

/// The next connection that there is a place for, and its places: one of all, and one of its peer's.
async fn next(
    listener: &tokio::net::TcpListener,
    places: &Arc<Semaphore>,
    peers: &Arc<Peers>,
) -> (TcpStream, (OwnedSemaphorePermit, Place)) {
    loop {
        let place = places.clone().acquire_owned().await.expect("the semaphore is never closed");
        match listener.accept().await {
            Ok((stream, peer)) => match peers.admit(peer.ip()) {
                Some(of_peer) => return (stream, (place, of_peer)),
                None => tracing::debug!(%peer, "closed: it has as many connections as one address may have"),
            },
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await; // out of file handles, perhaps: give some back
            }
        }
    }
}

async fn respond(service: Arc<Service>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let known = |token: &Token| token.is_in(request.headers().get(AUTHORIZATION).map(HeaderValue::as_bytes));
    let result = match (request.method(), request.uri().path()) {
        _ if !service.token.as_ref().is_none_or(known) => {
            Err(Refusal::new(StatusCode::UNAUTHORIZED, "this server answers those who have its token"))
        }
        (&Method::POST, "/") => count(&service, request).await,
        (&Method::GET, "/") => Ok(json(StatusCode::OK, &about(&service))),
        (_, "/") => Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "POST a JSON object to /")),
        _ => Err(Refusal::new(StatusCode::NOT_FOUND, "POST a JSON object to /")),
    };
    Ok(result.unwrap_or_else(|Refusal { status, message }| {
        tracing::debug!(%status, message, "refused");
        let mut response = json(status, &Reply::Error { error: message });
        let further = match status {
            StatusCode::SERVICE_UNAVAILABLE => Some((RETRY_AFTER, "1")),
            StatusCode::UNAUTHORIZED => Some((WWW_AUTHENTICATE, "Bearer")),
            StatusCode::METHOD_NOT_ALLOWED => Some((ALLOW, "GET, POST")),
            _ => None,
        };
        response.headers_mut().extend(further.map(|(name, value)| (name, HeaderValue::from_static(value))));
        response
    }))
}

/// Reads the request and counts, each within the time limit.
async fn count(service: &Arc<Service>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Refusal> {
    let Limits { body_bytes, time, transfer, .. } = service.limits;
    let body = match timeout(transfer, Limited::new(request.into_body(), body_bytes).collect()).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            let message = format!("the request is longer than {body_bytes} bytes");
            return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, message));
        }
        Ok(Err(error)) => return Err(Refusal::new(StatusCode::BAD_REQUEST, format!("the request broke off: {error}"))),
        Err(_) => return Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "the request did not arrive in time")),
    };
    let counted = async {
        let place = service.counting.clone().acquire_owned().await.expect("the semaphore is never closed");
        let service = service.clone();
        // A count that takes longer than its client waits keeps its place: no more run than there are processors.
        let work = tokio::task::spawn_blocking(move || {
            let answer = answer::answer(&service.corpus, &service.name, &service.limits, &body);
            drop(place);
            answer
        });
        work.await.map_err(|error| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?
    };
    match timeout(time, counted).await {
        Ok(answer) => answer.map(|answer| json(StatusCode::OK, &Reply::Count(answer))),
        Err(_) => {
            let message = format!("the query took longer than {} s", time.as_secs_f64());
            Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, message))
        }
    }
}

/// That the server is there, and what it has.
fn about(service: &Service) -> About {
    let info = service.corpus.index().info();
    About {
        index: service.name.clone(),
        documents: info.documents,
        tokens: info.tokens,
        tokenizer: info.tokenizer,
        query_types: vec![COUNT.to_owned()],
    }
}

fn json<T: Serialize>(status: StatusCode, value: &T) -> Response<Full<Bytes>> {
    let body = serde_json::to_vec(value).expect("answers are plain JSON");
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
