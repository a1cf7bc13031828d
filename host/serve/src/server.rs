//! The server: its address, its connections, its shutdown. What it answers is decided by the routes
//! that it is given.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use corver_http::Token;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep, timeout};

use crate::exchange::{Service, respond};
use crate::metrics::Metrics;
use crate::route::Route;
use crate::stream::Stream;
use crate::{Health, Limits};

/// Connections that the system keeps until they are accepted.
const BACKLOG: u32 = 1_024;

/// A shorter token can be guessed.
const MIN_TOKEN_CHARS: usize = 16;

/// How long open connections are still read from once the server is told to stop: what was sent
/// before that has then arrived.
const LAST_CALL: Duration = Duration::from_millis(250);

/// How long the last answers may take to leave.
const FLUSH: Duration = Duration::from_secs(1);

/// How long a connection for which there is no place may take until it is refused.
const TURN_AWAY: Duration = Duration::from_secs(1);

/// Bytes of a request's head, and of answers to one client that wait in memory.
const BUFFER_BYTES: usize = 64 << 10;

/// File handles for everything but connections.
const OTHER_FILES: u64 = 256;

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// An address that cannot be had.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Address that was asked for.
        address: SocketAddr,
        /// Error of the system.
        source: std::io::Error,
    },
    /// A thread or a signal that the system does not give.
    #[error("the server cannot {action}: {source}")]
    Run {
        /// Verb and object of the call.
        action: &'static str,
        /// Error of the system.
        source: std::io::Error,
    },
    /// A limit with which nothing could be answered, or a token that can be guessed.
    #[error("{0}")]
    InvalidSettings(String),
}

pub(crate) fn limit_of_0(limit: &str) -> ServeError {
    ServeError::InvalidSettings(format!("{limit} is 0; it must be at least 1"))
}

/// A server that has its address, and answers once it runs.
pub struct Server {
    runtime: Runtime,
    listener: TcpListener,
    address: SocketAddr,
    service: Service,
}

impl Server {
    /// Takes an address (port 0: any that is free), to answer everyone there, or those that show a
    /// token.
    ///
    /// # Errors
    /// Where the address cannot be had, the system gives no threads, a limit is 0, or the token is
    /// short.
    pub fn bind(
        address: SocketAddr,
        limits: Limits,
        token: Option<Token>,
        metrics: Metrics,
    ) -> Result<Self, ServeError> {
        let needed = [
            ("connections", limits.connections),
            ("connections_per_peer", limits.connections_per_peer),
            ("request_bytes", limits.request_bytes),
        ];
        if let Some((limit, _)) = needed.into_iter().find(|&(_, value)| value == 0) {
            return Err(limit_of_0(limit));
        }
        if let Some(chars) =
            token.as_ref().map(Token::num_chars).filter(|chars| *chars < MIN_TOKEN_CHARS)
        {
            return Err(ServeError::InvalidSettings(format!(
                "the token has {chars} characters; a server needs {MIN_TOKEN_CHARS} or more, as \
                 `openssl rand -hex 32` makes them"
            )));
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        let runtime =
            runtime.map_err(|source| ServeError::Run { action: "start its threads", source })?;
        let listen = || {
            let _context = runtime.enter();
            let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
            socket.set_reuseaddr(true)?; // a server that was restarted gets its address at once
            socket.bind(address)?;
            let listener = socket.listen(BACKLOG)?;
            let bound = listener.local_addr()?;
            Ok((listener, bound))
        };
        let (listener, address) =
            listen().map_err(|source| ServeError::Listen { address, source })?;
        allow_files(limits.connections);
        Ok(Self { runtime, listener, address, service: Service::new(limits, token, metrics) })
    }

    /// Answers this too. Of two routes with one method and path, the first counts.
    pub fn route(&mut self, routes: impl IntoIterator<Item = Route>) {
        self.service.routes.extend(routes);
    }

    /// What `/health` and `/ready` say.
    pub fn report(&mut self, health: impl Fn() -> Health + Send + Sync + 'static) {
        self.service.health = Box::new(health);
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
        let listen = |kind| {
            signal(kind).map_err(|source| ServeError::Run { action: "listen for signals", source })
        };
        let (mut interrupt, mut terminate) =
            (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
        Ok(async move {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        })
    }

    /// Serves until `stop`. Every request that has arrived by then is answered: as always, or once
    /// [`Limits::grace`] is over with status 503.
    pub fn run(self, stop: impl Future<Output = ()>) {
        self.runtime.block_on(serve(self.listener, Arc::new(self.service), stop));
        self.runtime.shutdown_background(); // without waiting for work that no client waits for
    }
}

/// Lets this process have so many connections, as far as the system allows it.
fn allow_files(connections: usize) {
    let needed = (connections as u64).saturating_add(OTHER_FILES);
    let mut files = getrlimit(Resource::Nofile);
    if files.current.is_none_or(|current| current >= needed) {
        return;
    }
    files.current = Some(files.maximum.map_or(needed, |maximum| maximum.min(needed)));
    let allowed = setrlimit(Resource::Nofile, files).is_ok() && files.current == Some(needed);
    if !allowed {
        tracing::warn!(
            connections,
            "the system allows fewer open files than that: see `ulimit -n`"
        );
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
                if let Ok(socket) =
                    socket.set_nonblocking(true).and_then(|()| TcpStream::from_std(socket))
                {
                    connect(&http, &graceful, &service, socket, peer);
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

/// Serves one client for as long as it keeps its place.
fn connect(
    http: &http1::Builder,
    graceful: &GracefulShutdown,
    service: &Arc<Service>,
    socket: TcpStream,
    peer: SocketAddr,
) {
    let _ = socket.set_nodelay(true); // only slower without
    let stream = TokioIo::new(Stream::new(socket, service.limits.write_time));
    let service = service.clone();
    let Some((place, gives_way)) = service.places.admit(peer.ip()) else {
        return refuse(http, service, stream);
    };
    let place = Arc::new(place);
    let handle = service_fn(move |request| respond(service.clone(), Some(place.clone()), request));
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

/// Tells a client for whom there is no place to come back; closes where too many are being told
/// already.
fn refuse(http: &http1::Builder, service: Arc<Service>, stream: TokioIo<Stream>) {
    let Ok(permit) = service.turned_away.clone().try_acquire_owned() else { return };
    let mut http = http.clone();
    http.keep_alive(false);
    tokio::spawn(async move {
        let handle = service_fn(move |request| respond(service.clone(), None, request));
        let _ = timeout(TURN_AWAY, http.serve_connection(stream, handle)).await;
        drop(permit);
    });
}
