//! Batches of queries.
//!
//! If the index is in memory, a query takes microseconds, and one thread counts the batch. A query
//! of a cold index waits for dozens of sequential reads, while a disk can serve many reads in
//! parallel. So if the thread has page faults, many threads count the rest of the batch: each waits
//! for its own reads, and the disk has one read per thread in its queue.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::Builder;
use std::time::Instant;

use crate::error::{Error, Result};
use crate::files::system;
use crate::index::open::Index;
use crate::query::cnf::{Cnf, CnfCount, CnfOptions};

/// Number of threads that count in a cold index, the calling one included. One batch of an index
/// uses them at a time; other batches stay on their own thread.
const READERS: usize = 32;
/// Number of queries whose page faults decide if the index is cold.
const FAULT_WINDOW: usize = 16;

impl Index {
    /// Counts the matches of many queries, and returns the counts in the order of the queries. They
    /// are those of [`Index::count_cnf`], and of [`Index::count`] for a query of a single term.
    ///
    /// Queries with the same first clause are counted in succession, because they read the same
    /// parts of the index. If they wait for the disk, many are counted in parallel.
    ///
    /// # Errors
    /// Fails as [`Index::count_cnf`] does, for any of the queries, or if the deadline passes before
    /// the last query is begun.
    pub fn count_cnf_batch(
        &self,
        queries: &[Cnf],
        options: &CnfOptions,
        limit: Option<u64>,
        deadline: Option<Instant>,
    ) -> Result<Vec<CnfCount>> {
        let batch = CountBatch::new(self, queries, options, limit, deadline);
        let mut counts = vec![CnfCount::default(); queries.len()];
        for (number, count) in batch.count_all()? {
            counts[number] = count;
        }
        Ok(counts)
    }
}

/// A queue of queries that threads share.
struct CountBatch<'a> {
    index: &'a Index,
    queries: &'a [Cnf],
    /// Numbers of the queries, in the order in which they are counted.
    order: Vec<usize>,
    options: &'a CnfOptions,
    limit: Option<u64>,
    deadline: Option<Instant>,
    /// Number of queries taken from the queue.
    next: AtomicUsize,
    /// Number of queries counted without an error.
    counted: AtomicUsize,
}

/// A query's number and its count.
type Numbered = (usize, CnfCount);

impl<'a> CountBatch<'a> {
    fn new(
        index: &'a Index,
        queries: &'a [Cnf],
        options: &'a CnfOptions,
        limit: Option<u64>,
        deadline: Option<Instant>,
    ) -> Self {
        let mut order: Vec<usize> = (0..queries.len()).collect();
        order.sort_unstable_by_key(|&number| queries[number].clauses());
        let next = AtomicUsize::new(0);
        let counted = AtomicUsize::new(0);
        Self { index, queries, order, options, limit, deadline, next, counted }
    }

    fn count_all(&self) -> Result<Vec<Numbered>> {
        let mut counts = Vec::with_capacity(self.order.len());
        let mut faults_before = system::major_faults();
        while let Some(count) = self.count_next()? {
            counts.push(count);
            if counts.len() % FAULT_WINDOW == 0 {
                let faults = system::major_faults();
                let is_cold = faults - faults_before >= FAULT_WINDOW as u64;
                faults_before = faults;
                if is_cold && let Ok(_guard) = self.index.readers.try_lock() {
                    counts.extend(self.count_in_parallel()?);
                }
            }
        }
        Ok(counts)
    }

    /// Counts the remaining queries with up to [`READERS`] threads. This thread is one of them, and
    /// the only one if the system starts no others.
    fn count_in_parallel(&self) -> Result<Vec<Numbered>> {
        let num_remaining = self.order.len().saturating_sub(self.next.load(Relaxed));
        std::thread::scope(|scope| {
            let mut readers = Vec::new();
            for _ in 1..READERS.min(num_remaining) {
                let spawned = Builder::new().spawn_scoped(scope, || self.count_remaining());
                let Ok(reader) = spawned else { break };
                readers.push(reader);
            }
            let mut result = self.count_remaining();
            for reader in readers {
                // Every reader is joined, also after an error: a panic must not be lost.
                let joined = reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                match (&mut result, joined) {
                    (Ok(counts), Ok(more)) => counts.extend(more),
                    (Ok(_), Err(error)) => result = Err(error),
                    (Err(_), _) => {}
                }
            }
            result
        })
    }

    fn count_remaining(&self) -> Result<Vec<Numbered>> {
        let mut counts = Vec::new();
        while let Some(count) = self.count_next()? {
            counts.push(count);
        }
        Ok(counts)
    }

    /// Counts the next query of the queue; `None` if the queue is empty. An error empties it.
    fn count_next(&self) -> Result<Option<Numbered>> {
        let Some(&number) = self.order.get(self.next.fetch_add(1, Relaxed)) else {
            return Ok(None);
        };
        let count = match self.deadline {
            Some(deadline) if Instant::now() >= deadline => Err(Error::Deadline {
                counted: self.counted.load(Relaxed),
                queries: self.order.len(),
            }),
            _ => self.count(&self.queries[number]),
        };
        match count {
            Ok(_) => self.counted.fetch_add(1, Relaxed),
            Err(_) => self.next.swap(self.order.len(), Relaxed),
        };
        count.map(|count| Some((number, count)))
    }

    fn count(&self, cnf: &Cnf) -> Result<CnfCount> {
        if let [clause] = cnf.clauses()
            && let [term] = clause.as_slice()
        {
            return Ok(CnfCount { count: self.index.count(term)?, ..CnfCount::default() });
        }
        self.index.count_cnf(cnf, self.options, self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::{BuildOptions, build_from_tokens};
    use crate::token_width::TokenWidth;

    /// Two hundred documents, and a query for every pair of the first 24 tokens.
    fn index_and_queries(folder: &std::path::Path) -> (Index, Vec<Cnf>) {
        let document = |number: u32| {
            (0..300).map(|index: u32| 1 + (index * number + index * index) % 97).collect()
        };
        let path = folder.join("index");
        build_from_tokens((0..200).map(document), TokenWidth::U16, &path, &BuildOptions::default())
            .unwrap();
        let pair = |number: u32| {
            Cnf::new(vec![vec![vec![1 + number / 24]], vec![vec![1 + number % 24]]]).unwrap()
        };
        (Index::open(&path).unwrap(), (0..24 * 24).map(pair).collect())
    }

    #[test]
    fn parallel_readers_count_every_query_once() {
        let folder = tempfile::tempdir().unwrap();
        let (index, queries) = index_and_queries(folder.path());
        let options =
            CnfOptions { max_diff_tokens: 3, max_clause_freq: 100, ..CnfOptions::default() };
        let batch = CountBatch::new(&index, &queries, &options, None, None);
        assert!(batch.count_next().unwrap().is_some());
        let mut counted = batch.count_in_parallel().unwrap();
        counted.sort_unstable_by_key(|&(number, _)| number);
        assert_eq!(counted.len(), queries.len() - 1);
        for (number, count) in counted {
            assert_eq!(
                count,
                index.count_cnf(&queries[number], &options, None).unwrap(),
                "{:?}",
                queries[number]
            );
        }
        assert_eq!(batch.count_in_parallel().unwrap(), []);
    }

    #[test]
    fn first_error_or_deadline_ends_batch() {
        let folder = tempfile::tempdir().unwrap();
        let (index, mut queries) = index_and_queries(folder.path());
        queries.push(Cnf::new(vec![vec![vec![1 << 16]]]).unwrap());
        let options = CnfOptions::default();
        let batch = CountBatch::new(&index, &queries, &options, None, None);
        assert!(matches!(
            batch.count_in_parallel(),
            Err(Error::InvalidArgument(message)) if message.starts_with("token id 65536 ")
        ));
        let late = CountBatch::new(&index, &queries, &options, None, Some(Instant::now()));
        assert!(matches!(
            late.count_in_parallel(),
            Err(Error::Deadline { counted: 0, queries: 577 })
        ));
        assert!(late.count_next().unwrap().is_none());
    }
}
