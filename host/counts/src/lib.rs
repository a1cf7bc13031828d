//! Counts of queries in a corpus. Every type here is a [`corver_core::Counter`]:
//!
//! ```text
//!        CachedCounter                   in-memory cache: each distinct query is counted once
//!               │
//!              Sum                       several corpora counted as one
//!      ┌────────┴────────┐
//!    Local             Remote ── HTTP ─▶ corver-serve ─▶ an index on that machine
//!  an index on       a client of Infini-gram's API, of the public server or
//!  this machine      of `corver-host index serve`
//! ```
//!
//! A [`pack`] has the counts of known queries, before an index or without one.
//!
//! A [`CorpusSource`] names an index folder or a server's index; [`open()`] opens several as one
//! counter. The client needs the feature `client`. [`wire`] is the JSON that it shares with
//! servers.

mod cached;
#[cfg(feature = "client")]
mod client;
mod local;
#[cfg(feature = "client")]
mod open;
pub mod pack;
#[cfg(feature = "client")]
mod parts;
#[cfg(feature = "client")]
mod source;
mod sum;
pub mod wire;

pub use cached::CachedCounter;
#[cfg(feature = "client")]
pub use client::{Remote, RemoteError, RemoteSettings};
#[cfg(feature = "client")]
pub use corver_http::{Token, TokenError};
pub use local::{Local, TooSlow};
#[cfg(feature = "client")]
pub use open::{check_token, fingerprint, open};
#[cfg(feature = "client")]
pub use parts::check_parts;
#[cfg(feature = "client")]
pub use source::{CorpusSource, OpenSettings, OpenedSource, SourceError};
pub use sum::{Sum, rarest_first};

/// Environment variable with the bearer token of clients and servers, used if no token file is set.
pub const TOKEN_VARIABLE: &str = "CORVER_TOKEN";
