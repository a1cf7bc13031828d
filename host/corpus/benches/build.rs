//! Criterion: the three parts of building an index. Tokenising needs a real tokenizer and real
//! text, which `CORVER_SHARED` names; the text that is sorted is of its own making.

use std::path::{Path, PathBuf};
use std::time::Duration;

use corver_corpus::{BuildOptions, TokenWidth, Tokenizer, build, build_from_tokens};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

const DOCUMENTS: u32 = 4_000;
const TOKENS_PER_DOCUMENT: u32 = 500;

/// Frequent tokens and rare ones, sentences that come again, and some documents that stand several
/// times.
fn documents() -> impl Iterator<Item = Vec<u32>> {
    (0..DOCUMENTS).map(|document| {
        let mut state = (document % (DOCUMENTS / 10 * 9)).wrapping_mul(2_654_435_761) | 1;
        let mut next = |below: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) % below
        };
        (0..TOKENS_PER_DOCUMENT)
            .map(|_| {
                let bound = 1 << (1 + next(15));
                next(bound)
            })
            .collect()
    })
}

fn index_anew(path: &Path, options: &BuildOptions<'_>) {
    if path.exists() {
        std::fs::remove_dir_all(path).expect("the bench's own folder can be removed");
    }
    build_from_tokens(documents(), TokenWidth::U16, path, options).expect("the folder is writable");
}

fn sorting(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().expect("there is a folder for temporary files");
    let path = folder.path().join("index");
    let tokens = u64::from(DOCUMENTS) * u64::from(TOKENS_PER_DOCUMENT + 1);
    let mut group = criterion.benchmark_group("write and sort tokens");
    group
        .throughput(Throughput::Elements(tokens))
        .sample_size(10)
        .measurement_time(Duration::from_secs(8));
    for (name, max_block_tokens) in [
        ("in one piece", None),
        ("in two parts", Some(tokens / 2)),
        ("in eight parts", Some(tokens / 8)),
    ] {
        let options = BuildOptions { max_block_tokens, ..BuildOptions::default() };
        group.bench_function(name, |bencher| bencher.iter(|| index_anew(&path, &options)));
    }
    group.finish();
}

fn tokenising(criterion: &mut Criterion) {
    let Some(shared) = std::env::var_os("CORVER_SHARED").map(PathBuf::from) else {
        return eprintln!("tokenising: skipped, CORVER_SHARED is not set");
    };
    let tokenizer = Tokenizer::open(shared.join("tokenizers/llama2/tokenizer.json"))
        .expect("it is a tokenizer");
    let input = [shared.join("corpora/enwiki-2021.jsonl.gz")];
    let folder = tempfile::tempdir().expect("there is a folder for temporary files");
    let path = folder.path().join("index");
    let index = |tokenizer: &Tokenizer| {
        if path.exists() {
            std::fs::remove_dir_all(&path).expect("the bench's own folder can be removed");
        }
        build(&input, tokenizer, &path, &BuildOptions::default()).expect("the text can be indexed")
    };
    let text_bytes = index(&tokenizer).text_bytes;
    let mut group = criterion.benchmark_group("index 7 MB of Wikipedia");
    group
        .throughput(Throughput::Bytes(text_bytes))
        .sample_size(10)
        .measurement_time(Duration::from_secs(8));
    group.bench_function("text to index", |bencher| bencher.iter(|| index(&tokenizer)));
    group.finish();
}

criterion_group!(benches, tokenising, sorting);
criterion_main!(benches);
