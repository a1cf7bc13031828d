//! Metrics of the queue and its worker.

use std::sync::atomic::AtomicU64;

use corver_core::{BackendStats, Scored, StageSeconds};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

use crate::Metrics;

type Seconds = Counter<f64, AtomicU64>;

#[derive(Clone)]
pub(super) struct ScoreMetrics {
    queued: Gauge,
    /// Number of completions of each batch.
    batches: Histogram,
    completions: Counter,
    sentences: Counter,
    seconds: Family<StageLabel, Seconds>,
    /// Number of requests that could not be scored.
    pub(super) failures: Counter,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StageLabel {
    stage: &'static str,
}

impl ScoreMetrics {
    pub(super) fn register(metrics: &mut Metrics) -> Self {
        let metrics_of_queue = Self {
            queued: Gauge::default(),
            batches: Histogram::new(exponential_buckets(1.0, 2.0, 12)), // to 2,048
            completions: Counter::default(),
            sentences: Counter::default(),
            seconds: Family::default(),
            failures: Counter::default(),
        };
        let registry = metrics.registry();
        registry.register(
            "queue_completions",
            "Completions that wait to be scored",
            metrics_of_queue.queued.clone(),
        );
        registry.register(
            "batch_completions",
            "Completions scored together",
            metrics_of_queue.batches.clone(),
        );
        registry.register(
            "completions",
            "Completions scored",
            metrics_of_queue.completions.clone(),
        );
        registry.register("sentences", "Sentences of them", metrics_of_queue.sentences.clone());
        registry.register(
            "stage_seconds",
            "Seconds by stage; reward is all of them and more",
            metrics_of_queue.seconds.clone(),
        );
        registry.register(
            "score_failures",
            "Requests that could not be scored",
            metrics_of_queue.failures.clone(),
        );
        metrics_of_queue
    }

    /// Counts completions as queued until the returned value is dropped.
    pub(super) fn enqueue(&self, completions: usize) -> QueuedGuard {
        let number = i64::try_from(completions).unwrap_or(i64::MAX);
        self.queued.inc_by(number);
        QueuedGuard { queued: self.queued.clone(), number }
    }

    /// Counts a batch that was scored.
    pub(super) fn record(&self, scored: &Scored) {
        self.batches.observe(scored.completions.len() as f64);
        self.completions.inc_by(scored.completions.len() as u64);
        for completion in &scored.completions {
            self.sentences.inc_by(completion.trace.sentences.len() as u64);
        }
        let StageSeconds { extract, rule, reward, .. } = scored.seconds;
        let BackendStats { count, nli, chat, passages, .. } = scored.backend_stats;
        let stages = [
            ("extract", extract),
            ("count", count.seconds),
            ("nli", nli.seconds),
            ("chat", chat.seconds),
            ("passages", passages.seconds),
            ("rule", rule),
            ("reward", reward),
        ];
        for (stage, seconds) in stages {
            self.seconds.get_or_create(&StageLabel { stage }).inc_by(seconds.max(0.0));
        }
    }
}

pub(super) struct QueuedGuard {
    queued: Gauge,
    number: i64,
}

impl Drop for QueuedGuard {
    fn drop(&mut self) {
        self.queued.dec_by(self.number);
    }
}
