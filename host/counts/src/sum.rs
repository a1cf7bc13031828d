//! Several corpora counted as one.

use corver_core::{CorpusSize, Count, Counter, PartError, Query};

/// The sum of several counters.
///
/// Each is asked by itself. `max_clause_freq` therefore holds for each of them, not for their sum, and in
/// [`Mode::Compatible`](corver_corpus::Mode::Compatible) a sum may differ from the count of one index over all the
/// documents. A word need only be known to one of them.
pub struct Sum {
    members: Vec<Box<dyn Counter>>,
}

impl Sum {
    /// Joins some counters.
    #[must_use]
    pub fn new(members: Vec<Box<dyn Counter>>) -> Self {
        Self { members }
    }
}

impl Counter for Sum {
    fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, PartError> {
        let mut sums = vec![Count { occurrences: None, exact: true }; queries.len()];
        // Places of the queries that have not had enough yet.
        let mut open: Vec<usize> = (0..queries.len()).collect();
        for member in &mut self.members {
            // A query that stops before a member was asked may lack that member's matches.
            open.retain(|&place| {
                let reached = |enough| sums[place].occurrences.is_some_and(|counted| counted >= enough);
                let stops = queries[place].enough.is_some_and(reached);
                sums[place].exact &= !stops;
                !stops
            });
            if open.is_empty() {
                break;
            }
            let missing = |place: usize| {
                let counted = sums[place].occurrences.unwrap_or_default();
                let enough = queries[place].enough.map(|enough| enough - counted);
                queries[place].clone().with_enough(enough)
            };
            let asked: Vec<Query> = open.iter().map(|&place| missing(place)).collect();
            let counts = member.count(&asked)?;
            if counts.len() != asked.len() {
                return Err(format!("a corpus gave {} counts for {} queries", counts.len(), asked.len()).into());
            }
            for (&place, count) in open.iter().zip(counts) {
                let Count { occurrences, exact } = &mut sums[place];
                *exact &= count.exact;
                if let Some(more) = count.occurrences {
                    *occurrences = Some(occurrences.unwrap_or_default().saturating_add(more));
                }
            }
        }
        Ok(sums)
    }

    /// The sum of all sizes; `None` where a member does not say.
    fn size(&self) -> CorpusSize {
        let sizes: Vec<CorpusSize> = self.members.iter().map(|member| member.size()).collect();
        CorpusSize {
            tokens: sizes.iter().map(|size| size.tokens).sum(),
            documents: sizes.iter().map(|size| size.documents).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers every query with this, whatever is enough.
    struct Fixed(Count, CorpusSize);

    impl Counter for Fixed {
        fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, PartError> {
            Ok(vec![self.0; queries.len()])
        }

        fn size(&self) -> CorpusSize {
            self.1
        }
    }

    struct Broken;

    impl Counter for Broken {
        fn count(&mut self, _: &[Query]) -> Result<Vec<Count>, PartError> {
            Err("broken".into())
        }

        fn size(&self) -> CorpusSize {
            CorpusSize::default()
        }
    }

    const THREE: Count = Count { occurrences: Some(3), exact: true };
    const ABOUT_FOUR: Count = Count { occurrences: Some(4), exact: false };
    const UNKNOWN: Count = Count { occurrences: None, exact: true };

    fn fixed(count: Count) -> Box<dyn Counter> {
        Box::new(Fixed(count, CorpusSize { tokens: Some(10), documents: None }))
    }

    fn sum(members: Vec<Box<dyn Counter>>, enough: &[Option<u64>]) -> Result<Vec<Count>, PartError> {
        let queries: Vec<_> = enough.iter().map(|&enough| Query::new([["fox"]]).with_enough(enough)).collect();
        Sum::new(members).count(&queries)
    }

    #[test]
    fn counts_are_added_and_doubts_kept() {
        let members = || vec![fixed(THREE), fixed(ABOUT_FOUR)];
        let expected = Count { occurrences: Some(7), exact: false };
        assert_eq!(sum(members(), &[None, Some(8)]).unwrap(), [expected, expected]);
        assert_eq!(sum(members(), &[]).unwrap(), []);
    }

    #[test]
    fn a_word_need_only_be_known_once() {
        assert_eq!(sum(vec![fixed(UNKNOWN), fixed(THREE)], &[None]).unwrap(), [THREE]);
        assert_eq!(sum(vec![fixed(UNKNOWN), fixed(UNKNOWN)], &[None, Some(0)]).unwrap(), [UNKNOWN, UNKNOWN]);
    }

    #[test]
    fn no_member_is_asked_after_enough() {
        let stopped = Count { exact: false, ..THREE };
        assert_eq!(sum(vec![fixed(THREE), Box::new(Broken)], &[Some(3)]).unwrap(), [stopped]);
        assert!(sum(vec![fixed(THREE), Box::new(Broken)], &[Some(3), Some(4)]).is_err());
        // Enough only with the last member: nothing is missing.
        let six = Count { occurrences: Some(6), exact: true };
        assert_eq!(sum(vec![fixed(THREE), fixed(THREE)], &[Some(5)]).unwrap(), [six]);
    }

    #[test]
    fn sizes_are_added_where_all_are_known() {
        let mut members = vec![fixed(THREE), fixed(THREE)];
        assert_eq!(Sum::new(members).size(), CorpusSize { tokens: Some(20), documents: None });
        members = vec![fixed(THREE), Box::new(Broken)];
        assert_eq!(Sum::new(members).size(), CorpusSize::default());
    }
}
