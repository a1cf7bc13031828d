//! Counts against `tests/vectors/reference.py`, which tries every position of the text.

#[path = "../../../tests/vectors/mod.rs"]
mod vectors;

use corver_corpus::{
    BuildOptions, Cnf, CnfCount, CnfOptions, Index, Mode, TokenWidth, build_from_tokens,
};
use serde::Deserialize;

#[derive(Deserialize)]
struct Case {
    name: String,
    /// Bytes of a token.
    width: usize,
    shards: usize,
    documents: Vec<Vec<u32>>,
    ngrams: Vec<(Vec<u32>, u64)>,
    queries: Vec<Query>,
}

#[derive(Deserialize)]
struct Query {
    cnf: Vec<Vec<Vec<u32>>>,
    window: u64,
    exact: u64,
    compatible: u64,
    span: u64,
}

#[test]
fn index_counts_match_vectors() {
    let folder = tempfile::tempdir().unwrap();
    for case in vectors::cases::<Case>(include_str!("../../../tests/vectors/counts.json")) {
        let path = folder.path().join(&case.name);
        let width = [TokenWidth::U8, TokenWidth::U16, TokenWidth::U32]
            .into_iter()
            .find(|width| width.bytes() == case.width)
            .expect("a width of 1, 2 or 4");
        build_from_tokens(case.documents, width, &path, &BuildOptions::with_shards(case.shards))
            .unwrap();
        let index = Index::open(&path).unwrap();
        for (ngram, count) in case.ngrams {
            assert_eq!(index.count(&ngram).unwrap(), count, "{}: {ngram:?}", case.name);
        }
        for query in case.queries {
            let cnf = Cnf::new(query.cnf).unwrap();
            for (mode, count) in [
                (Mode::Exact, query.exact),
                (Mode::Compatible, query.compatible),
                (Mode::Span, query.span),
            ] {
                let options =
                    CnfOptions { max_diff_tokens: query.window, mode, ..CnfOptions::default() };
                let answer = index.count_cnf(&cnf, &options, None).unwrap();
                assert_eq!(
                    answer,
                    CnfCount { count, ..CnfCount::default() },
                    "{}: {cnf:?}, {options:?}",
                    case.name
                );
            }
        }
    }
}
