//! What a rule costs: `first` over batches of sentences, the calls, both rounds and all conversions included, with an
//! index that answers at once; the same rule compiled into the host; its code alone; several cores; and a start from
//! the cache of compiled rules. Writes `target/bench/rules.json`, each figure beside its bar, and prints it as a table.

// The host's own rounds, which a plugin's instance judges in and here the same rule compiled in.
#[path = "../src/answers.rs"]
mod answers;
#[path = "../src/check.rs"]
#[allow(dead_code, reason = "shared with the library")]
mod check;
#[path = "../src/judge.rs"]
#[allow(dead_code, unused_imports, reason = "shared with the library, its tests too")]
mod judge;

use std::convert::Infallible;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use answers::Answer;
use corver_core::{Count, Counter, PartError, Query, RuleSentence, Section, Triplet, Verdict};
use corver_rules::{Fault, Limits, LoadOptions, Rule};
use corver_sdk::{Ask, Corpus, Judgement, SentenceRule};
use cpu_time::ThreadTime;
use criterion::{Bencher, BenchmarkId, Criterion, Throughput};
use first::First;
use judge::{Outcome, Session};
use rayon::{ThreadPool, ThreadPoolBuilder};
use serde_json::{Value, json};

struct Instant;

impl Counter for Instant {
    fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, PartError> {
        let query = || Query::from_text(String::new());
        Ok(queries.iter().map(|_| Count { query: query(), occurrences: Some(7), exact: true }).collect())
    }
}

/// In a completion.
const SENTENCES: u32 = 3;

/// Every one with a fact of its own.
fn sentences(n: u32) -> Vec<RuleSentence> {
    (0..n)
        .map(|i| RuleSentence {
            completion: i / SENTENCES,
            index: i % SENTENCES,
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

fn plugin() -> PathBuf {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../plugins/dist/first.wasm");
    assert!(path.exists(), "{} is not built: run plugins/build.sh", path.display());
    path
}

/// The same sentences in the types of a rule.
fn native_sentences(sentences: &[RuleSentence]) -> Vec<corver_sdk::Sentence<'_>> {
    fn native(RuleSentence { completion, index, text, triplets, .. }: &RuleSentence) -> corver_sdk::Sentence<'_> {
        let triplets =
            triplets.iter().map(|Triplet { head, relation, tail }| corver_sdk::Triplet { head, relation, tail });
        let (section, triplets) = (corver_sdk::Section::Think, triplets.collect());
        corver_sdk::Sentence { completion: *completion, index: *index, text, section, triplets }
    }
    sentences.iter().map(native).collect()
}

/// The rule compiled in, for sentences that it has in its own types.
struct CompiledIn<'a> {
    rule: &'a First,
    sentences: &'a [corver_sdk::Sentence<'a>],
    call: &'a [corver_sdk::Sentence<'a>],
}

impl CompiledIn<'_> {
    fn judge(&self, counts: &[corver_sdk::Count], number: usize) -> Vec<Outcome> {
        let judge = |(i, sentence)| match self.rule.score(sentence, &Corpus::new(&counts[i * number..][..number])) {
            Ok(Judgement::Score(corver_sdk::Verdict { reward, count, triplet, note })) => {
                Outcome::Score { reward, count, triplet, note }
            }
            Ok(Judgement::Abstain(note)) => Outcome::Abstain { note },
            Err(Ask(queries)) => {
                let query = |query: corver_sdk::Query| {
                    let corver_sdk::bindings::Query { all_of, enough } = query.into();
                    Query::from_text(all_of).with_enough(enough)
                };
                Outcome::Ask(queries.into_iter().map(query).collect())
            }
        };
        self.call.iter().enumerate().map(judge).collect()
    }
}

/// Every sentence has a fact of its own, and one question.
impl Session for CompiledIn<'_> {
    type Error = Infallible;

    fn score(&mut self, sentences: &[RuleSentence]) -> Result<Vec<Outcome>, Infallible> {
        let start = (sentences[0].completion * SENTENCES + sentences[0].index) as usize;
        self.call = &self.sentences[start..][..sentences.len()];
        Ok(self.judge(&[], 0))
    }

    fn resume(&mut self, answers: impl ExactSizeIterator<Item = Answer>) -> Result<Vec<Outcome>, Infallible> {
        let counts: Vec<corver_sdk::Count> =
            answers.map(|Answer { occurrences, exact }| corver_sdk::Count { occurrences, exact }).collect();
        Ok(self.judge(&counts, 1))
    }

    fn refuse(self, fault: Fault) -> Infallible {
        panic!("{fault}")
    }
}

fn judge_compiled_in(rule: &First, batch: &[RuleSentence], sentences: &[corver_sdk::Sentence]) -> Vec<Verdict> {
    let start = || Ok(CompiledIn { rule, sentences, call: &[] });
    judge::judge(batch, &Limits::default(), &mut Instant, start).expect("a rule that keeps the contract")
}

/// The rule's code alone, without a host: ask, take the answers, judge.
fn judge_natively(rule: &First, sentences: &[corver_sdk::Sentence]) -> Vec<Judgement> {
    let judge = |sentence| {
        let asked = rule.score(sentence, &Corpus::new(&[]));
        let Err(Ask(queries)) = asked else { panic!("every sentence has a fact: {asked:?}") };
        let count = |_| corver_sdk::Count { occurrences: Some(7), exact: true };
        let counts: Vec<corver_sdk::Count> = queries.into_iter().map(count).collect();
        rule.score(sentence, &Corpus::new(&counts)).expect("all is answered")
    };
    sentences.iter().map(judge).collect()
}

/// Measures the processor time of the thread of `one`: other work on the machine does not count, as it would by the clock.
fn on_one_core<T>(one: &ThreadPool, b: &mut Bencher<'_>, mut work: impl FnMut() -> T + Send) {
    b.iter_custom(|iterations| {
        one.install(|| {
            let start = ThreadTime::now();
            (0..iterations).for_each(|_| drop(black_box(work())));
            start.elapsed()
        })
    });
}

const SIZES: [u32; 2] = [256, 1024];

/// Runs that a quotient is the median of.
const RUNS: usize = 1000;

/// How many times as long the plugin takes as the same rule compiled in, and as its code alone, for `n` sentences: the median over
/// runs of all three one right after the other, so that whatever slows the machine down slows all of them.
fn quotients(n: u32) -> [f64; 2] {
    /// The second time: what ran before is not in its way.
    fn time<T>(mut work: impl FnMut() -> T) -> f64 {
        drop(black_box(work()));
        let start = ThreadTime::now();
        drop(black_box(work()));
        start.elapsed().as_secs_f64()
    }
    let rule = Rule::load(&plugin(), LoadOptions::default()).unwrap();
    let one = ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let batch = sentences(n);
    let sentences = native_sentences(&batch);
    let first = First::default();
    let run = |_| {
        let plugin = time(|| rule.judge(black_box(&batch), &mut Instant).unwrap());
        let compiled_in = time(|| judge_compiled_in(&first, black_box(&batch), &sentences));
        let code = time(|| judge_natively(&first, black_box(&sentences)));
        [plugin / compiled_in, plugin / code]
    };
    let runs: Vec<[f64; 2]> = one.install(|| (0..RUNS).map(run).collect());
    [0, 1].map(|to| {
        let mut quotients: Vec<f64> = runs.iter().map(|run| run[to]).collect();
        quotients.sort_by(f64::total_cmp);
        quotients[RUNS / 2]
    })
}

fn judge(c: &mut Criterion) {
    let rule = Rule::load(&plugin(), LoadOptions::default()).unwrap();
    let one = ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let mut group = c.benchmark_group("rules");
    for n in SIZES {
        let batch = sentences(n);
        group.throughput(Throughput::Elements(n.into()));
        group.bench_function(BenchmarkId::new("plugin", n), |b| {
            on_one_core(&one, b, || rule.judge(black_box(&batch), &mut Instant).unwrap());
        });
        let sentences = native_sentences(&batch);
        group.bench_function(BenchmarkId::new("compiled-in", n), |b| {
            on_one_core(&one, b, || judge_compiled_in(&First::default(), black_box(&batch), &sentences));
        });
        group.bench_function(BenchmarkId::new("code-alone", n), |b| {
            on_one_core(&one, b, || judge_natively(&First::default(), black_box(&sentences)));
        });
    }
    group.finish();
}

fn on_all_cores(c: &mut Criterion) {
    let rule = Rule::load(&plugin(), LoadOptions::default()).unwrap();
    let batch = sentences(4 * 1024);
    let mut group = c.benchmark_group("cores");
    group.sample_size(10).throughput(Throughput::Elements(batch.len() as u64));
    let mut threads = vec![1];
    while let Some(more) = threads.last().map(|n| n * 2).filter(|&n| n <= rayon::current_num_threads()) {
        threads.push(more);
    }
    for n in threads {
        let pool = ThreadPoolBuilder::new().num_threads(n).build().unwrap();
        group.bench_function(BenchmarkId::from_parameter(n), |b| {
            pool.install(|| b.iter(|| rule.judge(black_box(&batch), &mut Instant).unwrap()));
        });
    }
    group.finish();
}

fn load(c: &mut Criterion) {
    let folder = tempfile::tempdir().unwrap();
    let options = LoadOptions { cache_dir: Some(folder.path().into()), ..LoadOptions::default() };
    let path = plugin();
    let mut group = c.benchmark_group("rules");
    group.bench_function("load", |b| b.iter(|| Rule::load(black_box(&path), options.clone()).unwrap()));
}

/// A measured time and its bar. Units are in the names.
struct Figure {
    name: String,
    value: f64,
    bar: Option<f64>,
}

/// Nanoseconds of one iteration, the median of a benchmark's samples; `None` where it has not run since `start`.
fn median(folder: &Path, benchmark: &str, start: SystemTime) -> Option<f64> {
    let path = folder.join(benchmark).join("new/sample.json");
    path.metadata().and_then(|file| file.modified()).ok().filter(|&written| written >= start)?;
    let sample = std::fs::read_to_string(path).ok()?;
    let sample: Value = serde_json::from_str(&sample).ok()?;
    let numbers = |key: &str| Some(sample[key].as_array()?.iter().filter_map(Value::as_f64).collect::<Vec<_>>());
    let mut each: Vec<f64> =
        numbers("times")?.into_iter().zip(numbers("iters")?).map(|(time, iterations)| time / iterations).collect();
    each.sort_by(f64::total_cmp);
    each.get(each.len() / 2).copied()
}

/// What the benchmarks that have run since `start` came to, and the quotients, which are measured here.
fn figures(criterion: &Path, start: SystemTime) -> Vec<Figure> {
    let median = |benchmark: &str| median(criterion, benchmark, start);
    let mut figures = Vec::new();
    let mut add =
        |name: String, value: Option<f64>, bar| figures.extend(value.map(|value| Figure { name, value, bar }));
    for n in SIZES {
        let per_sentence = |of: &str| Some(median(&format!("rules/{of}/{n}"))? / 1e3 / f64::from(n));
        let [plugin, native, code] = ["plugin", "compiled-in", "code-alone"].map(per_sentence);
        add(format!("first.wasm, batches of {n}, us per sentence"), plugin, Some(2.0));
        add(format!("first compiled in, batches of {n}, us per sentence"), native, None);
        add(format!("its code alone, {n} sentences, us per sentence"), code, None);
        let quotients = plugin.map(|_| quotients(n));
        add(format!("plugin / compiled in, {n}, side by side"), quotients.map(|[compiled_in, _]| compiled_in), None);
        add(format!("plugin / its code alone, {n}, side by side"), quotients.map(|[_, code]| code), Some(3.0));
    }
    add("load from the cache, ms".into(), median("rules/load").map(|ns| ns / 1e6), Some(5.0));
    let one = median("cores/1");
    for n in (1..).map(|power| 1 << power).take_while(|&n| n <= rayon::current_num_threads()) {
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
    std::fs::write(&path, serde_json::to_vec_pretty(&rows).expect("numbers")).expect("target is writable");
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
