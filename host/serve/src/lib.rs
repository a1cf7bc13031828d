//! What CorVer answers over HTTP: rewards for trainers that live elsewhere, counts for other
//! machines.
//!
//! ```text
//! connection ─▶ a place ─▶ its body, within the memory ─▶ route ─▶ answer
//!  server.rs    places.rs   exchange.rs                     │
//!                                       ┌───────────────────┴──┐
//!                                  counts/                 reward/
//!                            Infini-gram's API     OpenRLHF's, and our own; one thread scores what
//!                                                  is queued, together
//! ```
//!
//! [`Server`] does not depend on any API: it is given [`Route`]s. The routes for monitors (`/health`, `/ready`, `/metrics`) are
//! its own.

mod counts;
mod exchange;
mod limits;
mod metrics;
mod places;
mod reward;
mod route;
mod server;
mod stream;

pub use counts::{CountLimits, counts};
pub use exchange::Health;
pub use limits::Limits;
pub use metrics::Metrics;
pub use reward::{Queue, QueueLimits, ScoreFn, between_batches, get_reward, score};
pub use route::{Refusal, Reply, Route};
pub use server::{ServeError, Server};
