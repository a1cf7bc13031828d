//! Pairs per second of the small models of the tests; `make bench-nli` measures models of the
//! published sizes.

use std::path::Path;

use corver_core::NliPair;
use corver_inference::nli::{Nli, NliSettings};
use corver_inference::onnx::{Device, RuntimeLibrary};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

/// Pairs of which none is equal to another, of 20 to 400 tokens.
fn pairs(count: usize) -> Vec<NliPair> {
    let pair = |n: usize| NliPair {
        premise: format!("Bizet composed opera {n}. ").repeat(1 + n % 20),
        hypothesis: format!("The opera {n} is by Bizet."),
    };
    (0..count).map(pair).collect()
}

fn nli(c: &mut Criterion) {
    let runtime = RuntimeLibrary::find(None).expect("`make setup` has been run");
    let settings = NliSettings { device: Device::Cpu, ..NliSettings::default() };
    let mut group = c.benchmark_group("nli");
    group.sample_size(10);
    for family in ["hhem", "deberta"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nli/small").join(family);
        let mut model = Nli::open(&folder, &settings, &runtime).expect("the small models open");
        for count in [1, 32, 384] {
            let pairs = pairs(count);
            group.throughput(Throughput::Elements(count as u64));
            group.bench_function(BenchmarkId::new(family, count), |bencher| {
                bencher.iter(|| model.answers(&pairs).expect("the small models run"));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, nli);
criterion_main!(benches);
