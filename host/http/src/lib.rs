//! An HTTP client with retries, and the pieces that clients share:
//!
//! ```text
//! Client        one exchange: an HttpResponse, or an AttemptError that is transient or final
//!   ▲
//! RetryPolicy   rate limit, retries with exponential backoff, Retry-After, a deadline
//!   ▲
//! for_each_concurrent   a queue of items and its worker threads; the first failure ends the batch
//! ```
//!
//! [`download`] fetches a public file. What a server sends is foreign text: the client removes its token from every body, and messages
//! quote at most 500 characters ([`shorten_foreign`]).
//!
//! A [`Token`] is a server's bearer token. [`JsonLines`] is a cache of replies on disk. Both are
//! always compiled; the rest needs the feature `client`.

#[cfg(feature = "client")]
mod batch;
#[cfg(feature = "client")]
mod client;
#[cfg(feature = "client")]
mod download;
#[cfg(feature = "client")]
mod foreign;
#[cfg(feature = "client")]
mod host;
mod json_lines;
#[cfg(feature = "client")]
mod rate_limit;
#[cfg(feature = "client")]
mod retry;
mod token;

#[cfg(feature = "client")]
pub use batch::{FirstFailure, for_each_concurrent};
#[cfg(feature = "client")]
pub use client::{AttemptError, Client, HttpResponse, excerpt};
#[cfg(feature = "client")]
pub use download::{DownloadError, download};
#[cfg(feature = "client")]
pub use foreign::shorten_foreign;
#[cfg(feature = "client")]
pub use host::{Host, UrlError};
pub use json_lines::JsonLines;
#[cfg(feature = "client")]
pub use retry::{RequestError, RetryPolicy};
pub use token::{Token, TokenError};
