//! Time of building and searching passages: `cargo bench -p corver-backends`, on a text made here; with
//! `INDEX=folder` in the environment, on that index, which is how the figures in
//! docs/benchmarks.md were taken.
//!
//! The made-up text is 2,000 documents of 300 words, drawn from 30,000 so that word `i` is about as
//! frequent as that of rank `i` in English (Zipf's law). Queries are twelve words in a row from
//! documents spread over the corpus: a sentence that is looked for.

use std::hint::black_box;
use std::path::{Path, PathBuf};

use corver_backends::passages::{PassageIndex, PassageLocation, PassageOptions, build};
use corver_core::{Retriever, Search};
use corver_corpus::{BuildOptions, TextIndex, Tokenizer, build_from_documents};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use serde_json::{Map, json};

const DOCUMENTS: usize = 2_000;
const DOCUMENT_WORDS: usize = 300;
const VOCABULARY: f64 = 30_000.0;
const QUERIES: usize = 1_000;
const QUERY_WORDS: usize = 12;

fn made_up(folder: &Path) -> PathBuf {
    let mut state = 7_u64; // a linear congruential generator: the same text on every machine
    let mut word = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let uniform = (state >> 11) as f64 / (1_u64 << 53) as f64;
        format!("w{}", VOCABULARY.powf(uniform) as u32)
    };
    let mut document = || (0..DOCUMENT_WORDS).map(|_| word()).collect::<Vec<_>>().join(" ");
    let texts: Vec<String> = (0..DOCUMENTS).map(|_| document()).collect();
    let vocab: Map<_, _> =
        (0..VOCABULARY as u32).map(|id| (format!("▁w{id}"), json!(id))).collect();
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true},
        "post_processor": null, "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true},
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "▁w0"},
    });
    let tokenizer = Tokenizer::from_bytes(tokenizer.to_string()).expect("a tokenizer");
    let path = folder.join("index");
    build_from_documents(
        texts.iter().map(String::as_str),
        &tokenizer,
        &path,
        &BuildOptions::default(),
    )
    .expect("the folder is writable");
    path
}

fn queries(index: &Path) -> Vec<Search> {
    let corpus = TextIndex::open(index).expect("an index");
    let documents = corpus.index().info().documents as usize;
    let query = |document: corver_corpus::Result<_>| {
        let text = corpus.text(&document.expect("a whole index")).expect("text");
        let words: Vec<&str> = text.split_whitespace().take(2 * QUERY_WORDS).collect();
        Search { title: None, query: words[words.len() / 2..].join(" "), k: 5 }
    };
    corpus
        .index()
        .documents()
        .step_by((documents / QUERIES).max(1))
        .take(QUERIES)
        .map(query)
        .collect()
}

fn searches(c: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let index = std::env::var_os("INDEX").map_or_else(|| made_up(folder.path()), PathBuf::from);
    let location = PassageLocation::new(&index, Some(folder.path())).expect("a name");
    let mut group = c.benchmark_group("passages");
    let documents = build(&location, &PassageOptions::default()).expect("an index").documents;
    group.sample_size(10).throughput(Throughput::Elements(documents));
    group.bench_function("build", |b| {
        b.iter(|| build(&location, &PassageOptions::default()).is_ok())
    });

    let mut passages = PassageIndex::open(&[location]).expect("they were just built");
    let searches = queries(&index);
    group.throughput(Throughput::Elements(searches.len() as u64));
    group.bench_function("searches, one by one", |b| {
        b.iter(|| {
            searches
                .iter()
                .map(|search| passages.search(black_box(search)).map(|found| found.len()).ok())
                .max()
        });
    });
    group.bench_function("searches, as a batch", |b| {
        b.iter(|| passages.passages(black_box(&searches)).is_ok())
    });
    group.finish();
}

criterion_group!(benches, searches);
criterion_main!(benches);
