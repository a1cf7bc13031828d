//! How often words occur together, wherever the corpus lies. Everything here is a
//! [`corver_core::Counter`]:
//!
//! ```text
//!             Memo                       each query goes further once
//!               │
//!              Sum                       several corpora counted as one
//!      ┌────────┴────────┐
//!    Local             Remote ── HTTP ─▶ corver-serve ─▶ an index on that machine
//!  an index on       a client of Infini-gram's API, the public server's or ours
//!  this machine
//! ```
//!
//! A [`Source`] names one such place; [`open`] opens several as one counter. The client is behind
//! the feature `client`;
//! [`wire`] is the JSON that it shares with servers.

#[cfg(feature = "client")]
mod client;
mod local;
mod memo;
#[cfg(feature = "client")]
mod open;
#[cfg(feature = "client")]
mod parts;
#[cfg(feature = "client")]
mod source;
mod sum;
pub mod wire;

#[cfg(feature = "client")]
pub use client::{Remote, RemoteError, RemoteSettings};
#[cfg(feature = "client")]
pub use corver_http::{Token, TokenError};
pub use local::{Local, TooSlow};
pub use memo::Memo;
#[cfg(feature = "client")]
pub use open::{check_token, fingerprint, open};
#[cfg(feature = "client")]
pub use parts::check_parts;
#[cfg(feature = "client")]
pub use source::{OpenSettings, Opened, Source, SourceError};
pub use sum::Sum;

/// The environment variable that holds a token where no file is named, for client and server alike.
pub const TOKEN_VARIABLE: &str = "CORVER_TOKEN";
