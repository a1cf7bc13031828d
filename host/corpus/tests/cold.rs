//! Counting when nothing of the index is in memory gives what counting in memory gives, whichever
//! way it takes.

#[path = "../benches/peer/forget.rs"]
mod forget;

use std::path::Path;

use corver_corpus::{
    BuildOptions, Cnf, CnfOptions, Index, Mode, OpenOptions, TokenWidth, build_from_tokens,
};
use forget::forget;

/// 600 documents of 400 tokens. Token `t` is about as frequent as 1 in `t`.
fn build(path: &Path) {
    let mut state = 1_u64;
    let mut token = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        3_000_f64.powf((state >> 11) as f64 / (1_u64 << 53) as f64) as u32
    };
    let documents = (0..600).map(|_| (0..400).map(|_| token()).collect());
    build_from_tokens(documents, TokenWidth::U16, path, &BuildOptions::default()).unwrap();
}

/// Pairs of all kinds: rare and frequent, alone and as one of two terms.
fn queries() -> Vec<Cnf> {
    let tokens = [1, 2, 5, 30, 200, 900, 2_500, 2_900];
    let pairs = tokens
        .iter()
        .flat_map(|&a| tokens.iter().map(move |&b| [vec![vec![a]], vec![vec![b], vec![b + 1]]]));
    pairs.map(|[one, other]| Cnf::new(vec![one, other]).unwrap()).collect()
}

#[test]
fn cold_index_counts_equal_warm_counts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    build(&path);
    let queries = queries();
    // Without memory for lists, every query decides anew whether to read one.
    for cache_bytes in [0, 1 << 20] {
        for mode in [Mode::Compatible, Mode::Exact, Mode::Span] {
            for max_diff_tokens in [1, 20, 400] {
                let open = || {
                    Index::open_with(&path, OpenOptions { cache_bytes, ..OpenOptions::default() })
                        .unwrap()
                };
                let options = CnfOptions { mode, max_diff_tokens, max_clause_freq: 2_000 };
                let index = open();
                let count = |cnf| index.count_cnf(cnf, &options, None).unwrap();
                let warm: Vec<_> = queries.iter().map(|cnf| (count(cnf), count(cnf))).collect();
                drop(index);
                forget(&path);
                let batch = open().count_cnf_batch(&queries, &options, None, None).unwrap();
                for ((cnf, batch), (first, warm)) in queries.iter().zip(batch).zip(warm) {
                    forget(&path);
                    let cold = open().count_cnf(cnf, &options, None).unwrap();
                    assert_eq!([cold, batch, first], [warm; 3], "{cnf:?} {options:?}");
                }
            }
        }
    }
}
