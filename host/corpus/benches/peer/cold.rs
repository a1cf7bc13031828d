//! What a query costs when nothing of the index is in memory: each is asked of an index that was just opened, and whose
//! files the system was told to forget.

use std::path::Path;
use std::time::Instant;

use corver_corpus::{CnfOptions, Index, Mode, OpenOptions};
use rustix::fs::{Advice, fadvise};
use serde::{Deserialize, Serialize};

use crate::mix::{Ask, Query};
use crate::process::major_faults;

/// Pages that had to be read from the disk while a query waited, and its time.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Cold {
    pub faults: u64,
    pub nanoseconds: u64,
}

/// Asks some queries one by one, each in a fresh state. What the system reads ahead while the index is opened is not
/// counted, nor how much one fault brings in: fewer faults need not mean fewer bytes. Nobody else may have the index open: the system keeps mapped pages.
pub fn ask(path: &Path, queries: &[Query]) -> Vec<Cold> {
    let ask_one = |query: &Query| {
        forget(path);
        let index = Index::open_with(path, OpenOptions::default()).expect("the index is sound");
        let (start, faults) = (Instant::now(), major_faults());
        match &query.ask {
            Ask::Ngram(ids) => drop(index.count(ids)),
            Ask::Cnf { cnf, max_clause_freq, max_diff_tokens } => {
                let (max_clause_freq, max_diff_tokens) = (*max_clause_freq, *max_diff_tokens);
                let options = CnfOptions { max_clause_freq, max_diff_tokens, mode: Mode::Compatible };
                drop(index.count_cnf(cnf, &options, None));
            }
        }
        Cold { faults: major_faults() - faults, nanoseconds: start.elapsed().as_nanos() as u64 }
    };
    queries.iter().map(ask_one).collect()
}

fn forget(path: &Path) {
    for name in ["tokenized.0", "table.0", "offset.0"] {
        let file = std::fs::File::open(path.join(name)).expect("the index is sound");
        file.sync_all().expect("the disk works"); // what is not yet written cannot be forgotten
        fadvise(&file, 0, None, Advice::DontNeed).expect("the system takes the advice");
    }
}
