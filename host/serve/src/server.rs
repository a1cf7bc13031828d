//! The server: its address, its connections, its shutdown. Its routes answer requests.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

use corver_http::Token;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, sleep, timeout};

use crate::exchange::{Service, respond};
use crate::metrics::Metrics;
use crate::route::Route;
use crate::stream::ClientStream;
use crate::{Health, ServerLimits};

/// Connections that the system queues until they are accepted.
const BACKLOG: u32 = 1_024;

/// Shortest token, in characters; a shorter one can be guessed.
const MIN_TOKEN_CHARS: usize = 16;

/// Time for which open connections are read after the server is stopped, so that everything sent
/// before arrives.
const LAST_CALL: Duration = Duration::from_millis(250);

/// Time limit for sending the last answers.
const FLUSH: Duration = Duration::from_secs(1);

/// Time limit for turning away a connection without a slot.
const TURN_AWAY_TIME: Duration = Duration::from_secs(1);

/// Bytes of a request's head, and of the unsent answers to one client.
const BUFFER_BYTES: usize = 64 << 10;

/// File handles for everything but connections.
const OTHER_FILES: u64 = 256;

/// Error on starting a server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The address cannot be used.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Address to listen on.
        address: SocketAddr,
        /// Error of the system.
        source: std::io::Error,
    },
    /// The system denied a thread or a signal.
    #[error("the server cannot {action}: {source}")]
    Run {
        /// Verb and object of the call.
        action: &'static str,
        /// Error of the system.
        source: std::io::Error,
    },
    /// A limit admits no request, or the token can be guessed.
    #[error("{0}")]
    InvalidSettings(String),
}

pub(crate) fn zero_limit(limit: &str) -> ServeError {
    ServeError::InvalidSettings(format!("{limit} is 0; it must be at least 1"))
}

/// Server that is bound to an address, and answers once it runs.
pub struct HttpServer {
    runtime: Runtime,
    listener: TcpListener,
    address: SocketAddr,
    service: Service,
}

impl HttpServer {
    /// Binds an address (port 0: any free port). With a token, only requests that carry it are
    /// answered.
    ///
    /// # Errors
    /// If the address cannot be used, the system denies threads, a limit is 0, or the token is
    /// short.
    pub fn bind(
        address: SocketAddr,
        limits: ServerLimits,
        token: Option<Token>,
        metrics: Metrics,
    ) -> Result<Self, ServeError> {
        for (name, limit) in [
            ("connections", limits.connections),
            ("connections_per_peer", limits.connections_per_peer),
            ("request_bytes", limits.request_bytes),
        ] {
            if limit == 0 {
                return Err(zero_limit(name));
            }
        }
        if let Some(token) = &token
            && token.num_chars() < MIN_TOKEN_CHARS
        {
            return Err(ServeError::InvalidSettings(format!(
                "the token has {} characters; a server needs {MIN_TOKEN_CHARS} or more, as \
                 `openssl rand -hex 32` makes them",
                token.num_chars()
            )));
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .map_err(|source| ServeError::Run { action: "start its threads", source })?;
        let listener =
            listen(&runtime, address).map_err(|source| ServeError::Listen { address, source })?;
        let bound =
            listener.local_addr().map_err(|source| ServeError::Listen { address, source })?;
        raise_file_limit(limits.connections);
        let service = Service::new(limits, token, metrics);
        Ok(Self { runtime, listener, address: bound, service })
    }

    /// Adds routes. Of two with the same method and path, the first is used.
    pub fn add_routes(&mut self, routes: impl IntoIterator<Item = Route>) {
        self.service.routes.extend(routes);
    }

    /// Sets the condition that `/health` and `/ready` report.
    pub fn set_health(&mut self, health: impl Fn() -> Health + Send + Sync + 'static) {
        self.service.health = Box::new(health);
    }

    /// Returns the address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns a future that completes on Ctrl-C or SIGTERM. From this call on, neither ends the
    /// process by itself.
    ///
    /// # Errors
    /// If the system denies a signal handler.
    pub fn interrupted(&self) -> Result<impl Future<Output = ()> + use<>, ServeError> {
        let _context = self.runtime.enter();
        let mut interrupt = listen_for(SignalKind::interrupt())?;
        let mut terminate = listen_for(SignalKind::terminate())?;
        Ok(async move {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        })
    }

    /// Serves until `stop` completes. Every request that has arrived by then is answered; after
    /// [`ServerLimits::grace`], with status 503.
    pub fn run(self, stop: impl Future<Output = ()>) {
        self.runtime.block_on(serve(self.listener, Arc::new(self.service), stop));
        self.runtime.shutdown_background(); // no client waits for what is still running
    }
}

fn listen(runtime: &Runtime, address: SocketAddr) -> std::io::Result<TcpListener> {
    let _context = runtime.enter();
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // So that a restarted server gets its address without waiting for old connections to expire.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

fn listen_for(kind: SignalKind) -> Result<Signal, ServeError> {
    signal(kind).map_err(|source| ServeError::Run { action: "listen for signals", source })
}

/// Raises the limit of open files of this process to what the connections need, if the system
/// allows it.
fn raise_file_limit(connections: usize) {
    let needed = (connections as u64).saturating_add(OTHER_FILES);
    let mut files = getrlimit(Resource::Nofile);
    if files.current.is_none_or(|current| current >= needed) {
        return;
    }
    files.current = Some(files.maximum.map_or(needed, |maximum| maximum.min(needed)));
    let is_raised = setrlimit(Resource::Nofile, files).is_ok() && files.current == Some(needed);
    if !is_raised {
        tracing::warn!(
            connections,
            "the system allows fewer open files than that: see `ulimit -n`"
        );
    }
}

async fn serve(listener: TcpListener, service: Arc<Service>, stop: impl Future<Output = ()>) {
    let mut http = http1::Builder::new();
    // The time limit for a head also ends idle connections.
    http.timer(TokioTimer::new()).header_read_timeout(service.limits.time);
    http.max_buf_size(BUFFER_BYTES);
    let graceful = GracefulShutdown::new();
    let mut stop = std::pin::pin!(stop);
    loop {
        let accepted = tokio::select! {
            () = &mut stop => break,
            accepted = listener.accept() => accepted,
        };
        // hyper's header panics if the clock is before 1970.
        http.auto_date_header(SystemTime::now() >= SystemTime::UNIX_EPOCH);
        match accepted {
            Ok((socket, peer)) => connect(&http, &graceful, &service, socket, peer),
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                service.connections.make_room(); // the process may be out of file handles
                sleep(Duration::from_millis(10)).await;
            }
        }
    }
    let grace = service.limits.grace;
    service.end.send_replace(Some(Instant::now() + grace));
    match listener.into_std() {
        // Clients that the system has already accepted into its queue.
        Ok(listener) => {
            while let Ok((socket, peer)) = listener.accept() {
                if socket.set_nonblocking(true).is_ok()
                    && let Ok(stream) = TcpStream::from_std(socket)
                {
                    connect(&http, &graceful, &service, stream, peer);
                }
            }
        }
        Err(error) => tracing::warn!(%error, "clients that were not accepted yet are lost"),
    }
    sleep(LAST_CALL.min(grace)).await;
    if timeout(grace + FLUSH, graceful.shutdown()).await.is_err() {
        tracing::warn!(
            grace_s = grace.as_secs_f64(),
            "connections whose clients did not read are closed"
        );
    }
}

/// Serves one client until its connection ends, or must close for another.
fn connect(
    http: &http1::Builder,
    graceful: &GracefulShutdown,
    service: &Arc<Service>,
    socket: TcpStream,
    peer: SocketAddr,
) {
    let _ = socket.set_nodelay(true); // a failure only makes answers slower
    let received = Arc::new(AtomicBool::new(false));
    let stream =
        TokioIo::new(ClientStream::new(socket, service.limits.write_time, received.clone()));
    let service = service.clone();
    let Some((slot, yields)) = service.connections.admit(peer.ip(), received) else {
        return turn_away(http, service, stream);
    };
    let slot = Arc::new(slot);
    let handle = service_fn(move |request| respond(service.clone(), Some(slot.clone()), request));
    let connection = graceful.watch(http.serve_connection(stream, handle));
    tokio::spawn(async move {
        tokio::select! {
            biased; // a connection without a slot answers no further request
            _ = yields => tracing::debug!(%peer, "a connection was closed for another"),
            ended = connection => if let Err(error) = ended {
                tracing::debug!(%peer, %error, "a connection broke");
            },
        }
    });
}

/// Answers a client without a slot with status 503; closes the connection if too many are being
/// turned away.
fn turn_away(http: &http1::Builder, service: Arc<Service>, stream: TokioIo<ClientStream>) {
    let Ok(permit) = service.turned_away.clone().try_acquire_owned() else { return };
    let mut http = http.clone();
    http.keep_alive(false);
    tokio::spawn(async move {
        let handle = service_fn(move |request| respond(service.clone(), None, request));
        let _ = timeout(TURN_AWAY_TIME, http.serve_connection(stream, handle)).await;
        drop(permit);
    });
}
