//! The listening side of `corver-host serve` and `corver-host index serve`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use corver_serve::ServerLimits;

/// Address, access token and limits of a server.
#[derive(Debug, Args)]
pub struct ServerArgs {
    /// Address and port. There is no TLS: outside a trusted network, put a proxy with TLS in front.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8765")]
    pub listen: SocketAddr,
    /// File with the bearer token that clients must show. Default: the value of CORVER_TOKEN;
    /// without either, no token is needed.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Connections open at the same time; beyond them the one that has waited longest for its
    /// client is closed.
    #[arg(long, value_name = "N", default_value_t = ServerLimits::default().connections)]
    pub connections: usize,
    /// The same for the connections of one address. Behind a proxy all clients have one. Default:
    /// 64, or as many as there are for rewards.
    #[arg(long, value_name = "N")]
    pub connections_per_peer: Option<usize>,
    /// Seconds that requests under way may take after Ctrl-C or SIGTERM; what is left then gets
    /// 503.
    #[arg(long, value_name = "SECONDS", default_value_t = ServerLimits::default().grace.as_secs(), value_parser = clap::value_parser!(u64).range(..=86_400))]
    pub grace: u64,
}

impl ServerArgs {
    /// The limits that these flags set.
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
