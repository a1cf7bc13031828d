//! CorVer's HTTP server: rewards for other trainers, and counts for other machines.
//!
//! ```text
//! connection ──▶ a slot ──────▶ its body, within the memory ──▶ route ──▶ answer
//!  server.rs   connections.rs   memory.rs, exchange.rs            │
//!                                           ┌─────────────────────┴─┐
//!                                       counts/                 reward/
//!                                 Infini-gram's API     OpenRLHF's, and our own; one thread scores
//!                                                       the queued requests in batches
//! ```
//!
//! [`HttpServer`] does not depend on any API: it serves the [`Route`]s that it is given, and the
//! routes for monitors (`/health`, `/ready`, `/metrics`).

mod connections;
mod counts;
mod exchange;
mod exclusive;
mod limits;
mod memory;
mod metrics;
mod reward;
mod route;
mod server;
mod stream;

pub use counts::{CountLimits, count_routes};
pub use exchange::Health;
pub use exclusive::exclusive_route;
pub use limits::ServerLimits;
pub use metrics::Metrics;
pub use reward::{Queue, QueueLimits, ScoreFn, reward_route, score_route, unbatched_route};
pub use route::{HttpError, HttpReply, Route};
pub use server::{HttpServer, ServeError};
