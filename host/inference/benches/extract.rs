//! Sentences per second of the demo's extractor, nothing remembered.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use corver_inference::extract::{Device, ExtractOptions, OnnxExtractor, RuntimeLibrary};
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

fn sentences(count: usize) -> Vec<String> {
    const NAMES: [&str; 6] =
        ["Dora Fenn", "Silent Brava", "Garo Lisk", "Port Tevan", "Omira Press", "Kelda Islands"];
    let name = |n: usize| NAMES[n % NAMES.len()];
    // A number makes every sentence unique, also across calls: equal ones are decoded once.
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    let number = || CALLS.fetch_add(1, Ordering::Relaxed);
    (0..count)
        .map(|n| format!("{} {} was directed by {}.", name(n), number(), name(n / 6 + 1)))
        .collect()
}

fn extract(c: &mut Criterion) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../demo/assets/extractor");
    let runtime = RuntimeLibrary::find(None).expect("`make setup` has been run");
    let extractor = OnnxExtractor::open(&folder, ExtractOptions::default(), Device::Cpu, &runtime)
        .expect("the demo's extractor opens");
    let mut group = c.benchmark_group("extract");
    group.sample_size(10);
    for count in [1, 32, 384] {
        group.throughput(Throughput::Elements(count as u64));
        group.bench_function(BenchmarkId::from_parameter(count), |bencher| {
            let replies = |sentences: Vec<String>| {
                let sentences: Vec<&str> = sentences.iter().map(String::as_str).collect();
                extractor.replies(&sentences).expect("the demo's extractor runs")
            };
            bencher.iter_batched(|| sentences(count), replies, BatchSize::PerIteration);
        });
    }
    group.finish();
}

criterion_group!(benches, extract);
criterion_main!(benches);
