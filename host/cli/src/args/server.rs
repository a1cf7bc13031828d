//! Server arguments of `corver-host serve` and `corver-host index serve`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use corver_serve::ServerLimits;

/// Address, token and limits of a server.
#[derive(Debug, Args)]
pub struct ServerArgs {
    /// Address and port to bind. There is no TLS: outside a trusted network, use a TLS proxy.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8765")]
    pub listen: SocketAddr,
    /// File with the bearer token that clients must send. Default: the environment variable
    /// CORVER_TOKEN; without either, no token is needed.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Largest number of open connections. At the limit, a new one replaces the longest idle one.
    #[arg(long, value_name = "N", default_value_t = ServerLimits::default().connections)]
    pub connections: usize,
    /// Largest number of open connections from one address; behind a proxy, all clients share one.
    /// Default: 64 for counts, --connections for rewards.
    #[arg(long, value_name = "N")]
    pub connections_per_peer: Option<usize>,
    /// Grace period for open requests after Ctrl-C or SIGTERM; then they get 503.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = ServerLimits::default().grace.as_secs(),
        value_parser = clap::value_parser!(u64).range(..=86_400)
    )]
    pub grace: u64,
}

impl ServerArgs {
    /// Returns the server's limits.
    pub fn limits(&self) -> ServerLimits {
        let Self { connections, grace, .. } = *self;
        let connections_per_peer =
            self.connections_per_peer.unwrap_or(ServerLimits::default().connections_per_peer);
        ServerLimits {
            connections,
            connections_per_peer,
            grace: Duration::from_secs(grace),
            ..ServerLimits::default()
        }
    }
}
