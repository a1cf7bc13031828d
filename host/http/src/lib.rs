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
//! A [`Token`] is the secret that a server may ask for, and [`Lines`] keeps answers on disk.

mod client;
mod lines;
mod pace;
mod patience;
mod token;

pub use client::{Answer, Client, Failure, excerpt};
pub use lines::Lines;
pub use pace::{FirstFailure, Pace, each};
pub use patience::{Patience, Unanswered};
pub use token::{Token, TokenError};
