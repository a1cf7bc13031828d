//! Counts per second over HTTP, compared with the same counts made directly. Client and server are in
//! one process, on the loopback device. A query itself takes about 20 µs, so the benchmark measures
//! the transport.

use std::hint::black_box;

use corver_core::{Counter, Query};
use corver_corpus::{BuildOptions, CnfOptions, TextIndex, Tokenizer, build_from_documents};
use corver_counts::{Local, Remote, RemoteSettings};
use corver_serve::{CountLimits, HttpServer, Metrics, ServerLimits, count_routes};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

const WORDS: &str = r#"{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":null,
    "pre_tokenizer":{"type":"Whitespace"},"post_processor":null,"decoder":null,"model":{"type":"WordLevel",
    "vocab":{"[UNK]":0,"red":1,"fox":2,"den":3,"hen":4},"unk_token":"[UNK]"}}"#;

/// Queries per batch: about those of one training step.
const BATCH: usize = 1_000;

fn requests(c: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("index");
    let tokenizer = Tokenizer::from_bytes(WORDS).expect("a tokenizer");
    build_from_documents(
        ["red fox", "fox den", "hen"].repeat(100),
        &tokenizer,
        &path,
        &BuildOptions::default(),
    )
    .expect("an index");
    let options = CnfOptions::default();
    let mut local = Local::new(TextIndex::open(&path).expect("an index"), options);
    let served_corpus = TextIndex::open(&path).expect("an index");
    let address = "127.0.0.1:0".parse().expect("an address");
    let mut server = HttpServer::bind(address, ServerLimits::default(), None, Metrics::default())
        .expect("a free port");
    server.add_routes(count_routes(served_corpus, "bench", CountLimits::default()));
    let url = format!("http://{}/", server.address());
    std::thread::spawn(move || server.run(std::future::pending())); // ends with the process

    let batch = vec![Query::new([["red"], ["fox"]]); BATCH];
    let mut group = c.benchmark_group("counts");
    group.throughput(Throughput::Elements(BATCH as u64));
    group.bench_function("local", |b| b.iter(|| black_box(local.count(&batch)).expect("counts")));
    for connections in [1, 8] {
        let settings = RemoteSettings { connections, cache: false, ..RemoteSettings::default() };
        let mut remote = Remote::open(&url, "bench", options, &settings, None).expect("a remote");
        group.bench_function(BenchmarkId::new("http", connections), |b| {
            b.iter(|| black_box(remote.count(&batch)).expect("counts"));
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10);
    targets = requests
}
criterion_main!(benches);
