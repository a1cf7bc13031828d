//! What the queue and its worker count of themselves.

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
    /// Completions of each batch.
    batches: Histogram,
    completions: Counter,
    sentences: Counter,
    seconds: Family<Stage, Seconds>,
    /// Requests that could not be scored.
    pub(super) failures: Counter,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Stage {
    stage: &'static str,
}

impl ScoreMetrics {
    pub(super) fn register(metrics: &mut Metrics) -> Self {
        let new = Self {
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
            new.queued.clone(),
        );
        registry.register("batch_completions", "Completions scored together", new.batches.clone());
        registry.register("completions", "Completions scored", new.completions.clone());
        registry.register("sentences", "Sentences of them", new.sentences.clone());
        registry.register(
            "stage_seconds",
            "Seconds by stage; reward is all of them and more",
            new.seconds.clone(),
        );
        registry.register(
            "score_failures",
            "Requests that could not be scored",
            new.failures.clone(),
        );
        new
    }

    /// So many completions wait, for as long as the value lives.
    pub(super) fn waiting(&self, completions: usize) -> Waiting {
        let completions = i64::try_from(completions).unwrap_or(i64::MAX);
        self.queued.inc_by(completions);
        Waiting { queued: self.queued.clone(), completions }
    }

    pub(super) fn scored(&self, scored: &Scored) {
        self.batches.observe(scored.completions.len() as f64);
        self.completions.inc_by(scored.completions.len() as u64);
        for completion in &scored.completions {
            self.sentences.inc_by(completion.trace.sentences.len() as u64);
        }
        let StageSeconds { extract, rule, reward, .. } = scored.seconds;
        let BackendStats { count, nli, chat, passages, .. } = scored.asked;
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
            self.seconds.get_or_create(&Stage { stage }).inc_by(seconds.max(0.0));
        }
    }
}

pub(super) struct Waiting {
    queued: Gauge,
    completions: i64,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.queued.dec_by(self.completions);
    }
}
