//! Many queries at once.
//!
//! In memory a query takes microseconds, and the queries are counted one after the other. A query
//! of a cold index waits for dozens of reads, one after the other, while a disk can serve many
//! reads at once. So where the thread has to wait for the disk, many threads count the rest of the
//! batch: each waits for its own reads, and the disk has one read per thread in its queue.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::Builder;
use std::time::Instant;

use crate::error::{Error, Result};
use crate::files::system;
use crate::index::open::Index;
use crate::query::cnf::{Cnf, CnfCount, CnfOptions};

/// Threads that count in a cold index, the calling one included. Only one batch of an index uses
/// them at a time; others stay on their own thread.
const READERS: usize = 32;
/// The page faults of this many queries decide whether the index is cold.
const LOOK_EVERY: usize = 16;

impl Index {
    /// Counts the matches of many queries. Those that begin alike are counted one after the other,
    /// as they read the same parts of the index; where that means to wait for the disk, many are
    /// counted at the same time. The answers are those of
    /// [`Index::count_cnf`], in the order of the queries; a query of a single term is answered as by [`Index::count`].
    ///
    /// # Errors
    /// As [`Index::count_cnf`], for any of the queries; where the deadline has passed before the
    /// last of them was begun.
    pub fn count_cnf_batch(
        &self,
        queries: &[Cnf],
        options: &CnfOptions,
        enough: Option<u64>,
        deadline: Option<Instant>,
    ) -> Result<Vec<CnfCount>> {
        let batch = Batch::new(self, queries, options, enough, deadline);
        let mut counts = vec![CnfCount::default(); queries.len()];
        for (number, count) in batch.count_all()? {
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
    /// How many were counted.
    counted: AtomicUsize,
}

/// A query's number, and its count.
type Numbered = (usize, CnfCount);

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
        let [next, counted] = [(); 2].map(|()| AtomicUsize::new(0));
        Self { index, queries, order, options, enough, deadline, next, counted }
    }

    fn count_all(&self) -> Result<Vec<Numbered>> {
        let mut counted = Vec::with_capacity(self.order.len());
        let mut waited = system::major_faults();
        while let Some(count) = self.count_next()? {
            counted.push(count);
            if counted.len() % LOOK_EVERY == 0 {
                let so_far = system::major_faults();
                let is_cold = so_far - waited >= LOOK_EVERY as u64;
                waited = so_far;
                if is_cold && let Ok(_alone) = self.index.readers.try_lock() {
                    counted.extend(self.count_by_readers()?);
                }
            }
        }
        Ok(counted)
    }

    /// Counts what is left, at most [`READERS`] queries at a time. This thread is one of the
    /// readers, and the only one where the system gives no others.
    fn count_by_readers(&self) -> Result<Vec<Numbered>> {
        let left = self.order.len().saturating_sub(self.next.load(Relaxed));
        let read =
            || std::iter::from_fn(|| self.count_next().transpose()).collect::<Result<Vec<_>>>();
        std::thread::scope(|scope| {
            let others =
                (1..READERS.min(left)).map_while(|_| Builder::new().spawn_scoped(scope, read).ok());
            let others: Vec<_> = others.collect();
            let mut counted = read();
            for reader in others {
                let more = reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                match (&mut counted, more) {
                    (Ok(counted), Ok(more)) => counted.extend(more),
                    (Ok(_), Err(error)) => counted = Err(error),
                    (Err(_), _) => {}
                }
            }
            counted
        })
    }

    /// Counts the next query, and says which it was; `None` where none is left. After an error none
    /// is.
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
        self.index.count_cnf(cnf, self.options, self.enough)
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
            (0..300).map(|place: u32| 1 + (place * number + place * place) % 97).collect()
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
        let batch = Batch::new(&index, &queries, &options, None, None);
        assert!(batch.count_next().unwrap().is_some());
        let mut counted = batch.count_by_readers().unwrap();
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
        assert_eq!(batch.count_by_readers().unwrap(), []);
    }

    #[test]
    fn first_error_or_deadline_ends_batch() {
        let folder = tempfile::tempdir().unwrap();
        let (index, mut queries) = index_and_queries(folder.path());
        queries.push(Cnf::new(vec![vec![vec![1 << 16]]]).unwrap());
        let options = CnfOptions::default();
        let batch = Batch::new(&index, &queries, &options, None, None);
        assert!(matches!(
            batch.count_by_readers(),
            Err(Error::InvalidArgument(message)) if message.starts_with("token id 65536 ")
        ));
        let late = Batch::new(&index, &queries, &options, None, Some(Instant::now()));
        assert!(matches!(
            late.count_by_readers(),
            Err(Error::Deadline { counted: 0, queries: 577 })
        ));
        assert!(late.count_next().unwrap().is_none());
    }
}
