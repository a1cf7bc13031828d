//! The official engine (`infini-gram` 2.6.0) and this one in one run, on the same index, with the
//! same queries: `make bench-corpus`.
//!
//! `CORVER_PEER_PYTHON` names the Python that has the official engine. The text is
//! `$CORVER_SHARED/corpora` with the golden queries; or else `CORVER_BENCH_TEXT` names a folder
//! with JSONL files and the `tokenizer.json` to index them with, and the queries are drawn from the
//! index. Results go to `target/bench/corpus.json`.
//!
//! Method: one thread; the page cache is warm, and both engines have answered every query before, ours
//! until its cache is filled. Both alternate on each group of queries, with a few passes at a time.
//! Each call is timed by itself, and the shortest time of a query counts. The official engine is called through the class that its C++ extension exports, so
//! its times hold the conversion of the arguments; ours hold the clock's own twenty nanoseconds.
#![allow(clippy::print_stdout)] // the tables are what the command is for

mod cold;
mod figures;
mod forget;
mod mix;
mod official;
mod process;

use std::collections::BTreeMap;
use std::hint::black_box;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use cold::Cold;
use corver_corpus::{
    BuildOptions, CnfCount, CnfOptions, Index, IndexInfo, Mode, OpenOptions, Tokenizer, build,
};
use figures::{Ratio, Times, digits, table};
use mix::{Ask, Query};
use official::Official;
use process::processor_seconds;
use serde_json::json;

/// Number of alternations of the engines.
const TURNS: usize = 2;
/// Number of passes over each group of queries per alternation: pairs, n-grams, and the rest, which
/// takes the official engine many seconds.
const PASSES: [usize; 3] = [3, 3, 1];
/// Number of pairs for the cold index.
const COLD_QUERIES: usize = 100;
/// Number of passes over all queries before timing, which fill the page cache and the cached lists.
const WARM_UPS: usize = 2;
/// Time for the measurement of the rate, seconds.
const RATE_SECONDS: f64 = 2.0;

/// A way to count a CNF query with our engine.
struct Way {
    name: &'static str,
    /// True if sorted lists of frequent clauses are cached between queries.
    cached: bool,
    mode: Mode,
    limit: Option<u64>,
}

const COMPATIBLE: usize = 0;
const EXACT: usize = 1;
const ENOUGH: usize = 2;
const WAYS: [Way; 6] = [
    Way { name: "compatible", cached: true, mode: Mode::Compatible, limit: None },
    Way { name: "exact", cached: true, mode: Mode::Exact, limit: None },
    Way { name: "exact, limit = 20", cached: true, mode: Mode::Exact, limit: Some(20) },
    Way { name: "span", cached: true, mode: Mode::Span, limit: None },
    Way { name: "compatible, no cache", cached: false, mode: Mode::Compatible, limit: None },
    Way { name: "exact, no cache", cached: false, mode: Mode::Exact, limit: None },
];

/// The index with the default cache, and without a cache.
struct Engines {
    caching: Index,
    plain: Index,
}

impl Engines {
    fn of(&self, way: &Way) -> &Index {
        if way.cached { &self.caching } else { &self.plain }
    }
}

fn main() {
    let Some(python) = std::env::var_os("CORVER_PEER_PYTHON").map(PathBuf::from) else {
        return println!(
            "skipped: CORVER_PEER_PYTHON is not set; `make bench-corpus` compares with the official engine"
        );
    };
    let (index, queries) = prepare();
    let plain = OpenOptions { cache_bytes: 0, ..OpenOptions::default() };
    let plain = Index::open_with(index.path(), plain).expect("it is open already");
    let engines = Engines { caching: index, plain };
    let groups = groups(&queries);
    let mut official = start_official(&python, &engines.caching, &queries);
    compare_answers(&engines, &queries, &mut official);

    let mut theirs = Times::new(queries.len());
    let mut ours = WAYS.map(|_| Times::new(queries.len()));
    for _ in 0..TURNS {
        for (group, passes) in groups.iter().zip(PASSES) {
            (0..passes).for_each(|_| theirs.take_in(group, official.pass(group)));
            // The other engine has filled the processor's caches: a pass without the clock, or the
            // first way would be slower.
            queries[group.clone()]
                .iter()
                .for_each(|query| _ = time(&engines.caching, query, &WAYS[COMPATIBLE]));
            for (times, way) in ours.iter_mut().zip(&WAYS) {
                for _ in 0..passes {
                    let pass = queries[group.clone()]
                        .iter()
                        .map(|query| time(engines.of(way), query, way));
                    times.take_in(group, pass.collect());
                }
            }
        }
    }
    let pairs = &groups[0];
    let our_rate = rate(&engines.caching, &queries[pairs.clone()], 2);
    let their_rate = official.rate(2, RATE_SECONDS, pairs);

    let buckets = buckets(&engines.caching, &queries);
    let (info, width) = (engines.caching.info(), engines.caching.token_width());
    let path = engines.caching.path().to_owned();
    let few = pairs.start..pairs.end.min(pairs.start + COLD_QUERIES);
    drop((engines, official));
    let queries_path = queries_path(&path);
    let mut official = Official::start(&python, width, &path, &queries_path);
    let their_cold = official.cold(&few);
    let our_cold = cold::ask(&path, &queries[few], &mut official);

    let report =
        Report { info, queries, buckets, ours, theirs, our_rate, their_rate, our_cold, their_cold };
    report.print_and_save(
        &Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("bench").join("corpus.json"),
    );
}

/// The index, freshly built, and the queries, group by group.
fn prepare() -> (Index, Vec<Query>) {
    let shared = std::env::var_os("CORVER_SHARED").map(PathBuf::from);
    let (text, tokenizer) =
        match (&shared, std::env::var_os("CORVER_BENCH_TEXT").map(PathBuf::from)) {
            (Some(shared), _) => {
                (shared.join("corpora"), shared.join("tokenizers/llama2/tokenizer.json"))
            }
            (None, Some(text)) => (text.clone(), text.join("tokenizer.json")),
            (None, None) => {
                panic!("set CORVER_SHARED or CORVER_BENCH_TEXT; `make bench-corpus` does")
            }
        };
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench-index");
    if path.exists() {
        std::fs::remove_dir_all(&path).expect("the bench's own folder can be removed");
    }
    let start = Instant::now();
    let tokenizer = Tokenizer::open(tokenizer).expect("the tokenizer can be read");
    build(&[text], &tokenizer, &path, &BuildOptions::default()).expect("the text can be indexed");
    let index = Index::open(&path).expect("it was just built");
    eprintln!("indexed {} tokens in {:.1} s", index.info().tokens, start.elapsed().as_secs_f64());
    let mut queries = shared.map_or_else(|| mix::drawn(&index), |shared| mix::golden(&shared));
    queries.sort_by_key(group_of);
    (index, queries)
}

/// Returns the group of a query: pairs, n-grams, the rest.
fn group_of(query: &Query) -> usize {
    if query.is_pair() { 0 } else { 2 - usize::from(query.is_ngram()) }
}

fn groups(queries: &[Query]) -> [Range<usize>; 3] {
    [0, 1, 2].map(|group| {
        let begins = |group: usize| queries.partition_point(|query| group_of(query) < group);
        begins(group)..begins(group + 1)
    })
}

fn queries_path(index: &Path) -> PathBuf {
    index.with_file_name("bench-queries.jsonl")
}

fn start_official(python: &Path, index: &Index, queries: &[Query]) -> Official {
    let path = queries_path(index.path());
    let lines: String = queries.iter().map(|query| format!("{}\n", query.to_json())).collect();
    std::fs::write(&path, lines).expect("the bench's own folder can be written");
    Official::start(python, index.token_width(), index.path(), &path)
}

/// Both engines must agree before it means anything which is faster. Warms both up, too.
fn compare_answers(engines: &Engines, queries: &[Query], official: &mut Official) {
    for (query, (count, approx, _)) in queries.iter().zip(official.answers()) {
        let ours = ask(&engines.caching, query, &WAYS[COMPATIBLE]);
        assert_eq!((ours.count, ours.approx), (count, approx), "{query:?}");
    }
    for _ in 0..WARM_UPS {
        for query in queries {
            for way in &WAYS {
                ask(engines.of(way), query, way);
            }
        }
    }
    println!("\n{} queries answered alike.", queries.len());
}

fn ask(index: &Index, query: &Query, way: &Way) -> CnfCount {
    match &query.ask {
        Ask::Ngram(ids) => {
            CnfCount { count: index.count(ids).expect("the index is sound"), ..CnfCount::default() }
        }
        Ask::Cnf { cnf, max_clause_freq, max_diff_tokens } => {
            let options = CnfOptions {
                max_clause_freq: *max_clause_freq,
                max_diff_tokens: *max_diff_tokens,
                mode: way.mode,
            };
            index.count_cnf(cnf, &options, way.limit).expect("the index is sound")
        }
    }
}

/// Nanoseconds of one call.
fn time(index: &Index, query: &Query, way: &Way) -> u64 {
    let start = Instant::now();
    black_box(ask(index, black_box(query), way));
    start.elapsed().as_nanos() as u64
}

/// Returns the rate of threads that repeat all queries: per second, and per second of processor time.
fn rate(index: &Index, queries: &[Query], threads: usize) -> [f64; 2] {
    let begin = Barrier::new(threads);
    let work = || {
        begin.wait();
        let start = Instant::now();
        let mut num_queries = 0;
        while start.elapsed() < Duration::from_secs_f64(RATE_SECONDS) {
            for query in queries {
                black_box(ask(index, query, &WAYS[COMPATIBLE]));
            }
            num_queries += queries.len();
        }
        num_queries
    };
    let (start, processor_start) = (Instant::now(), processor_seconds());
    let num_queries: usize = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(|worker| worker.join().expect("no query panics")).sum()
    });
    [start.elapsed().as_secs_f64(), processor_seconds() - processor_start]
        .map(|seconds| num_queries as f64 / seconds)
}

/// CNF queries by how many positions the official engine has to sort.
fn buckets(index: &Index, queries: &[Query]) -> Vec<(String, Vec<usize>)> {
    const LIMITS: [u64; 8] = [0, 1, 10, 100, 1_000, 10_000, 100_000, u64::MAX];
    let positions: Vec<u64> = queries.iter().map(|query| query.positions_sorted(index)).collect();
    let bucket = |range: Range<u64>| {
        let name = match range.end {
            1 => "0".to_owned(),
            u64::MAX => format!("≥ {}", range.start),
            end => format!("{}–{}", range.start, end - 1),
        };
        let inside =
            |&number: &usize| !queries[number].is_ngram() && range.contains(&positions[number]);
        (name, (0..queries.len()).filter(inside).collect::<Vec<_>>())
    };
    let buckets = LIMITS.windows(2).map(|limits| bucket(limits[0]..limits[1]));
    buckets.filter(|(_, queries)| !queries.is_empty()).collect()
}

struct Report {
    info: IndexInfo,
    queries: Vec<Query>,
    buckets: Vec<(String, Vec<usize>)>,
    ours: [Times; WAYS.len()],
    theirs: Times,
    our_rate: [f64; 2],
    their_rate: [f64; 2],
    our_cold: Vec<Cold>,
    their_cold: Vec<Cold>,
}

impl Report {
    fn which(&self, belongs: impl Fn(&Query) -> bool) -> Vec<usize> {
        (0..self.queries.len()).filter(|&number| belongs(&self.queries[number])).collect()
    }

    fn groups(&self) -> [(&'static str, Vec<usize>); 4] {
        [
            ("n-grams", self.which(Query::is_ngram)),
            ("entity pairs", self.which(Query::is_pair)),
            ("frequent pairs", self.which(Query::is_frequent_pair)),
            ("all CNF queries", self.which(|query| !query.is_ngram())),
        ]
    }

    fn ratios(&self) -> Vec<Ratio> {
        let [(_, ngrams), (_, pairs), (_, frequent), (_, mix)] = self.groups();
        let ours = |way: usize, group: &[usize]| self.ours[way].spread(group);
        let theirs = |group: &[usize]| self.theirs.spread(group);
        let all: Vec<usize> = (0..self.queries.len()).collect();
        let pages = |cold: &[Cold]| {
            cold.iter().map(|cold| cold.pages).sum::<u64>() as f64 / cold.len() as f64
        };
        vec![
            Ratio::of_times(
                "entity pairs, p50",
                ours(COMPATIBLE, &pairs).p50,
                theirs(&pairs).p50,
                50.0,
            ),
            Ratio::of_times(
                "entity pairs, p99",
                ours(COMPATIBLE, &pairs).p99,
                theirs(&pairs).p99,
                10.0,
            ),
            Ratio::of_rates(
                "entity pairs, two threads",
                self.our_rate[0],
                self.their_rate[0],
                100.0,
            ),
            Ratio::of_rates(
                "the same, by processor time",
                self.our_rate[1],
                self.their_rate[1],
                100.0,
            ),
            Ratio::of_times(
                "n-grams, p50",
                ours(COMPATIBLE, &ngrams).p50,
                theirs(&ngrams).p50,
                30.0,
            ),
            Ratio::of_times(
                "all CNF queries, mean",
                ours(COMPATIBLE, &mix).mean,
                theirs(&mix).mean,
                10.0,
            ),
            Ratio::of_times(
                "frequent pairs, limit = 20, mean",
                ours(ENOUGH, &frequent).mean,
                theirs(&frequent).mean,
                200.0,
            ),
            self.worst("the worst single query, `compatible`", COMPATIBLE, &all),
            Ratio::of_amounts(
                "a cold entity pair, mean",
                pages(&self.our_cold),
                pages(&self.their_cold),
                "pages",
                1.0,
            ),
        ]
    }

    /// The query at which we are the least ahead.
    fn worst(&self, what: &'static str, way: usize, queries: &[usize]) -> Ratio {
        let ratio = |&query: &usize| self.theirs.of(query) as f64 / self.ours[way].of(query) as f64;
        let worst = *queries
            .iter()
            .min_by(|a, b| ratio(a).total_cmp(&ratio(b)))
            .expect("there are queries");
        let micros = |times: &Times| times.of(worst) as f64 / 1e3;
        Ratio::of_times(what, micros(&self.ours[way]), micros(&self.theirs), 1.0)
    }

    fn print_and_save(&self, path: &Path) {
        let ratios = self.ratios();
        println!(
            "\n{}",
            table(["what", "here", "official", "ratio", "bar", ""], ratios.iter().map(Ratio::row))
        );

        let spread_row = |name: String, number: usize, times: &Times, queries: &[usize]| {
            let spread = times.spread(queries);
            let [p50, p95, p99, mean] =
                [spread.p50, spread.p95, spread.p99, spread.mean].map(digits);
            [name, number.to_string(), p50, p95, p99, mean, digits(1e6 / spread.mean)]
        };
        let mut rows = Vec::new();
        for (name, queries) in self.groups().iter().map(|(name, queries)| (*name, queries)) {
            let ways = if queries.iter().all(|&query| self.queries[query].is_ngram()) {
                1
            } else {
                WAYS.len()
            };
            rows.push(spread_row(
                format!("{name}: official"),
                queries.len(),
                &self.theirs,
                queries,
            ));
            for (way, times) in WAYS.iter().zip(&self.ours).take(ways) {
                rows.push(spread_row(
                    format!("{name}: {}", way.name),
                    queries.len(),
                    times,
                    queries,
                ));
            }
        }
        println!(
            "{}",
            table(["µs per call", "queries", "p50", "p95", "p99", "mean", "queries/s"], rows)
        );

        let rows = self.buckets.iter().map(|(name, queries)| {
            let mean = |times: &Times| times.spread(queries).mean;
            let (ours, theirs) = (mean(&self.ours[COMPATIBLE]), mean(&self.theirs));
            [
                name.clone(),
                queries.len().to_string(),
                digits(theirs),
                digits(ours),
                digits(mean(&self.ours[EXACT])),
                format!("{}×", digits(theirs / ours)),
            ]
        });
        let head =
            ["positions to sort", "queries", "official, mean µs", "compatible", "exact", "ratio"];
        println!("{}", table(head, rows));

        let spreads = |queries: &[usize]| {
            let mut spreads =
                serde_json::Map::from_iter([("queries".to_owned(), json!(queries.len()))]);
            spreads.insert("official".to_owned(), json!(self.theirs.spread(queries)));
            for (way, times) in WAYS.iter().zip(&self.ours) {
                spreads.insert(way.name.to_owned(), json!(times.spread(queries)));
            }
            spreads
        };
        let info = &self.info;
        let record = json!({
            "machine": machine(),
            "index": {"documents": info.documents, "tokens": info.tokens, "shards": info.shards.len()},
            "passes": PASSES.map(|passes| TURNS * passes),
            "ratios": ratios,
            "pairs_of_two_threads": {"per": ["second", "second of processor time"], "here": self.our_rate, "official": self.their_rate},
            "cold_pairs": {"here": self.our_cold, "official": self.their_cold},
            "groups_us": self.groups().iter().map(|(name, queries)| (*name, spreads(queries))).collect::<BTreeMap<_, _>>(),
            "buckets_us": self.buckets.iter().map(|(name, queries)| json!({"positions": name, "spreads": spreads(queries)})).collect::<Vec<_>>(),
        });
        std::fs::create_dir_all(path.parent().expect("the file lies in a folder"))
            .expect("target can be written");
        std::fs::write(path, format!("{record:#}\n")).expect("target can be written");
        println!("{}; {}", machine(), path.display());
    }
}

/// Processor, cores, and how busy they were.
fn machine() -> String {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .unwrap_or(": unknown processor");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let load = read("/proc/loadavg");
    let load = load.split(' ').next().unwrap_or_default();
    format!("{}, {cores} cores, load {load}", model.trim_start_matches([' ', '\t', ':']))
}
