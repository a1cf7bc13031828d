//! Counting the planted pairs, and comparing with what was planted.

use std::time::Instant;

use corver_corpus::{CnfOptions, Mode, TextIndex};
use serde::Serialize;

use crate::pairs::{self, Expected};
use crate::text::Folder;

/// Number of correct counts of a mode.
#[derive(Debug, Clone, Serialize)]
pub struct Counted {
    pub mode: Mode,
    pub right: usize,
    pub pairs: usize,
    pub seconds: f64,
}

/// Counts every pair in every mode.
pub fn count(folder: &Folder) -> Vec<Counted> {
    let expected = pairs::load(&folder.pairs());
    let corpus = TextIndex::open(folder.index()).expect("it was verified");
    [Mode::Exact, Mode::Span, Mode::Compatible]
        .map(|mode| count_in(&corpus, &expected, mode))
        .into()
}

fn count_in(corpus: &TextIndex, expected: &[Expected], mode: Mode) -> Counted {
    let options = CnfOptions { mode, ..CnfOptions::default() };
    let start = Instant::now();
    let right = expected.iter().filter(|pair| {
        let clauses = pair.names.clone().map(|name| vec![name]);
        let counted = corpus.count_words(&clauses, &options, None).expect("it was verified");
        let got = counted.map_or(0, |counted| counted.count);
        let expected = if mode == Mode::Span { pair.span } else { pair.exact };
        if got != expected {
            eprintln!(
                "count: {} in mode {mode:?}: {got}, but {expected} are written",
                pair.names.join(" AND ")
            );
        }
        got == expected
    });
    let right = right.count();
    Counted { mode, right, pairs: expected.len(), seconds: start.elapsed().as_secs_f64() }
}
