//! Time of a training step with a cold index: 1,200 pairs of names, counted in several ways. Each way
//! runs in a process of its own with 4 GB of memory, cached pages included, after the index was dropped
//! from the page cache.
//!
//! For comparison: the random reads of 4 KiB that `fio` gets from the same disk, and the official
//! engine. Needs root, since memory is limited by a control group.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use corver_corpus::{Cnf, CnfOptions, Index, TextIndex};
use serde::{Deserialize, Serialize};

use crate::build::in_child_process;
use crate::document::World;
use crate::forget::forget;
use crate::official::Official;
use crate::random::{Draw, Purpose};
use crate::text::Folder;

/// Arguments with which the bench starts itself.
pub const BATCH: &str = "batch";
pub const ONE_BY_ONE: &str = "one-by-one";

const PAIRS: usize = 1_200;
const MEMORY: u64 = 4 << 30;
/// Queue depth of `fio`.
const DEPTH: usize = 32;
/// Numbers of threads that query the official engine: one, and as many as the queue depth.
const THREADS: [usize; 2] = [1, DEPTH];
const WARM_PASSES: usize = 5;
/// Number of rounds through all ways: the speed of a disk varies over time.
const ROUNDS: usize = 3;
const PAGE: u64 = 4096;

/// The measurements of one way of counting.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ColdTimes {
    pub seconds: f64,
    /// Pages of 4 KiB that it read from the disk, and with how many requests all processes together
    /// did.
    pub pages: u64,
    pub requests: u64,
    /// The least seconds of some later passes, when all that is needed is in memory.
    pub warm_seconds: f64,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    counts: Vec<u64>,
}

/// A way of counting.
#[derive(Debug, Clone, Serialize)]
pub struct Way {
    pub name: String,
    /// The slowest first.
    rounds: Vec<ColdTimes>,
}

impl Way {
    pub fn median(&self) -> &ColdTimes {
        &self.rounds[ROUNDS / 2]
    }
}

/// The results of the comparison.
#[derive(Debug, Clone, Serialize)]
pub struct Cold {
    pub pairs: usize,
    /// Random reads per second, by `fio`, the fewest first.
    disk: Vec<f64>,
    pub ways: Vec<Way>,
    /// True if all ways gave the same counts.
    pub alike: bool,
}

impl Cold {
    /// The median of the rounds.
    pub fn disk(&self) -> f64 {
        self.disk[ROUNDS / 2]
    }
}

/// Counts in every way, and checks that all give the same counts.
pub fn compare(folder: &Folder, documents: u64, python: Option<&Path>) -> Cold {
    write_queries(folder, documents);
    let (mut disk, mut ways) = (Vec::new(), Vec::<Way>::new());
    for _ in 0..ROUNDS {
        disk.push(random_reads_per_second(&folder.index().join("table.0")));
        for (number, (name, times)) in run_every_way(folder, python).enumerate() {
            match ways.get_mut(number) {
                Some(way) => way.rounds.push(times),
                None => ways.push(Way { name, rounds: vec![times] }),
            }
        }
    }
    disk.sort_by(f64::total_cmp);
    let mut answers = ways.iter().flat_map(|way| &way.rounds).map(|times| &times.counts);
    let first = answers.next();
    let alike = answers.all(|counts| Some(counts) == first);
    for Way { rounds, .. } in &mut ways {
        rounds.iter_mut().for_each(|times| times.counts.clear());
        rounds.sort_by(|one, other| other.seconds.total_cmp(&one.seconds));
    }
    Cold { pairs: PAIRS, disk, ways, alike }
}

/// Runs one round. The index is dropped from the page cache before each way.
fn run_every_way<'a>(
    folder: &'a Folder,
    python: Option<&'a Path>,
) -> impl Iterator<Item = (String, ColdTimes)> {
    let ours = [("as a batch", BATCH), ("one by one", ONE_BY_ONE)].into_iter().map(
        move |(name, argument)| {
            forget(&folder.index());
            (name.to_owned(), in_child_process(argument))
        },
    );
    let official =
        python.into_iter().flat_map(|python| THREADS.map(move |threads| (python, threads)));
    let official = official.map(move |(python, threads)| {
        (format!("official engine, threads: {threads}"), ask_official(folder, python, threads))
    });
    ours.chain(official)
}

/// Pairs of names that stand in one document, chosen evenly among all documents.
fn write_queries(folder: &Folder, documents: u64) {
    let (world, corpus) = (World::new(), TextIndex::open(folder.index()).expect("it was verified"));
    let mut draw = Draw::new(Purpose::Question, u64::MAX);
    let line = |names: [String; 2]| {
        let clause = |name: &String| {
            vec![corpus.tokenizer().encode_word(name).expect("every byte has a token")]
        };
        let CnfOptions { max_clause_freq, max_diff_tokens, .. } = CnfOptions::default();
        let cnf = names.each_ref().map(clause);
        format!(
            "{}\n",
            serde_json::json!({"cnf": cnf, "max_clause_freq": max_clause_freq, "max_diff_tokens": max_diff_tokens})
        )
    };
    let lines: String =
        (0..PAIRS).map(|_| line(world.names(draw.below(documents as usize) as u64))).collect();
    std::fs::write(queries_path(folder), lines).expect("the bench's own folder can be written");
}

fn queries_path(folder: &Folder) -> PathBuf {
    folder.index().with_file_name("cold-queries.jsonl")
}

/// Asks in this process, one of those that the bench starts.
pub fn ask_here(folder: &Folder, argument: &str) -> ColdTimes {
    #[derive(Deserialize)]
    struct Line {
        cnf: Vec<Vec<Vec<u32>>>,
    }

    let lines = std::fs::read_to_string(queries_path(folder)).expect("they were just written");
    let query = |line: &str| {
        serde_json::from_str(line).map(|Line { cnf }| Cnf::new(cnf).expect("nothing is empty"))
    };
    let queries: Vec<Cnf> =
        lines.lines().map(|line| query(line).expect("they were just written")).collect();
    Group::new().take_in(std::process::id());
    let options = CnfOptions::default();
    let index = Index::open(folder.index()).expect("it was verified");
    let ask = || -> Vec<u64> {
        let counts = match argument {
            BATCH => index.count_cnf_batch(&queries, &options, None, None),
            _ => queries.iter().map(|query| index.count_cnf(query, &options, None)).collect(),
        };
        counts.expect("it was verified").into_iter().map(|count| count.count).collect()
    };
    let folder = folder.index();
    let read = Reads::so_far(std::process::id(), &folder);
    let (counts, seconds) = timed(ask);
    let Reads { pages, requests } = Reads::so_far(std::process::id(), &folder).since(&read);
    let warm_seconds = (0..WARM_PASSES).map(|_| timed(ask).1).fold(f64::INFINITY, f64::min);
    ColdTimes { seconds, pages, requests, warm_seconds, counts }
}

fn ask_official(folder: &Folder, python: &Path, threads: usize) -> ColdTimes {
    #[derive(Deserialize)]
    struct Answer {
        nanoseconds: u64,
        counts: Vec<u64>,
    }

    const ALL: Range<usize> = 0..PAIRS;
    forget(&folder.index());
    let width = Index::open(folder.index()).expect("it was verified").token_width();
    let mut official = Official::start(python, width, &folder.index(), &queries_path(folder));
    Group::new().take_in(official.process());
    let read = Reads::so_far(official.process(), &folder.index());
    let Answer { nanoseconds, counts } = official.batch(threads, &ALL);
    let Reads { pages, requests } = Reads::so_far(official.process(), &folder.index()).since(&read);
    let warm = (0..WARM_PASSES).map(|_| official.batch::<Answer>(threads, &ALL).nanoseconds).min();
    let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
    let warm_seconds = seconds(warm.expect("there is a pass"));
    ColdTimes { seconds: seconds(nanoseconds), pages, requests, warm_seconds, counts }
}

fn timed<T>(call: impl FnOnce() -> T) -> (T, f64) {
    let start = Instant::now();
    let returned = call();
    (returned, start.elapsed().as_secs_f64())
}

/// Returns the reads from the disk so far.
struct Reads {
    pages: u64,
    requests: u64,
}

impl Reads {
    /// The pages that a process has had read, and the requests that the disk of a folder has
    /// answered to all.
    fn so_far(process: u32, folder: &Path) -> Self {
        let io = std::fs::read_to_string(format!("/proc/{process}/io")).expect("Linux has it");
        let bytes: Option<u64> =
            io.lines().find_map(|line| line.strip_prefix("read_bytes: ")?.parse().ok());
        let device = rustix::fs::stat(folder).expect("it was verified").st_dev;
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let disk = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat"))
            .expect("it lies on a disk");
        let requests = disk.split_whitespace().next().and_then(|number| number.parse().ok());
        Self { pages: bytes.expect("a number") / PAGE, requests: requests.expect("a number") }
    }

    fn since(&self, earlier: &Self) -> Self {
        Self { pages: self.pages - earlier.pages, requests: self.requests - earlier.requests }
    }
}

/// A control group of [`MEMORY`].
struct Group(PathBuf);

impl Group {
    fn new() -> Self {
        let old = Path::new("/sys/fs/cgroup/memory");
        let (parent, limit) = match old.exists() {
            true => (old, "memory.limit_in_bytes"),
            false => (Path::new("/sys/fs/cgroup"), "memory.max"),
        };
        let group = parent.join("corver-bench");
        let limited = std::fs::create_dir_all(&group)
            .and_then(|()| std::fs::write(group.join(limit), MEMORY.to_string()));
        limited.unwrap_or_else(|e| {
            panic!("cannot limit memory in {}, which takes root: {e}", group.display())
        });
        Self(group)
    }

    fn take_in(&self, process: u32) {
        std::fs::write(self.0.join("cgroup.procs"), process.to_string())
            .expect("the group was just made");
    }
}

fn random_reads_per_second(file: &Path) -> f64 {
    let output = Command::new("fio")
        .args([
            "--name=reads",
            "--readonly",
            "--rw=randread",
            "--bs=4k",
            "--direct=1",
            "--ioengine=libaio",
        ])
        .args(["--runtime=10", "--time_based", "--output-format=json"])
        .arg(format!("--iodepth={DEPTH}"))
        .arg(format!("--filename={}", file.display()))
        .output()
        .expect("fio is installed; `make bench-scale` does it");
    let record: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("fio answers with JSON");
    record["jobs"][0]["read"]["iops"].as_f64().expect("fio tells")
}
