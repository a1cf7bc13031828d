//! What a rule costs: `first` over batches of sentences, the calls, rounds and conversions included, with an index that
//! answers at once; and a cold start from the cache of compiled rules.

use std::hint::black_box;
use std::path::PathBuf;

use corver_core::{Count, Counter, PartError, Query, RuleSentence, Section, Triplet};
use corver_rules::{LoadOptions, Rule};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

struct Instant;

impl Counter for Instant {
    fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, PartError> {
        Ok(queries.iter().map(|query| Count { query: query.clone(), occurrences: Some(7), exact: true }).collect())
    }
}

/// Three sentences to a completion, every one with a fact of its own.
fn sentences(n: u32) -> Vec<RuleSentence> {
    (0..n)
        .map(|i| RuleSentence {
            completion: i / 3,
            index: i % 3,
            text: format!("Mario Camerini directed the film Il Seduttore Numero{i} in the year 1954."),
            section: Section::Think,
            triplets: vec![Triplet {
                head: "Mario Camerini".into(),
                relation: "directed".into(),
                tail: format!("Il Seduttore Numero{i}"),
            }],
        })
        .collect()
}

fn first() -> PathBuf {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../plugins/dist/first.wasm");
    assert!(path.exists(), "{} is not built: run plugins/build.sh", path.display());
    path
}

fn judge(c: &mut Criterion) {
    let rule = Rule::load(&first(), LoadOptions::default()).unwrap();
    let mut group = c.benchmark_group("judge first");
    for n in [256, 1024] {
        let batch = sentences(n);
        group.throughput(Throughput::Elements(n.into()));
        group.bench_with_input(BenchmarkId::from_parameter(n), &batch, |b, batch| {
            b.iter(|| rule.judge(black_box(batch), &mut Instant).unwrap());
        });
    }
    group.finish();
}

fn load(c: &mut Criterion) {
    let folder = tempfile::tempdir().unwrap();
    let options = LoadOptions { cache_dir: Some(folder.path().into()), ..LoadOptions::default() };
    let path = first();
    c.bench_function("load first, cached", |b| b.iter(|| Rule::load(black_box(&path), options.clone()).unwrap()));
}

criterion_group!(benches, judge, load);
criterion_main!(benches);
