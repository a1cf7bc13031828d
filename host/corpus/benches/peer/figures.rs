//! Percentiles and ratios of times per query, and tables of them.

use std::ops::Range;

use serde::Serialize;

/// The least time of every query over the passes, which other work on the machine disturbs least.
/// Nanoseconds.
#[derive(Debug, Clone)]
pub struct Times(Vec<u64>);

impl Times {
    pub fn new(queries: usize) -> Self {
        Self(vec![u64::MAX; queries])
    }

    pub fn take_in(&mut self, queries: &Range<usize>, pass: Vec<u64>) {
        for (least, time) in self.0[queries.clone()].iter_mut().zip(pass) {
            *least = time.min(*least);
        }
    }

    pub fn of(&self, query: usize) -> u64 {
        self.0[query]
    }

    pub fn spread(&self, queries: &[usize]) -> Spread {
        let mut nanoseconds: Vec<u64> = queries.iter().map(|&query| self.0[query]).collect();
        nanoseconds.sort_unstable();
        let micros = |nanoseconds: u64| nanoseconds as f64 / 1e3;
        // The nearest rank: a time that was measured, not one between two.
        let percentile = |p: usize| micros(nanoseconds[(nanoseconds.len() * p).div_ceil(100) - 1]);
        let mean = micros(nanoseconds.iter().sum()) / nanoseconds.len() as f64;
        let longest = micros(*nanoseconds.last().expect("a group has queries"));
        Spread { p50: percentile(50), p95: percentile(95), p99: percentile(99), mean, longest }
    }
}

/// Microseconds per call.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Spread {
    pub p50: f64,
    pub p95: f64,
    pub p99: f64,
    pub mean: f64,
    pub longest: f64,
}

/// A ratio to the official engine, with its required value.
#[derive(Debug, Clone, Serialize)]
pub struct Ratio {
    pub what: &'static str,
    pub ours: f64,
    pub theirs: f64,
    pub unit: &'static str,
    /// Factor by which ours is better.
    pub ratio: f64,
    /// Required value of the ratio.
    pub bar: f64,
    pub met: bool,
}

impl Ratio {
    /// Two times: the longer one is the worse.
    pub fn of_times(what: &'static str, ours: f64, theirs: f64, bar: f64) -> Self {
        Self::new(what, (ours, theirs), "µs", theirs / ours, bar)
    }

    /// Two rates: the lower one is the worse.
    pub fn of_rates(what: &'static str, ours: f64, theirs: f64, bar: f64) -> Self {
        Self::new(what, (ours, theirs), "queries/s", ours / theirs, bar)
    }

    /// Two amounts: the larger one is the worse.
    pub fn of_amounts(
        what: &'static str,
        ours: f64,
        theirs: f64,
        unit: &'static str,
        bar: f64,
    ) -> Self {
        Self::new(what, (ours, theirs), unit, theirs / ours, bar)
    }

    fn new(
        what: &'static str,
        (ours, theirs): (f64, f64),
        unit: &'static str,
        ratio: f64,
        bar: f64,
    ) -> Self {
        Self { what, ours, theirs, unit, ratio, bar, met: ratio >= bar }
    }

    pub fn row(&self) -> [String; 6] {
        let verdict = if self.met { "" } else { "missed" };
        [
            self.what.to_owned(),
            format!("{} {}", digits(self.ours), self.unit),
            format!("{} {}", digits(self.theirs), self.unit),
            format!("{}×", digits(self.ratio)),
            format!("≥ {}×", self.bar),
            verdict.to_owned(),
        ]
    }
}

/// Formats a number with three significant digits, as an integer from 100 on.
pub fn digits(value: f64) -> String {
    match value {
        100.0.. => format!("{value:.0}"),
        10.0..100.0 => format!("{value:.1}"),
        1.0..10.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// A Markdown table, the way it goes into docs/performance.md.
pub fn table<const COLUMNS: usize>(
    head: [&str; COLUMNS],
    rows: impl IntoIterator<Item = [String; COLUMNS]>,
) -> String {
    let mut text = format!("| {} |\n|{}\n", head.join(" | "), " --- |".repeat(COLUMNS));
    for row in rows {
        text += &format!("| {} |\n", row.join(" | "));
    }
    text
}
