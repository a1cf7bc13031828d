//! Infini-gram's HTTP API, answered from a local index: one machine with a big index serves many trainers, and programs
//! written for the public API need only another URL.

mod answer;
mod limits;
mod places;
mod stream;

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use corver_corpus::Corpus;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, AUTHORIZATION, CONNECTION, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use serde::Serialize;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::Token;
use crate::wire::{About, COUNT, Reply};
use answer::Refusal;
use places::{Place, Places};
use stream::Stream;

pub use limits::Limits;

/// Connections that the system keeps until they are accepted.
const BACKLOG: u32 = 1_024;

/// A shorter token can be guessed.
const MIN_TOKEN_CHARS: usize = 16;

/// How long open connections are still read from once the server is told to stop: what was sent before that has then arrived.
const LAST_CALL: Duration = Duration::from_millis(250);

/// How long the last answers may take to leave.
const FLUSH: Duration = Duration::from_secs(1);

/// Bytes of a request's head, and of answers to one client that wait in memory.
const BUFFER_BYTES: usize = 64 << 10;

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
    /// A limit has a value with which nothing could be answered.
    #[error("{limit} is 0; it must be at least 1")]
    Limit {
        /// The limit.
        limit: &'static str,
    },
    /// The token can be guessed.
    #[error(
        "the token has {chars} characters; a server needs {MIN_TOKEN_CHARS} or more, as `openssl rand -hex 32` makes them"
    )]
    ShortToken {
        /// How many it has.
        chars: usize,
    },
}

/// A server that has its address, and answers once it runs.
pub struct Server {
    runtime: Runtime,
    listener: TcpListener,
    address: SocketAddr,
    service: Service,
}

struct Service {
    corpus: Corpus,
    name: String,
    limits: Limits,
    token: Option<Token>,
    /// One per processor: counting does nothing but compute and read memory.
    counting: Arc<Semaphore>,
    places: Arc<Places>,
    /// When the last requests must have been answered, once that is known.
    end: watch::Sender<Option<Instant>>,
}

impl Server {
    /// Takes an address (port 0: any that is free) to serve `corpus` there under `name`, to everyone or to those that show a
    /// token.
    ///
    /// # Errors
    /// Where the address cannot be had, the system gives no threads, a limit is 0, or the token is short.
    pub fn bind(
        corpus: Corpus,
        name: &str,
        address: SocketAddr,
        limits: Limits,
        token: Option<Token>,
    ) -> Result<Self, ServeError> {
        let needed = [("connections", limits.connections), ("connections_per_peer", limits.connections_per_peer)];
        if let Some((limit, _)) = needed.into_iter().find(|&(_, value)| value == 0) {
            return Err(ServeError::Limit { limit });
        }
        if let Some(chars) = token.as_ref().map(Token::num_chars).filter(|chars| *chars < MIN_TOKEN_CHARS) {
            return Err(ServeError::ShortToken { chars });
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        let runtime = runtime.map_err(|source| ServeError::Run { action: "start its threads", source })?;
        let listen = || {
            let _context = runtime.enter();
            let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
            socket.set_reuseaddr(true)?; // a server that was restarted gets its address at once
            socket.bind(address)?;
            let listener = socket.listen(BACKLOG)?;
            let address = listener.local_addr()?;
            Ok((listener, address))
        };
        let (listener, address) = listen().map_err(|source| ServeError::Listen { address, source })?;
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let service = Service {
            corpus,
            name: name.to_owned(),
            limits,
            token,
            counting: Arc::new(Semaphore::new(processors)),
            places: Places::new(&limits),
            end: watch::Sender::new(None),
        };
        Ok(Self { runtime, listener, address, service })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends with Ctrl-C or SIGTERM. From this call on, neither ends the process by itself.
    ///
    /// # Errors
    /// Where the system does not let signals be handled.
    pub fn interrupted(&self) -> Result<impl Future<Output = ()> + use<>, ServeError> {
        let _context = self.runtime.enter();
        let listen = |kind| signal(kind).map_err(|source| ServeError::Run { action: "listen for signals", source });
        let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
        Ok(async move {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        })
    }

    /// Serves until `stop`. Every request that has arrived by then is answered: with its count, or once
    /// [`Limits::grace`] is over with status 503.
    pub fn run(self, stop: impl Future<Output = ()>) {
        self.runtime.block_on(serve(self.listener, Arc::new(self.service), stop));
        self.runtime.shutdown_background(); // without waiting for counts that no client waits for
    }
}

async fn serve(listener: TcpListener, service: Arc<Service>, stop: impl Future<Output = ()>) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(service.limits.time); // idle connections end so as well
    http.max_buf_size(BUFFER_BYTES);
    let graceful = GracefulShutdown::new();
    let mut stop = std::pin::pin!(stop);
    loop {
        let accepted = tokio::select! {
            () = &mut stop => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((socket, peer)) => connect(&http, &graceful, &service, socket, peer),
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                service.places.make_room(); // out of file handles, perhaps: give one back
                sleep(Duration::from_millis(10)).await;
            }
        }
    }
    let grace = service.limits.grace;
    service.end.send_replace(Some(Instant::now() + grace));
    match listener.into_std() {
        // Clients that the system has let in already.
        Ok(listener) => {
            while let Ok((socket, peer)) = listener.accept() {
                if let Ok(socket) = socket.set_nonblocking(true).and_then(|()| TcpStream::from_std(socket)) {
                    connect(&http, &graceful, &service, socket, peer);
                }
            }
        }
        Err(error) => tracing::warn!(%error, "clients that were not accepted yet are lost"),
    }
    sleep(LAST_CALL.min(grace)).await;
    if timeout(grace + FLUSH, graceful.shutdown()).await.is_err() {
        tracing::warn!(grace_s = grace.as_secs_f64(), "connections whose clients did not read are closed");
    }
}

/// Serves one client for as long as it keeps its place.
fn connect(
    http: &http1::Builder,
    graceful: &GracefulShutdown,
    service: &Arc<Service>,
    socket: TcpStream,
    peer: SocketAddr,
) {
    let Some((place, gives_way)) = service.places.admit(peer.ip()) else { return };
    let _ = socket.set_nodelay(true); // only slower without
    let stream = TokioIo::new(Stream::new(socket, service.limits.write_time));
    let (service, place) = (service.clone(), Arc::new(place));
    let handle = service_fn(move |request| respond(service.clone(), place.clone(), request));
    let connection = graceful.watch(http.serve_connection(stream, handle));
    tokio::spawn(async move {
        tokio::select! {
            ended = connection => if let Err(error) = ended {
                tracing::debug!(%peer, %error, "a connection broke");
            },
            _ = gives_way => tracing::debug!(%peer, "a connection gave way"),
        }
    });
}

async fn respond(
    service: Arc<Service>,
    place: Arc<Place>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let result = tokio::select! {
        biased;
        result = answer(&service, &place, request) => result,
        () = service.is_over() => Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the server is stopping")),
    };
    let mut response = result.unwrap_or_else(|Refusal { status, message }| {
        tracing::debug!(%status, message, "refused");
        let mut response = json(status, &Reply::Error { error: message });
        let further = match status {
            StatusCode::SERVICE_UNAVAILABLE => Some((RETRY_AFTER, "1")),
            StatusCode::METHOD_NOT_ALLOWED => Some((ALLOW, "GET, POST")),
            StatusCode::UNAUTHORIZED => Some((WWW_AUTHENTICATE, "Bearer")),
            _ => None,
        };
        response.headers_mut().extend(further.map(|(name, value)| (name, HeaderValue::from_static(value))));
        response
    });
    if service.end.borrow().is_some() {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(response)
}

async fn answer(
    service: &Arc<Service>,
    place: &Place,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Refusal> {
    service.admits(&request)?;
    match (request.method(), request.uri().path()) {
        (&Method::POST, "/") => count(service, place, request).await,
        (&Method::GET, "/") => Ok(json(StatusCode::OK, &about(service))),
        (_, "/") => Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "POST a JSON object to /")),
        _ => Err(Refusal::new(StatusCode::NOT_FOUND, "POST a JSON object to /")),
    }
}

impl Service {
    fn admits(&self, request: &Request<Incoming>) -> Result<(), Refusal> {
        let Some(token) = &self.token else { return Ok(()) };
        let message = match request.headers().get(AUTHORIZATION) {
            Some(header) if token.is_shown_by(header.as_bytes()) => return Ok(()),
            Some(_) => "this server's bearer token is another one",
            None => "this server asks for a bearer token",
        };
        Err(Refusal::new(StatusCode::UNAUTHORIZED, message))
    }

    /// Ends with the time for the last requests; never, unless the server is told to stop.
    async fn is_over(&self) {
        let end = self.end.subscribe().wait_for(Option::is_some).await.ok().and_then(|end| *end);
        match end {
            Some(end) => sleep_until(end).await,
            None => std::future::pending().await,
        }
    }
}

/// Reads the request and counts, each within the time limit.
async fn count(
    service: &Arc<Service>,
    place: &Place,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Refusal> {
    let Limits { body_bytes, time, .. } = service.limits;
    let body = match timeout(time, Limited::new(request.into_body(), body_bytes).collect()).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            let message = format!("the request is longer than {body_bytes} bytes");
            return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, message));
        }
        Ok(Err(error)) => return Err(Refusal::new(StatusCode::BAD_REQUEST, format!("the request broke off: {error}"))),
        Err(_) => return Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "the request did not arrive in time")),
    };
    let _working = place.work();
    let counted = async {
        let processor = service.counting.clone().acquire_owned().await.expect("the semaphore is never closed");
        let service = service.clone();
        // A count that takes longer than its client waits keeps its processor: no more run than there are processors.
        let work = tokio::task::spawn_blocking(move || {
            let answer = answer::answer(&service.corpus, &service.name, &service.limits, &body);
            drop(processor);
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
