//! Time of the rule `first`: on batches of completions, with the calls, both rounds and all
//! conversions, and a corpus that replies immediately; its code alone, natively; on several cores;
//! and to load it from the cache of compiled rules. Writes `target/bench/rules.json`, each figure
//! with its bar, and prints it as a table.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use corver_core::{
    Backends, BoxError, Completion, CorpusInfo, Count, Counter, Query, Section, Sentence, Triplet,
};
use corver_rules::{LoadOptions, Rule};
use corver_sdk::{Corpus, Pending, SentenceRule, Verdict};
use cpu_time::ThreadTime;
use criterion::{Bencher, BenchmarkId, Criterion, Throughput};
use first::First;
use rayon::{ThreadPool, ThreadPoolBuilder};
use serde_json::{Value, json};

struct Instant;

impl Counter for Instant {
    fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, BoxError> {
        Ok(vec![Count::exact(Some(7)); queries.len()])
    }

    fn info(&self) -> CorpusInfo {
        CorpusInfo::default()
    }
}

/// Sentences per completion.
const SENTENCES: usize = 3;

/// Returns `n` sentences with different facts.
fn sentences(n: usize) -> Vec<Sentence> {
    let sentence = |i| Sentence {
        text: format!("Mario Camerini directed the film Il Seduttore Numero{i} in the year 1954."),
        section: Section::Think,
        span: None,
        triplets: vec![Triplet {
            head: "Mario Camerini".into(),
            relation: "directed".into(),
            tail: format!("Il Seduttore Numero{i}"),
        }],
    };
    (0..n).map(sentence).collect()
}

const TEXT: &str = "<think>Mario Camerini directed the film Il Seduttore in the year 1954. It is an Italian comedy, and \
    Sophia Loren was in it. I am sure of that.</think><answer>Mario Camerini</answer>";

fn batch<'a>(sentences: &'a [Sentence], golds: &'a [String]) -> Vec<Completion<'a>> {
    let completion = |sentences| Completion {
        question: "Who directed Il Seduttore?",
        golds,
        text: TEXT,
        sentences,
        ..Completion::default()
    };
    sentences.chunks(SENTENCES).map(completion).collect()
}

fn golds() -> [String; 2] {
    ["Mario Camerini".into(), "Camerini".into()]
}

fn plugin() -> PathBuf {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../plugins/dist/first.wasm");
    assert!(path.exists(), "{} is not built: run plugins/build.sh", path.display());
    path
}

/// Converts sentences to the SDK's types.
fn native(sentences: &[Sentence]) -> Vec<corver_sdk::Sentence> {
    let triplet =
        |Triplet { head, relation, tail }: Triplet| corver_sdk::Triplet { head, relation, tail };
    let sentence = |Sentence { text, triplets, .. }: Sentence| corver_sdk::Sentence {
        text,
        section: corver_sdk::Section::Think,
        triplets: triplets.into_iter().map(triplet).collect(),
    };
    sentences.iter().cloned().map(sentence).collect()
}

/// Runs the rule's code alone, without a host: the request, the replies, the verdict.
fn score_natively(rule: &First, sentences: &[corver_sdk::Sentence]) -> Vec<Verdict> {
    let size = corver_sdk::CorpusInfo { tokens: None, documents: None, window: None, mode: None };
    let precision = corver_sdk::Precision::Exact;
    let count = corver_sdk::Reply::Count(corver_sdk::Count { occurrences: Some(7), precision });
    let mut verdicts = Vec::with_capacity(sentences.len());
    for sentence in sentences {
        let outcome = rule.score(sentence, &Corpus::new(size, &[]));
        let Err(Pending(requests)) = outcome else {
            panic!("every sentence has a fact: {outcome:?}")
        };
        let replies = vec![count.clone(); requests.len()];
        verdicts
            .push(rule.score(sentence, &Corpus::new(size, &replies)).expect("no request is left"));
    }
    verdicts
}

/// Measures the processor time of the thread of `one`: other work on the machine does not count, as
/// it would by the clock.
fn on_one_core<T>(one: &ThreadPool, b: &mut Bencher<'_>, mut work: impl FnMut() -> T + Send) {
    b.iter_custom(|iterations| {
        one.install(|| {
            let start = ThreadTime::now();
            (0..iterations).for_each(|_| drop(black_box(work())));
            start.elapsed()
        })
    });
}

const SIZES: [usize; 2] = [256, 1024];

fn judge(c: &mut Criterion) {
    let rule = Rule::load(&plugin(), LoadOptions::default()).unwrap();
    let one = ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let mut group = c.benchmark_group("rules");
    for n in SIZES {
        let (sentences, golds) = (sentences(n), golds());
        let batch = batch(&sentences, &golds);
        group.throughput(Throughput::Elements(n as u64));
        group.bench_function(BenchmarkId::new("plugin", n), |b| {
            on_one_core(&one, b, || {
                rule.score(black_box(&batch), &mut Backends::counting(Instant)).unwrap()
            });
        });
        let native = native(&sentences);
        group.bench_function(BenchmarkId::new("code-alone", n), |b| {
            on_one_core(&one, b, || score_natively(&First::default(), black_box(&native)));
        });
    }
    group.finish();
}

fn on_all_cores(c: &mut Criterion) {
    let rule = Rule::load(&plugin(), LoadOptions::default()).unwrap();
    let (sentences, golds) = (sentences(4 * 1024), golds());
    let batch = batch(&sentences, &golds);
    let mut group = c.benchmark_group("cores");
    group.sample_size(10).throughput(Throughput::Elements(sentences.len() as u64));
    for n in numbers_of_cores() {
        let pool = ThreadPoolBuilder::new().num_threads(n).build().unwrap();
        group.bench_function(BenchmarkId::from_parameter(n), |b| {
            pool.install(|| {
                b.iter(|| rule.score(black_box(&batch), &mut Backends::counting(Instant)).unwrap())
            });
        });
    }
    group.finish();
}

/// Returns the powers of two up to the number of cores.
fn numbers_of_cores() -> impl Iterator<Item = usize> {
    std::iter::successors(Some(1), |n| Some(2 * n))
        .take_while(|&n| n <= rayon::current_num_threads())
}

fn load(c: &mut Criterion) {
    let folder = tempfile::tempdir().unwrap();
    let options = LoadOptions { cache_dir: Some(folder.path().into()), ..LoadOptions::default() };
    let path = plugin();
    let mut group = c.benchmark_group("rules");
    group.bench_function("load", |b| {
        b.iter(|| Rule::load(black_box(&path), options.clone()).unwrap())
    });
}

/// A measured time and its bar. Units are in the names.
struct Figure {
    name: String,
    value: f64,
    bar: Option<f64>,
}

/// Returns the median time of an iteration, nanoseconds; `None` if the benchmark has not run since
/// `start`.
fn median(folder: &Path, benchmark: &str, start: SystemTime) -> Option<f64> {
    let path = folder.join(benchmark).join("new/sample.json");
    path.metadata().and_then(|file| file.modified()).ok().filter(|&written| written >= start)?;
    let sample = std::fs::read_to_string(path).ok()?;
    let sample: Value = serde_json::from_str(&sample).ok()?;
    let numbers = |key: &str| {
        Some(sample[key].as_array()?.iter().filter_map(Value::as_f64).collect::<Vec<_>>())
    };
    let mut each: Vec<f64> = numbers("times")?
        .into_iter()
        .zip(numbers("iters")?)
        .map(|(time, iterations)| time / iterations)
        .collect();
    each.sort_by(f64::total_cmp);
    each.get(each.len() / 2).copied()
}

/// Returns the figures of the benchmarks that have run since `start`.
fn figures(criterion: &Path, start: SystemTime) -> Vec<Figure> {
    let median = |benchmark: &str| median(criterion, benchmark, start);
    let mut figures = Vec::new();
    let mut add = |name: String, value: Option<f64>, bar| {
        figures.extend(value.map(|value| Figure { name, value, bar }))
    };
    for n in SIZES {
        let per_sentence = |of: &str| Some(median(&format!("rules/{of}/{n}"))? / 1e3 / n as f64);
        add(
            format!("first.wasm, batches of {n}, us per sentence"),
            per_sentence("plugin"),
            Some(4.0),
        );
        add(
            format!("its code alone, {n} sentences, us per sentence"),
            per_sentence("code-alone"),
            None,
        );
    }
    add("load from the cache, ms".into(), median("rules/load").map(|ns| ns / 1e6), Some(5.0));
    let one = median("cores/1");
    for n in numbers_of_cores() {
        let gain = one.zip(median(&format!("cores/{n}"))).map(|(one, many)| one / many);
        add(format!("speed-up on {n} cores"), gain, None);
    }
    figures
}

#[expect(clippy::print_stdout, reason = "the table is what the benchmark is for")]
fn report(start: SystemTime) {
    let target = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target");
    let figures = figures(&target.join("criterion"), start);
    println!("{:<52} {:>8} {:>6}", "figure (median)", "measured", "bar");
    for Figure { name, value, bar } in &figures {
        let bar = bar.map_or(String::new(), |bar| format!("<= {bar}"));
        println!("{name:<52} {value:>8.2} {bar:>6}");
    }
    let rows: Vec<Value> = figures
        .iter()
        .map(|Figure { name, value, bar }| {
            json!({"figure": name, "value": value, "bar": bar, "met": bar.map(|bar| *value <= bar)})
        })
        .collect();
    let path = target.join("bench/rules.json");
    std::fs::create_dir_all(target.join("bench")).expect("target is writable");
    std::fs::write(&path, serde_json::to_vec_pretty(&rows).expect("numbers"))
        .expect("target is writable");
}

fn main() {
    let start = SystemTime::now();
    let mut criterion = Criterion::default().configure_from_args();
    judge(&mut criterion);
    load(&mut criterion);
    on_all_cores(&mut criterion);
    criterion.final_summary();
    report(start);
}
