//! Ranges of counts.

use std::fmt;
use std::str::FromStr;

use corver_core::Verdict;
use serde::Serialize;

/// Counts that are looked at together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Bucket {
    /// Lowest count.
    pub from: u64,
    /// Highest count; `None` where there is no end.
    pub to: Option<u64>,
}

impl Bucket {
    /// Whether the count is one of these.
    #[must_use]
    pub fn holds(&self, count: u64) -> bool {
        count >= self.from && self.to.is_none_or(|to| count <= to)
    }
}

/// Not as `1-4`: a spreadsheet would make a date of it.
impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self { from, to: None } => write!(f, "{from} or more"),
            Self { from, to: Some(to) } if from == to => write!(f, "{from}"),
            Self { from, to: Some(to) } => write!(f, "{from} to {to}"),
        }
    }
}

impl FromStr for Bucket {
    type Err = BucketError;

    fn from_str(text: &str) -> Result<Self, BucketError> {
        let wrong = || BucketError::Unreadable(text.to_owned());
        let number = |digits: &str| digits.trim().parse::<u64>().map_err(|_| wrong());
        let text = text.trim();
        if let Some(from) = text.strip_suffix("or more") {
            return Ok(Self { from: number(from)?, to: None });
        }
        let (from, to) = text.split_once("to").unwrap_or((text, text));
        let (from, to) = (number(from)?, number(to)?);
        if from <= to { Ok(Self { from, to: Some(to) }) } else { Err(wrong()) }
    }
}

/// Why counts cannot be put into buckets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BucketError {
    /// Edges that do not ascend from 1 or above.
    #[error("buckets begin at counts that ascend, the first above 0; got {0:?}")]
    Edges(Vec<u64>),
    /// A text that is not what [`Bucket`] writes.
    #[error("{0:?} is not a range of counts such as 0, 1 to 4, or 20 or more")]
    Unreadable(String),
}

/// Every count has one bucket; the first begins at 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Buckets(Vec<u64>);

impl Default for Buckets {
    /// The paper's: 0, 1 to 4, 5 to 9, 10 to 19, 20 or more.
    fn default() -> Self {
        Self(vec![0, 1, 5, 10, 20])
    }
}

impl Buckets {
    /// One from 0 on, and one from each of these counts on.
    ///
    /// # Errors
    /// Where they do not ascend from 1 or above.
    pub fn new(edges: &[u64]) -> Result<Self, BucketError> {
        let all: Vec<u64> = std::iter::once(0).chain(edges.iter().copied()).collect();
        if all.is_sorted_by(|a, b| a < b) {
            Ok(Self(all))
        } else {
            Err(BucketError::Edges(edges.to_owned()))
        }
    }

    /// Lowest counts first.
    pub fn iter(&self) -> impl Iterator<Item = Bucket> {
        let ends = self.0[1..].iter().map(|next| Some(next - 1)).chain([None]);
        self.0.iter().zip(ends).map(|(&from, to)| Bucket { from, to })
    }

    /// How many there are.
    #[must_use]
    pub fn number(&self) -> usize {
        self.0.len()
    }

    /// Where the count that decided a verdict lies. Nowhere, where no count decided; and where
    /// counting was stopped at a number that was enough for the rule, but is not for these buckets.
    #[must_use]
    pub fn place(&self, verdict: &Verdict) -> Place {
        let Some(count) = verdict.count else { return Place::Uncounted };
        let stopped = verdict.lookups.iter().any(|lookup| {
            !lookup.count.is_exact() && lookup.query.limit.is_some_and(|limit| count >= limit)
        });
        let last = self.0.len() - 1;
        if stopped && count < self.0[last] {
            return Place::CutShort;
        }
        Place::In(self.0.iter().rposition(|&from| count >= from).unwrap_or(0))
    }
}

/// See [`Buckets::place`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In the bucket of this number, counted from 0.
    In(usize),
    /// No count decided.
    Uncounted,
    /// The count may be larger than what is known.
    CutShort,
}

#[cfg(test)]
pub(super) mod tests {
    use corver_core::{Count, CountPrecision, Lookup, Query};

    use super::*;

    /// Returns First's verdict for a `count` of a query with this limit.
    pub fn counted(count: u64, limit: u64) -> Verdict {
        let precision = if count < limit { CountPrecision::Exact } else { CountPrecision::AtLeast };
        let found = Count { occurrences: Some(count), precision };
        let query = Query::new([["Rome"], ["Italy"]]).with_limit(Some(limit));
        Verdict {
            count: Some(count),
            triplet: Some(0),
            lookups: vec![Lookup { query, count: found }],
            ..Verdict::default()
        }
    }

    #[test]
    fn bucket_labels_round_trip() {
        let written: Vec<String> =
            Buckets::default().iter().map(|bucket| bucket.to_string()).collect();
        assert_eq!(written, ["0", "1 to 4", "5 to 9", "10 to 19", "20 or more"]);
        for (text, bucket) in written.iter().zip(Buckets::default().iter()) {
            assert_eq!(text.parse::<Bucket>().unwrap(), bucket);
        }
        for text in ["", "4-Jan", "5 to 1", "many", "1 to", "-1"] {
            assert!(text.parse::<Bucket>().is_err(), "{text}");
        }
        assert!(matches!(Buckets::new(&[5, 1]), Err(BucketError::Edges(_))));
        assert!(Buckets::new(&[0]).is_err());
        assert_eq!(Buckets::new(&[]).unwrap().number(), 1);
    }

    #[test]
    fn counts_fall_into_their_buckets() {
        let places =
            [0, 1, 4, 5, 19, 20, 500].map(|count| Buckets::default().place(&counted(count, 1000)));
        assert_eq!(places, [0, 1, 1, 2, 3, 4, 4].map(Place::In));
        assert_eq!(Buckets::default().place(&Verdict::default()), Place::Uncounted);
    }

    #[test]
    fn truncated_count_fits_only_last_bucket() {
        let buckets = Buckets::default();
        assert_eq!(buckets.place(&counted(5, 5)), Place::CutShort);
        assert_eq!(buckets.place(&counted(4, 5)), Place::In(1));
        assert_eq!(buckets.place(&counted(20, 20)), Place::In(4));
        assert_eq!(Buckets::new(&[1, 100]).unwrap().place(&counted(20, 20)), Place::CutShort);
    }
}
