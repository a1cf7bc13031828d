//! Counting in words, whoever does it: an index, several, or one on another machine.

use std::collections::BTreeMap;

use crate::cnf::{Cnf, CnfOptions};
use crate::query::{Corpus, WordCount};

/// Why a [`WordCounter`] failed.
pub type CounterError = Box<dyn std::error::Error + Send + Sync>;

/// One query of [`WordCounter::count_all`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WordQuery<'q> {
    /// AND of clauses; a clause is an OR of words, or of several words in a row.
    pub all_of: &'q [Vec<String>],
    /// The search may stop once the count has reached this number.
    pub enough: Option<u64>,
}

/// Anything that counts how often words occur together.
pub trait WordCounter: Send + Sync {
    /// The counts of some queries, in order. `None` where a query has none: a word without tokens, for instance.
    ///
    /// # Errors
    /// Where counting itself fails: a damaged file, a lost connection, an option that cannot work.
    fn count_all(
        &self,
        queries: &[WordQuery<'_>],
        options: &CnfOptions,
    ) -> Result<Vec<Option<WordCount>>, CounterError>;
}

impl WordCounter for Corpus {
    fn count_all(
        &self,
        queries: &[WordQuery<'_>],
        options: &CnfOptions,
    ) -> Result<Vec<Option<WordCount>>, CounterError> {
        let mut counts = vec![None; queries.len()];
        // By where they may stop: the queries of a batch stop alike. Nearly always there is one batch.
        let mut batches: BTreeMap<Option<u64>, (Vec<usize>, Vec<Cnf>)> = BTreeMap::new();
        for (number, query) in queries.iter().enumerate() {
            let Some(clauses) = self.encode_clauses(query.all_of)? else { continue };
            counts[number] = self.count_lone_term(&clauses)?;
            if counts[number].is_none() {
                let (numbers, batch) = batches.entry(query.enough).or_default();
                numbers.push(number);
                batch.push(Cnf::new(clauses)?);
            }
        }
        for (enough, (numbers, batch)) in batches {
            let answers = self.index().count_cnf_batch(&batch, options, enough)?;
            numbers.into_iter().zip(answers).for_each(|(number, answer)| counts[number] = Some(answer));
        }
        Ok(counts)
    }
}

/// Several corpora counted as one: the sum of their counts.
///
/// Each is asked by itself. `max_clause_freq` therefore holds for each of them, not for their sum, and in
/// [`Mode::Compatible`](crate::Mode::Compatible) a sum may differ from the count of one index over all the documents.
/// A word need only be known to one of them.
pub struct Corpora {
    members: Vec<Box<dyn WordCounter>>,
}

impl Corpora {
    /// Joins some corpora.
    #[must_use]
    pub fn new(members: Vec<Box<dyn WordCounter>>) -> Self {
        Self { members }
    }
}

impl WordCounter for Corpora {
    fn count_all(
        &self,
        queries: &[WordQuery<'_>],
        options: &CnfOptions,
    ) -> Result<Vec<Option<WordCount>>, CounterError> {
        let mut sums: Vec<Option<WordCount>> = vec![None; queries.len()];
        // Numbers of the queries that have not had enough yet.
        let mut open: Vec<usize> = (0..queries.len()).collect();
        for (number, member) in self.members.iter().enumerate() {
            let counted = |sum: &Option<WordCount>| sum.map_or(0, |sum| sum.count);
            let asked: Vec<WordQuery<'_>> = open
                .iter()
                .map(|&query| {
                    let enough = queries[query].enough.map(|enough| enough.saturating_sub(counted(&sums[query])));
                    WordQuery { enough, ..queries[query] }
                })
                .collect();
            for (&query, answer) in open.iter().zip(member.count_all(&asked, options)?) {
                let Some(answer) = answer else { continue };
                let sum = sums[query].get_or_insert_default();
                sum.count = sum.count.saturating_add(answer.count);
                sum.approx |= answer.approx;
                sum.sampled |= answer.sampled;
                sum.at_least |= answer.at_least;
            }
            let last = number + 1 == self.members.len();
            open.retain(|&query| {
                let reached = queries[query].enough.is_some_and(|enough| counted(&sums[query]) >= enough);
                if let Some(sum) = &mut sums[query]
                    && reached
                    && !last
                {
                    sum.at_least = true;
                }
                !reached
            });
        }
        Ok(sums)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers every query with this, as far as it is asked for.
    struct Fixed(Option<WordCount>);

    impl WordCounter for Fixed {
        fn count_all(&self, queries: &[WordQuery<'_>], _: &CnfOptions) -> Result<Vec<Option<WordCount>>, CounterError> {
            Ok(vec![self.0; queries.len()])
        }
    }

    struct Broken;

    impl WordCounter for Broken {
        fn count_all(&self, queries: &[WordQuery<'_>], _: &CnfOptions) -> Result<Vec<Option<WordCount>>, CounterError> {
            if queries.is_empty() { Ok(Vec::new()) } else { Err("broken".into()) }
        }
    }

    fn sum(members: Vec<Box<dyn WordCounter>>, enough: &[Option<u64>]) -> Result<Vec<Option<WordCount>>, CounterError> {
        let all_of = [vec!["fox".to_owned()]];
        let queries: Vec<_> = enough.iter().map(|&enough| WordQuery { all_of: &all_of, enough }).collect();
        Corpora::new(members).count_all(&queries, &CnfOptions::default())
    }

    const THREE: WordCount = WordCount { count: 3, approx: false, sampled: false, at_least: false };
    const ABOUT_FOUR: WordCount = WordCount { count: 4, approx: true, sampled: true, at_least: false };

    #[test]
    fn counts_are_added_and_doubts_kept() {
        let members =
            || -> Vec<Box<dyn WordCounter>> { vec![Box::new(Fixed(Some(THREE))), Box::new(Fixed(Some(ABOUT_FOUR)))] };
        let expected = WordCount { count: 7, ..ABOUT_FOUR };
        assert_eq!(sum(members(), &[None, Some(8)]).unwrap(), [Some(expected), Some(expected)]);
        assert_eq!(sum(members(), &[]).unwrap(), []);
    }

    #[test]
    fn a_word_need_only_be_known_once() {
        let unknown = || Box::new(Fixed(None));
        assert_eq!(sum(vec![unknown(), Box::new(Fixed(Some(THREE)))], &[None]).unwrap(), [Some(THREE)]);
        assert_eq!(sum(vec![unknown(), unknown()], &[None]).unwrap(), [None]);
    }

    #[test]
    fn nobody_is_asked_after_enough() {
        let stopped = WordCount { at_least: true, ..THREE };
        let members = |second: Box<dyn WordCounter>| vec![Box::new(Fixed(Some(THREE))) as Box<dyn WordCounter>, second];
        assert_eq!(sum(members(Box::new(Broken)), &[Some(3)]).unwrap(), [Some(stopped)]);
        assert!(sum(members(Box::new(Broken)), &[Some(3), Some(4)]).is_err());
        // Enough only with the last: nothing was left out.
        let six = WordCount { count: 6, ..THREE };
        assert_eq!(sum(members(Box::new(Fixed(Some(THREE)))), &[Some(5)]).unwrap(), [Some(six)]);
    }
}
