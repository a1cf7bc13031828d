//! Many queries at once.
//!
//! In memory a query takes microseconds, and the queries are counted one after the other. A query of a cold index waits for
//! some twenty reads, one after the other, and a disk answers many reads in the time of one. So where a thread has to wait for
//! the disk, many threads count the rest of the batch: each waits for its own reads, and the disk always has as many
//! to answer as there are threads. No search knows of another.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use crate::error::{Error, Result};
use crate::index::open::Index;
use crate::query::cnf::{Cnf, CnfCount, CnfOptions};
use crate::query::plan::Plan;

/// Threads that count in a cold index. With half as many, the disk measured in `docs/performance.md` gives an eighth less;
/// with twice as many, it gives hardly more.
const READERS: usize = 32;
/// Queries after which a look is taken at whether the disk was waited for.
const LOOK_EVERY: usize = 16;
/// Queries that may have to sort more positions than this are counted one at a time, so that the memory does not grow with
/// the number of threads.
const MANY_POSITIONS: u64 = 1 << 20;

impl Index {
    /// Counts the matches of many queries. Those that begin alike are counted one after the other, as they read the same
    /// parts of the index; where that means to wait for the disk, many are counted at the same time. The answers are those of
    /// [`Index::count_cnf`], in the order of the queries.
    ///
    /// # Errors
    /// As [`Index::count_cnf`], for any of the queries; where the deadline has passed before the last of them.
    pub fn count_cnf_batch(
        &self,
        queries: &[Cnf],
        options: &CnfOptions,
        enough: Option<u64>,
        deadline: Option<Instant>,
    ) -> Result<Vec<CnfCount>> {
        let batch = Batch::new(self, queries, options, enough, deadline);
        let mut counts = vec![CnfCount::default(); queries.len()];
        for (number, count) in batch.count_while_warm()?.into_iter().chain(batch.count_by_readers()?) {
            counts[number] = count;
        }
        Ok(counts)
    }
}

/// A batch that threads take queries from.
struct Batch<'a> {
    index: &'a Index,
    queries: &'a [Cnf],
    /// The queries' numbers, in the order in which they are counted.
    order: Vec<usize>,
    options: &'a CnfOptions,
    enough: Option<u64>,
    deadline: Option<Instant>,
    /// How many were taken.
    next: AtomicUsize,
    /// Held while many positions are sorted.
    turn: Mutex<()>,
}

impl<'a> Batch<'a> {
    fn new(
        index: &'a Index,
        queries: &'a [Cnf],
        options: &'a CnfOptions,
        enough: Option<u64>,
        deadline: Option<Instant>,
    ) -> Self {
        let mut order: Vec<usize> = (0..queries.len()).collect();
        order.sort_unstable_by_key(|&number| queries[number].clauses());
        Self { index, queries, order, options, enough, deadline, next: AtomicUsize::new(0), turn: Mutex::default() }
    }

    /// Counts until none is left, or until every query waits for the disk.
    fn count_while_warm(&self) -> Result<Vec<(usize, CnfCount)>> {
        let mut counted = Vec::with_capacity(self.order.len());
        let mut waited = major_faults();
        while let Some(count) = self.count_next()? {
            counted.push(count);
            if counted.len() % LOOK_EVERY == 0 {
                let so_far = major_faults();
                if so_far - waited >= LOOK_EVERY as u64 {
                    break;
                }
                waited = so_far;
            }
        }
        Ok(counted)
    }

    /// Counts what is left, at most [`READERS`] queries at a time.
    fn count_by_readers(&self) -> Result<Vec<(usize, CnfCount)>> {
        let left = self.order.len().saturating_sub(self.next.load(Relaxed));
        let read = || std::iter::from_fn(|| self.count_next().transpose()).collect::<Result<Vec<_>>>();
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..READERS.min(left)).map(|_| scope.spawn(read)).collect();
            let mut counted = Vec::with_capacity(left);
            for reader in readers {
                counted.extend(reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
            }
            Ok(counted)
        })
    }

    /// Counts the next query, and says which it was; `None` where none is left. After an error none is.
    fn count_next(&self) -> Result<Option<(usize, CnfCount)>> {
        let place = self.next.fetch_add(1, Relaxed);
        let Some(&number) = self.order.get(place) else { return Ok(None) };
        let count = match self.deadline {
            Some(deadline) if Instant::now() >= deadline => {
                Err(Error::Deadline { counted: place, queries: self.order.len() })
            }
            _ => self.count(&self.queries[number]),
        };
        if count.is_err() {
            self.next.store(self.order.len(), Relaxed);
        }
        count.map(|count| Some((number, count)))
    }

    fn count(&self, cnf: &Cnf) -> Result<CnfCount> {
        let Some(plan) = Plan::new(self.index, cnf, self.options)? else { return Ok(CnfCount::default()) };
        let is_large = plan.num_positions() > MANY_POSITIONS;
        let _turn = is_large.then(|| self.turn.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
        plan.count(self.enough)
    }
}

/// Pages that this thread has waited for the disk for.
#[allow(unsafe_code)] // rustix does not have this call
fn major_faults() -> u64 {
    // SAFETY: the type is made of integers, for all of which zeros are valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes one `rusage`.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    usage.ru_majflt as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::{BuildOptions, build_from_tokens};
    use crate::token_width::TokenWidth;

    /// Two hundred documents, and a query for every pair of the first 24 tokens.
    fn index_and_queries(folder: &std::path::Path) -> (Index, Vec<Cnf>) {
        let document = |number: u32| (0..300).map(|place: u32| 1 + (place * number + place * place) % 97).collect();
        let path = folder.join("index");
        build_from_tokens((0..200).map(document), TokenWidth::U16, &path, &BuildOptions::default()).unwrap();
        let pair = |number: u32| Cnf::new(vec![vec![vec![1 + number / 24]], vec![vec![1 + number % 24]]]).unwrap();
        (Index::open(&path).unwrap(), (0..24 * 24).map(pair).collect())
    }

    #[test]
    fn readers_count_every_query_once_and_as_one_thread_does() {
        let folder = tempfile::tempdir().unwrap();
        let (index, queries) = index_and_queries(folder.path());
        let options = CnfOptions { max_diff_tokens: 3, max_clause_freq: 100, ..CnfOptions::default() };
        let batch = Batch::new(&index, &queries, &options, None, None);
        assert!(batch.count_next().unwrap().is_some());
        let mut counted = batch.count_by_readers().unwrap();
        counted.sort_unstable_by_key(|&(number, _)| number);
        assert_eq!(counted.len(), queries.len() - 1);
        for (number, count) in counted {
            assert_eq!(count, index.count_cnf(&queries[number], &options, None).unwrap(), "{:?}", queries[number]);
        }
        assert_eq!(batch.count_by_readers().unwrap(), []);
    }

    #[test]
    fn the_first_error_ends_the_batch() {
        let folder = tempfile::tempdir().unwrap();
        let (index, mut queries) = index_and_queries(folder.path());
        queries.push(Cnf::new(vec![vec![vec![1 << 16]]]).unwrap());
        let options = CnfOptions::default();
        let batch = Batch::new(&index, &queries, &options, None, None);
        assert!(matches!(batch.count_by_readers(), Err(Error::TokenTooLarge { token: 0x1_0000, .. })));
        let late = Batch::new(&index, &queries, &options, None, Some(Instant::now()));
        assert!(matches!(late.count_by_readers(), Err(Error::Deadline { counted: 0, queries: 577 })));
        assert!(late.count_next().unwrap().is_none());
    }
}
