//! The HTTP server of `serve` and `index serve`.

use anyhow::Result;
use corver_counts::{TOKEN_VARIABLE, Token};
use corver_serve::{HttpServer, Metrics, ServerLimits};

use crate::args::ServerArgs;

/// Binds the address, and warns if everyone can reach it.
pub fn bind(args: &ServerArgs, limits: ServerLimits, metrics: Metrics) -> Result<HttpServer> {
    let token = Token::load(args.token_file.as_deref(), Some(TOKEN_VARIABLE))?;
    let is_open = token.is_none();
    let server = HttpServer::bind(args.listen, limits, token, metrics)?;
    if is_open && !args.listen.ip().is_loopback() {
        let address = server.address();
        tracing::warn!(
            "anyone who can reach {address} can use this server: set --token-file or \
             {TOKEN_VARIABLE}"
        );
    }
    Ok(server)
}
