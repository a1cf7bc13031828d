//! How to ask a server, patiently, whatever is asked:
//!
//! ```text
//! Client ── one exchange ─▶ Answer, or a Failure that passes or does not
//!   ▲
//! Patience ── repeats it, with waits that double and follow Retry-After, until there is an answer or no patience left
//!   ▲
//! each ── asks for many at a time; the first failure ends the batch
//! ```
//!
//! A [`Token`] is the secret that a server may ask for, and [`Lines`] keeps answers on disk. The
//! rest is behind the feature `client`.

#[cfg(feature = "client")]
mod client;
#[cfg(feature = "client")]
mod host;
mod lines;
#[cfg(feature = "client")]
mod pace;
#[cfg(feature = "client")]
mod patience;
mod token;

#[cfg(feature = "client")]
pub use client::{Answer, Client, Failure, excerpt};
#[cfg(feature = "client")]
pub use host::{Host, UrlError};
pub use lines::Lines;
#[cfg(feature = "client")]
pub use pace::{FirstFailure, each};
#[cfg(feature = "client")]
pub use patience::{Patience, Unanswered};
pub use token::{Token, TokenError};
