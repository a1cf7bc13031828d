//! Sentences per second of the demo's extractor, nothing remembered.

use std::hint::black_box;
use std::path::Path;

use corver_extract::{Device, Extractor, RuntimeLibrary};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

fn sentences(count: usize) -> Vec<String> {
    const NAMES: [&str; 6] = ["Dora Fenn", "Silent Brava", "Garo Lisk", "Port Tevan", "Omira Press", "Kelda Islands"];
    let name = |n: usize| NAMES[n % NAMES.len()];
    // A number keeps them apart: equal sentences would be decoded once.
    (0..count).map(|n| format!("{} {n} was directed by {}.", name(n), name(n / 6 + 1))).collect()
}

fn extract(c: &mut Criterion) {
    let bundle = Path::new(env!("CARGO_MANIFEST_DIR")).join("../demo/assets/extractor");
    let runtime = RuntimeLibrary::find(None).expect("`make setup` has been run");
    let mut extractor = Extractor::open(&bundle, Device::Cpu, &runtime).expect("the demo's bundle opens");
    let mut group = c.benchmark_group("extract");
    group.sample_size(10);
    for count in [1, 32, 384] {
        let sentences = sentences(count);
        let sentences: Vec<&str> = sentences.iter().map(String::as_str).collect();
        group.throughput(Throughput::Elements(count as u64));
        group.bench_with_input(BenchmarkId::from_parameter(count), &sentences, |bencher, sentences| {
            bencher.iter(|| extractor.replies(black_box(sentences)).expect("the demo's extractor runs"));
        });
    }
    group.finish();
}

criterion_group!(benches, extract);
criterion_main!(benches);
