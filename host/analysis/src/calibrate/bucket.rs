//! Ranges of counts that are evaluated together.

use std::fmt;
use std::str::FromStr;

use corver_core::{Lookup, SentenceVerdict};
use serde::Serialize;

/// Range of counts that are evaluated together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct CountBucket {
    /// Lowest count of the range.
    pub from: u64,
    /// Highest count; `None` if the range has no end.
    pub to: Option<u64>,
}

impl CountBucket {
    /// True if the count is in the range.
    #[must_use]
    pub fn contains(&self, count: u64) -> bool {
        count >= self.from && self.to.is_none_or(|to| count <= to)
    }
}

// Not `1-4`, which a spreadsheet would convert to a date.
impl fmt::Display for CountBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self { from, to: None } => write!(f, "{from} or more"),
            Self { from, to: Some(to) } if from == to => write!(f, "{from}"),
            Self { from, to: Some(to) } => write!(f, "{from} to {to}"),
        }
    }
}

impl FromStr for CountBucket {
    type Err = BucketError;

    fn from_str(text: &str) -> Result<Self, BucketError> {
        let parse = |digits: &str| {
            digits.trim().parse::<u64>().map_err(|_| BucketError::Unreadable(text.to_owned()))
        };
        let range = text.trim();
        if let Some(lowest) = range.strip_suffix("or more") {
            return Ok(Self { from: parse(lowest)?, to: None });
        }
        let (lowest, highest) = range.split_once("to").unwrap_or((range, range));
        let from = parse(lowest)?;
        let to = parse(highest)?;
        if from > to {
            return Err(BucketError::Unreadable(text.to_owned()));
        }
        Ok(Self { from, to: Some(to) })
    }
}

/// Error of a bucket's text or of the edges of buckets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BucketError {
    /// The edges do not ascend from 1 or above.
    #[error("buckets begin at counts that ascend, the first above 0; got {0:?}")]
    Edges(Vec<u64>),
    /// The text is not a range as [`CountBucket`] displays it.
    #[error("{0:?} is not a range of counts such as 0, 1 to 4, or 20 or more")]
    Unreadable(String),
}

/// Buckets that cover every count, the first from 0 on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountBuckets(Vec<u64>);

impl Default for CountBuckets {
    /// Returns the paper's buckets: 0, 1 to 4, 5 to 9, 10 to 19, 20 or more.
    fn default() -> Self {
        Self(vec![0, 1, 5, 10, 20])
    }
}

impl CountBuckets {
    /// Creates a bucket from 0 on, and one from each of these counts on.
    ///
    /// # Errors
    /// If the counts do not ascend from 1 or above.
    pub fn new(edges: &[u64]) -> Result<Self, BucketError> {
        let mut starts = vec![0];
        starts.extend_from_slice(edges);
        if !starts.is_sorted_by(|a, b| a < b) {
            return Err(BucketError::Edges(edges.to_owned()));
        }
        Ok(Self(starts))
    }

    /// Returns the buckets, lowest counts first.
    pub fn iter(&self) -> impl Iterator<Item = CountBucket> {
        let ends = self.0[1..].iter().map(|next| Some(next - 1)).chain([None]);
        self.0.iter().zip(ends).map(|(&from, to)| CountBucket { from, to })
    }

    /// Returns the number of buckets.
    #[must_use]
    pub fn number(&self) -> usize {
        self.0.len()
    }

    /// Finds the bucket of the count that decided a verdict.
    #[must_use]
    pub fn classify(&self, verdict: &SentenceVerdict) -> Placement {
        let Some(count) = verdict.count else { return Placement::Uncounted };
        let has_stopped = |lookup: &Lookup| {
            !lookup.count.is_exact() && lookup.query.limit.is_some_and(|limit| count >= limit)
        };
        // Other rules of the verdict may have lower limits.
        let is_known = verdict
            .lookups
            .iter()
            .any(|lookup| lookup.count.occurrences == Some(count) && !has_stopped(lookup));
        let may_be_larger = !is_known && verdict.lookups.iter().any(has_stopped);
        let last = self.0.len() - 1;
        if may_be_larger && count < self.0[last] {
            return Placement::Truncated;
        }
        Placement::In(self.0.iter().rposition(|&from| count >= from).unwrap_or(0))
    }
}

/// Bucket of a verdict; see [`CountBuckets::classify`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// Index of the bucket, from 0.
    In(usize),
    /// No count decided the verdict.
    Uncounted,
    /// Counting stopped at the limit of the rule, below the last bucket: the count may be larger.
    Truncated,
}

#[cfg(test)]
pub(super) mod tests {
    use corver_core::{Count, CountPrecision, Query};

    use super::*;

    /// Returns First's verdict for a `count` of a query with this limit.
    pub fn counted(count: u64, limit: u64) -> SentenceVerdict {
        let precision = if count < limit { CountPrecision::Exact } else { CountPrecision::AtLeast };
        let found = Count { occurrences: Some(count), precision };
        let query = Query::new([["Rome"], ["Italy"]]).with_limit(Some(limit));
        SentenceVerdict {
            count: Some(count),
            triplet: Some(0),
            lookups: vec![Lookup { query, count: found }],
            ..SentenceVerdict::default()
        }
    }

    #[test]
    fn bucket_labels_round_trip() {
        let written: Vec<String> =
            CountBuckets::default().iter().map(|bucket| bucket.to_string()).collect();
        assert_eq!(written, ["0", "1 to 4", "5 to 9", "10 to 19", "20 or more"]);
        for (text, bucket) in written.iter().zip(CountBuckets::default().iter()) {
            assert_eq!(text.parse::<CountBucket>().unwrap(), bucket);
        }
        for text in ["", "4-Jan", "5 to 1", "many", "1 to", "-1"] {
            assert!(text.parse::<CountBucket>().is_err(), "{text}");
        }
        assert!(matches!(CountBuckets::new(&[5, 1]), Err(BucketError::Edges(_))));
        assert!(CountBuckets::new(&[0]).is_err());
        assert_eq!(CountBuckets::new(&[]).unwrap().number(), 1);
    }

    #[test]
    fn counts_fall_into_their_buckets() {
        let places = [0, 1, 4, 5, 19, 20, 500]
            .map(|count| CountBuckets::default().classify(&counted(count, 1000)));
        assert_eq!(places, [0, 1, 1, 2, 3, 4, 4].map(Placement::In));
        assert_eq!(
            CountBuckets::default().classify(&SentenceVerdict::default()),
            Placement::Uncounted
        );
    }

    #[test]
    fn truncated_count_fits_only_last_bucket() {
        let buckets = CountBuckets::default();
        assert_eq!(buckets.classify(&counted(5, 5)), Placement::Truncated);
        assert_eq!(buckets.classify(&counted(4, 5)), Placement::In(1));
        assert_eq!(buckets.classify(&counted(20, 20)), Placement::In(4));
        assert_eq!(
            CountBuckets::new(&[1, 100]).unwrap().classify(&counted(20, 20)),
            Placement::Truncated
        );
    }

    /// `first` counts to 20; `facts` stops at 5.
    #[test]
    fn count_is_known_if_only_another_rule_stopped() {
        let first = counted(7, 20).lookups;
        let facts = counted(5, 5).lookups;
        let place = |count: u64, lookups: [&[Lookup]; 2]| {
            let verdict = SentenceVerdict {
                count: Some(count),
                lookups: lookups.concat(),
                ..SentenceVerdict::default()
            };
            CountBuckets::default().classify(&verdict)
        };
        assert_eq!(place(7, [&first, &facts]), Placement::In(2));
        assert_eq!(place(7, [&facts, &first]), Placement::In(2));
        assert_eq!(place(5, [&facts, &first]), Placement::Truncated, "facts decided");
    }
}
