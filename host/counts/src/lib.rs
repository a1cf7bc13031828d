//! How often words occur together, wherever the corpus lies. Everything here is a [`corver_core::Counter`]:
//!
//! ```text
//!            Recorder ─▶ a file          what was asked, for Recording to answer without a corpus
//!               │
//!             Memo                       each query goes further once
//!               │
//!              Sum                       several corpora counted as one
//!      ┌────────┴────────┐
//!    Local             Remote ── HTTP ─▶ Server ─▶ an index on that machine
//!  an index on       a client of Infini-gram's API, the public server's or ours
//!  this machine
//! ```
//!
//! A [`Source`] names one such place; [`open`] opens several as one counter. The client is behind the feature `client`, the
//! server behind `server`.

#[cfg(feature = "client")]
mod client;
mod local;
mod memo;
mod recording;
#[cfg(feature = "server")]
mod server;
#[cfg(feature = "client")]
mod source;
mod sum;
#[cfg(any(feature = "client", feature = "server"))]
pub mod wire;

#[cfg(feature = "client")]
pub use client::{Remote, RemoteError, RemoteSettings};
#[cfg(any(feature = "client", feature = "server"))]
pub use corver_http::{Token, TokenError};
pub use local::{Local, TooSlow};
pub use memo::Memo;
pub use recording::{Recorder, Recording, RecordingError};
#[cfg(feature = "server")]
pub use server::{Limits, ServeError, Server};
#[cfg(feature = "client")]
pub use source::{OpenSettings, Opened, Source, SourceError, check_token, fingerprint, open};
pub use sum::Sum;

/// The environment variable that holds a token where no file is named, for client and server alike.
#[cfg(any(feature = "client", feature = "server"))]
pub const TOKEN_VARIABLE: &str = "CORVER_TOKEN";
