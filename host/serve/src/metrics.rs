//! What a server counts of itself, as Prometheus reads it.

use std::time::Instant;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::Reply;

/// The format that [`encode`] writes.
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The status of a request whose client did not wait for the answer, as nginx has it.
const CLIENT_LEFT: u16 = 499;

/// Every figure of one server.
pub struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    seconds: Family<RouteLabel, Histogram, fn() -> Histogram>,
    in_flight: Gauge,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    route: &'static str,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabel {
    route: &'static str,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("corver"),
            requests: Family::default(),
            seconds: Family::new_with_constructor(|| {
                Histogram::new(exponential_buckets(0.001, 2.0, 18))
            }), // to 131 s
            in_flight: Gauge::default(),
        };
        let Self { registry, requests, seconds, in_flight } = &mut metrics;
        registry.register(
            "requests",
            "Requests by route and status (499: the client left)",
            requests.clone(),
        );
        registry.register(
            "request_seconds",
            "From a request's head to its answer",
            seconds.clone(),
        );
        registry.register(
            "requests_in_flight",
            "Requests that have no answer yet",
            in_flight.clone(),
        );
        metrics
    }
}

impl Metrics {
    /// Where further figures are registered.
    pub(crate) fn registry(&mut self) -> &mut Registry {
        &mut self.registry
    }

    /// A request has come.
    pub(crate) fn request(&self, route: &'static str) -> Observed<'_> {
        self.in_flight.inc();
        Observed { metrics: self, route, status: CLIENT_LEFT, since: Instant::now() }
    }

    /// All of it.
    pub(crate) fn show(&self) -> Reply {
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("a String takes all that is written");
        Reply::text(CONTENT_TYPE, text)
    }
}

/// A request until it is dropped: with its answer, or because its client left.
pub(crate) struct Observed<'a> {
    metrics: &'a Metrics,
    route: &'static str,
    pub(crate) status: u16,
    since: Instant,
}

impl Drop for Observed<'_> {
    fn drop(&mut self) {
        let Self { metrics, route, status, since } = *self;
        metrics.in_flight.dec();
        metrics.requests.get_or_create(&RequestLabels { route, status }).inc();
        metrics.seconds.get_or_create(&RouteLabel { route }).observe(since.elapsed().as_secs_f64());
    }
}
