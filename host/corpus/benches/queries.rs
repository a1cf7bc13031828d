//! Times of queries and of building the table, on a generated text: `cargo bench -p
//! corver-corpus`.
//!
//! Two million tokens in documents of 500, drawn from 30,000 ids so that id `i` is about as
//! frequent as a word of rank `i` in English (Zipf's law).

use std::hint::black_box;
use std::path::Path;

use corver_corpus::{BuildOptions, Cnf, CnfOptions, Index, Mode, TokenWidth, build_from_tokens};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

const DOCUMENTS: usize = 4_000;
const DOCUMENT_TOKENS: usize = 500;
const VOCABULARY: f64 = 30_000.0;

fn documents() -> impl Iterator<Item = Vec<u32>> {
    let mut state = 7_u64; // a linear congruential generator: the same text on every machine
    let mut id = move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let uniform = (state >> 11) as f64 / (1_u64 << 53) as f64;
        VOCABULARY.powf(uniform) as u32
    };
    (0..DOCUMENTS).map(move |_| (0..DOCUMENT_TOKENS).map(|_| id()).collect())
}

fn build(path: &Path) {
    build_from_tokens(documents(), TokenWidth::U16, path, &BuildOptions::default())
        .expect("the folder is writable");
}

fn queries(c: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("index");
    build(&path);
    let index = Index::open(&path).expect("it was just built");

    c.bench_function("open", |b| {
        b.iter(|| Index::open(black_box(&path)).map(|index| index.num_shards()).ok())
    });
    // Ids 2, 5, 300 and 9,000 make up about 4 %, 2 %, 0.03 % and 0.001 % of the text.
    for (name, ngram) in
        [("one token", vec![300]), ("three tokens", vec![2, 5, 3]), ("absent", vec![300, 301, 302])]
    {
        c.bench_function(&format!("count/{name}"), |b| {
            b.iter(|| index.count(black_box(&ngram)).ok())
        });
    }
    for (name, ids) in [
        ("rare x rare", [9_000, 8_000]),
        ("rare x frequent", [9_000, 2]),
        ("frequent x frequent", [5, 2]),
    ] {
        let cnf = Cnf::new(ids.map(|id| vec![vec![id]]).to_vec()).expect("nothing is empty");
        let ways = [
            (Mode::Compatible, None),
            (Mode::Exact, None),
            (Mode::Exact, Some(20)),
            (Mode::Span, None),
        ];
        for (mode, limit) in ways {
            // A cap that cuts the frequent ids, as the default cuts those of a real corpus.
            let options = CnfOptions { mode, max_clause_freq: 10_000, max_diff_tokens: 100 };
            let limit_name = if limit.is_some() { ", limit" } else { "" };
            c.bench_function(&format!("cnf/{name}/{mode:?}{limit_name}"), |b| {
                b.iter(|| index.count_cnf(black_box(&cnf), &options, limit).ok());
            });
        }
    }
}

/// The queries of a training step: many pairs, as a batch and one by one.
fn batches(c: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("index");
    build(&path);
    let index = Index::open(&path).expect("it was just built");
    let pair = |number: u32| {
        vec![vec![vec![100 + number * 37 % 5_000]], vec![vec![50 + number * 101 % 7_000]]]
    };
    let queries: Vec<Cnf> =
        (0..1_000).map(|number| Cnf::new(pair(number)).expect("nothing is empty")).collect();
    let options = CnfOptions::default();
    let mut group = c.benchmark_group("a thousand pairs");
    group.throughput(Throughput::Elements(queries.len() as u64));
    group.bench_function("batch", |b| {
        b.iter(|| index.count_cnf_batch(black_box(&queries), &options, None, None).ok())
    });
    group.bench_function("one by one", |b| {
        b.iter(|| {
            queries
                .iter()
                .map(|cnf| index.count_cnf(black_box(cnf), &options, None).ok())
                .collect::<Vec<_>>()
        });
    });
    group.finish();
}

fn building(c: &mut Criterion) {
    let mut group = c.benchmark_group("build");
    group.sample_size(10).throughput(Throughput::Elements((DOCUMENTS * DOCUMENT_TOKENS) as u64));
    group.bench_function("from tokens", |b| {
        b.iter_with_setup(
            || tempfile::tempdir().expect("a temporary folder"),
            |folder| {
                build(&folder.path().join("index"));
                folder
            },
        );
    });
    group.finish();
}

criterion_group!(benches, queries, batches, building);
criterion_main!(benches);
