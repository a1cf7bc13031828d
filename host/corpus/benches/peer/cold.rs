//! Cost of a query with a cold index: each query runs on an index that was just opened, and whose
//! files were dropped from the page cache.

use std::path::Path;
use std::time::Instant;

use corver_corpus::{CnfOptions, Index, Mode, OpenOptions};
use serde::{Deserialize, Serialize};

use crate::forget::forget;
use crate::mix::{Ask, Query};
use crate::official::Official;

/// Pages of the index's files that one query brought into memory, and its time.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Cold {
    pub pages: u64,
    pub nanoseconds: u64,
}

/// Counts queries one by one, each with a cold index. `pages` counts for both engines alike.
/// No other process may have the index open: the system keeps mapped pages.
pub fn ask(path: &Path, queries: &[Query], pages: &mut Official) -> Vec<Cold> {
    let mut ask_one = |query: &Query| {
        forget(path);
        let index = Index::open_with(path, OpenOptions::default()).expect("the index is sound");
        let before = pages.pages_in_memory();
        let start = Instant::now();
        match &query.ask {
            Ask::Ngram(ids) => drop(index.count(ids)),
            Ask::Cnf { cnf, max_clause_freq, max_diff_tokens } => {
                let (max_clause_freq, max_diff_tokens) = (*max_clause_freq, *max_diff_tokens);
                let options =
                    CnfOptions { max_clause_freq, max_diff_tokens, mode: Mode::Compatible };
                drop(index.count_cnf(cnf, &options, None));
            }
        }
        let nanoseconds = start.elapsed().as_nanos() as u64;
        Cold { pages: pages.pages_in_memory().saturating_sub(before), nanoseconds }
    };
    queries.iter().map(&mut ask_one).collect()
}
