//! Several corpora counted as one.

use std::collections::BTreeMap;
use std::panic::resume_unwind;

use corver_core::{BoxError, CorpusInfo, Count, Counter, Query};
use corver_corpus::Mode;

/// The sum of several counters.
///
/// All members count concurrently:
/// - `max_clause_freq` applies to each member, so that in [`Mode::Compatible`] a sum may differ from
///   the count of one index of all documents;
/// - in [`Mode::Exact`] the sum finds the counted clause, which no member can know: it counts each
///   clause alone in all members first;
/// - each member counts up to the limit of the sum;
/// - a word has a count if one member has tokens for it.
pub struct Sum {
    members: Vec<Box<dyn Counter>>,
    /// Mode of the sum. The members have [`Sum::member_mode`].
    mode: Mode,
}

/// Returns a query's clauses with the rarest one first, and the others in their order. Of several
/// equally rare clauses, the first is moved. `occurrences` has a number for each clause.
#[must_use]
pub fn rarest_first(all_of: &[Vec<String>], occurrences: &[u64]) -> Vec<Vec<String>> {
    let rarest = occurrences.iter().enumerate().min_by_key(|&(_, occurrences)| occurrences);
    let mut reordered = all_of.to_vec();
    if let Some((number, _)) = rarest {
        reordered[..=number].rotate_right(1);
    }
    reordered
}

/// The errors of several members of a [`Sum`].
#[derive(Debug, thiserror::Error)]
#[error("{} corpora failed: {}", .0.len(), join(.0))]
struct SeveralFailed(Vec<BoxError>);

fn join(errors: &[BoxError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl Sum {
    /// Creates the sum of counters that have the [`Sum::member_mode`] of `mode`.
    #[must_use]
    pub fn new(members: Vec<Box<dyn Counter>>, mode: Mode) -> Self {
        Self { members, mode }
    }

    /// Returns the mode in which the members of a sum count.
    #[must_use]
    pub fn member_mode(mode: Mode) -> Mode {
        match mode {
            Mode::Exact => Mode::ExactFirst,
            Mode::Compatible | Mode::ExactFirst | Mode::Span => mode,
        }
    }

    /// Returns the sums of the members' counts.
    fn sums(&mut self, queries: &[Query]) -> Result<Vec<Count>, BoxError> {
        let mut sums = vec![Count::exact(None); queries.len()];
        for counts in self.member_counts(queries)? {
            for (sum, count) in sums.iter_mut().zip(counts) {
                sum.precision = sum.precision.of_sum(count.precision);
                if let Some(occurrences) = count.occurrences {
                    sum.occurrences =
                        Some(sum.occurrences.unwrap_or_default().saturating_add(occurrences));
                }
            }
        }
        Ok(sums)
    }

    /// Returns the queries, those of several clauses with the rarest clause of all members first.
    fn with_rarest_first(&mut self, queries: &[Query]) -> Result<Vec<Query>, BoxError> {
        let mut clauses: BTreeMap<&[String], u64> = BTreeMap::new();
        for query in queries.iter().filter(|query| query.all_of.len() > 1) {
            clauses.extend(query.all_of.iter().map(|clause| (clause.as_slice(), 0)));
        }
        let clause_queries: Vec<Query> =
            clauses.keys().map(|&clause| Query::new([clause])).collect();
        if !clause_queries.is_empty() {
            for (occurrences, count) in clauses.values_mut().zip(self.sums(&clause_queries)?) {
                *occurrences = count.occurrences.unwrap_or_default();
            }
        }
        let mut reordered = Vec::with_capacity(queries.len());
        for query in queries {
            let mut all_of = query.all_of.clone();
            if all_of.len() > 1 {
                let occurrences: Vec<u64> =
                    all_of.iter().map(|clause| clauses[clause.as_slice()]).collect();
                all_of = rarest_first(&all_of, &occurrences);
            }
            reordered.push(Query { all_of, limit: query.limit });
        }
        Ok(reordered)
    }

    /// Returns the counts of each member.
    fn member_counts(&mut self, queries: &[Query]) -> Result<Vec<Vec<Count>>, BoxError> {
        let mut counts = Vec::new();
        let mut errors = Vec::new();
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for member in &mut self.members {
                threads.push(scope.spawn(|| count_in(member.as_mut(), queries)));
            }
            for thread in threads {
                match thread.join().unwrap_or_else(|panic| resume_unwind(panic)) {
                    Ok(member_counts) => counts.push(member_counts),
                    Err(error) => errors.push(error),
                }
            }
        });
        match errors.len() {
            0 => Ok(counts),
            1 => Err(errors.remove(0)),
            _ => Err(SeveralFailed(errors).into()),
        }
    }
}

/// Returns the counts of one member, one for each query.
fn count_in(member: &mut dyn Counter, queries: &[Query]) -> Result<Vec<Count>, BoxError> {
    let counts = member.count(queries)?;
    if counts.len() != queries.len() {
        let problem =
            format!("a corpus gave {} counts for {} queries", counts.len(), queries.len());
        return Err(BoxError::from(problem));
    }
    Ok(counts)
}

impl Counter for Sum {
    fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, BoxError> {
        match self.mode {
            Mode::Exact => {
                let reordered = self.with_rarest_first(queries)?;
                self.sums(&reordered)
            }
            Mode::Compatible | Mode::ExactFirst | Mode::Span => self.sums(queries),
        }
    }

    /// Returns the sums of all sizes, and the window and mode of all members; `None` if a member's is
    /// unknown.
    fn info(&self) -> CorpusInfo {
        let infos: Vec<CorpusInfo> = self.members.iter().map(|member| member.info()).collect();
        CorpusInfo {
            tokens: infos.iter().map(|info| info.tokens).sum(),
            documents: infos.iter().map(|info| info.documents).sum(),
            window: infos.iter().map(|info| info.window).reduce(common).flatten(),
            mode: infos.iter().map(|info| info.mode).reduce(common).flatten(),
        }
    }
}

/// Returns the value that both have; `None` if they differ.
fn common<T: PartialEq>(a: Option<T>, b: Option<T>) -> Option<T> {
    if a == b { a } else { None }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Barrier, Mutex};

    use corver_core::CountPrecision;

    use super::*;

    /// Returns the same count for every query, whatever its limit.
    struct Fixed(Count, CorpusInfo);

    impl Counter for Fixed {
        fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, BoxError> {
            Ok(vec![self.0; queries.len()])
        }

        fn info(&self) -> CorpusInfo {
            self.1
        }
    }

    /// Fails with a message.
    struct Broken(&'static str);

    impl Counter for Broken {
        fn count(&mut self, _: &[Query]) -> Result<Vec<Count>, BoxError> {
            Err(self.0.into())
        }

        fn info(&self) -> CorpusInfo {
            CorpusInfo::default()
        }
    }

    /// Returns 1 once all members that share the barrier are counting.
    struct Together(Arc<Barrier>);

    impl Counter for Together {
        fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, BoxError> {
            self.0.wait();
            Ok(vec![Count::exact(Some(1)); queries.len()])
        }

        fn info(&self) -> CorpusInfo {
            CorpusInfo::default()
        }
    }

    /// Has a fixed number of matches, and stops at the query's limit.
    struct Stopping(u64);

    impl Counter for Stopping {
        fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, BoxError> {
            let count = |query: &Query| match query.limit {
                Some(limit) if limit < self.0 => {
                    Count { occurrences: Some(limit), precision: CountPrecision::AtLeast }
                }
                _ => Count::exact(Some(self.0)),
            };
            Ok(queries.iter().map(count).collect())
        }

        fn info(&self) -> CorpusInfo {
            CorpusInfo::default()
        }
    }

    const THREE: Count = Count { occurrences: Some(3), precision: CountPrecision::Exact };
    const ABOUT_FOUR: Count = Count { occurrences: Some(4), precision: CountPrecision::Estimate };
    const UNKNOWN: Count = Count { occurrences: None, precision: CountPrecision::Exact };

    fn fixed(count: Count) -> Box<dyn Counter> {
        Box::new(Fixed(
            count,
            CorpusInfo { tokens: Some(10), documents: None, window: Some(1_000), mode: None },
        ))
    }

    fn sum(members: Vec<Box<dyn Counter>>, limits: &[Option<u64>]) -> Result<Vec<Count>, BoxError> {
        let queries: Vec<_> =
            limits.iter().map(|&limit| Query::new([["fox"]]).with_limit(limit)).collect();
        Sum::new(members, Mode::Compatible).count(&queries)
    }

    #[test]
    fn summed_count_is_exact_only_if_all_are() {
        let members = || vec![fixed(THREE), fixed(ABOUT_FOUR)];
        let expected = Count { occurrences: Some(7), precision: CountPrecision::Estimate };
        assert_eq!(sum(members(), &[None, Some(8)]).unwrap(), [expected, expected]);
        assert_eq!(sum(members(), &[]).unwrap(), []);
    }

    #[test]
    fn sum_ignores_members_without_count() {
        assert_eq!(sum(vec![fixed(UNKNOWN), fixed(THREE)], &[None]).unwrap(), [THREE]);
        assert_eq!(
            sum(vec![fixed(UNKNOWN), fixed(UNKNOWN)], &[None, Some(0)]).unwrap(),
            [UNKNOWN, UNKNOWN]
        );
    }

    #[test]
    fn sum_members_count_concurrently() {
        let barrier = Arc::new(Barrier::new(3)); // one after the other would wait forever
        let members =
            (0..3).map(|_| Box::new(Together(barrier.clone())) as Box<dyn Counter>).collect();
        assert_eq!(sum(members, &[None, None]).unwrap(), [THREE, THREE]);
    }

    /// Counts a clause by the length of its first word, and records the queries.
    struct Lengths(&'static Mutex<Vec<Query>>);

    impl Counter for Lengths {
        fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, BoxError> {
            self.0.lock().unwrap().extend_from_slice(queries);
            let length = |query: &Query| Count::exact(Some(query.all_of[0][0].len() as u64));
            Ok(queries.iter().map(length).collect())
        }

        fn info(&self) -> CorpusInfo {
            CorpusInfo::default()
        }
    }

    #[test]
    fn exact_sum_counts_rarest_clause_of_all_members() {
        static QUERIES: Mutex<Vec<Query>> = Mutex::new(Vec::new());
        let members = || vec![Box::new(Lengths(&QUERIES)) as Box<dyn Counter>, fixed(THREE)];
        let pair = |first, second| Query::new([[first], [second]]).with_limit(Some(9));
        // Of two equally rare clauses, the first is counted.
        let queries = [pair("badger", "fox"), pair("hen", "fox"), Query::new([["badger"]])];
        let counts = Sum::new(members(), Mode::Exact).count(&queries).unwrap();
        assert_eq!(counts, [6, 6, 9].map(|number| Count::exact(Some(number))));
        assert_eq!(
            QUERIES.lock().unwrap().split_off(3),
            [pair("fox", "badger"), pair("hen", "fox"), Query::new([["badger"]])]
        );
        QUERIES.lock().unwrap().clear();
        Sum::new(members(), Mode::Span).count(&queries).unwrap();
        assert_eq!(*QUERIES.lock().unwrap(), queries);
    }

    #[test]
    fn limit_applies_to_each_member() {
        let members = || vec![Box::new(Stopping(5)) as Box<dyn Counter>, Box::new(Stopping(2))];
        let counts = sum(members(), &[None, Some(7), Some(5), Some(3), Some(1)]).unwrap();
        let exact = |occurrences| Count::exact(Some(occurrences));
        let at_least = |occurrences| Count {
            occurrences: Some(occurrences),
            precision: CountPrecision::AtLeast,
        };
        assert_eq!(counts, [exact(7), exact(7), exact(7), at_least(5), at_least(2)]);
    }

    #[test]
    fn sum_error_lists_every_failed_member() {
        let failed = |members| sum(members, &[None]).unwrap_err().to_string();
        let broken = |why| Box::new(Broken(why)) as Box<dyn Counter>;
        assert_eq!(failed(vec![fixed(THREE), broken("one is gone"), fixed(THREE)]), "one is gone");
        let several = failed(vec![broken("one is gone"), fixed(THREE), broken("another too")]);
        assert_eq!(several, "2 corpora failed: one is gone; another too");

        struct Short;
        impl Counter for Short {
            fn count(&mut self, _: &[Query]) -> Result<Vec<Count>, BoxError> {
                Ok(Vec::new())
            }
            fn info(&self) -> CorpusInfo {
                CorpusInfo::default()
            }
        }
        assert_eq!(
            failed(vec![fixed(THREE), Box::new(Short)]),
            "a corpus gave 0 counts for 1 queries"
        );
    }

    #[test]
    fn sum_size_needs_every_member_size() {
        let mut members = vec![fixed(THREE), fixed(THREE)];
        assert_eq!(
            Sum::new(members, Mode::Compatible).info(),
            CorpusInfo { tokens: Some(20), documents: None, window: Some(1_000), mode: None }
        );
        members = vec![fixed(THREE), Box::new(Broken("it does not say"))];
        assert_eq!(Sum::new(members, Mode::Compatible).info(), CorpusInfo::default());
    }
}
