//! Metrics of a server, in Prometheus' format.

use std::time::Instant;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::HttpReply;

/// Format that [`encode`] writes.
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Status of a request whose client left before the answer, as in nginx.
const CLIENT_LEFT: u16 = 499;

/// All metrics of one server.
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
    /// Returns the registry, for metrics of a route.
    pub(crate) fn registry(&mut self) -> &mut Registry {
        &mut self.registry
    }

    /// Counts a request, and measures it until the returned value is dropped.
    pub(crate) fn start_request(&self, route: &'static str) -> ObservedRequest<'_> {
        self.in_flight.inc();
        ObservedRequest { metrics: self, route, status: CLIENT_LEFT, since: Instant::now() }
    }

    /// Encodes all metrics for Prometheus.
    pub(crate) fn encode(&self) -> HttpReply {
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("writing to a String does not fail");
        HttpReply::text(CONTENT_TYPE, text)
    }
}

/// Request without an answer. Dropped with its answer, or because its client left.
pub(crate) struct ObservedRequest<'a> {
    metrics: &'a Metrics,
    route: &'static str,
    pub(crate) status: u16,
    since: Instant,
}

impl Drop for ObservedRequest<'_> {
    fn drop(&mut self) {
        let Self { metrics, route, status, since } = *self;
        metrics.in_flight.dec();
        metrics.requests.get_or_create(&RequestLabels { route, status }).inc();
        metrics.seconds.get_or_create(&RouteLabel { route }).observe(since.elapsed().as_secs_f64());
    }
}
