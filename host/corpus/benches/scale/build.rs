//! Building and verifying the index, each in a process of its own, so that memory is measured apart.

use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use corver_corpus::{
    BuildOptions, BuildProgress, OpenOptions, Tokenizer, VerifyLevel, VerifyReport, build, verify,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::text::{Folder, size};

/// Arguments with which the bench starts itself.
pub const BUILD: &str = "build";
pub const VERIFY: &str = "verify";

/// Number of compared pairs of neighbouring suffixes, as in `corver-host index verify`.
const SAMPLE: u64 = 100_000;
/// Interval of the progress lines.
const REPORT: Duration = Duration::from_secs(30);

/// The measurements of a build.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Built {
    /// Requested number of tokens.
    text_tokens: u64,
    memory: u64,
    pub tokens: u64,
    pub documents: u64,
    pub seconds: f64,
    /// Time of each stage, seconds, in order; alternating stages are summed.
    pub stages: Vec<(String, f64)>,
    /// True if an earlier run of the benchmark began or made the index.
    pub is_resumed: bool,
    /// Peak resident memory, bytes, without the page cache.
    pub peak_memory: u64,
    /// Peak size of the files, bytes.
    pub most_disk: u64,
    pub index_bytes: u64,
}

/// The measurements of a verification.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Checked {
    pub seconds: f64,
    pub checksums: u64,
    pub documents: u64,
    pub suffix_pairs: u64,
}

const RECORD: &str = "built.json";

/// Builds the index of the text within a memory budget, unless it exists.
pub fn build_index(folder: &Folder, text_tokens: u64, memory: u64) -> Built {
    if let Some(mut built) = folder.load::<Built>(RECORD)
        && (built.text_tokens, built.memory) == (text_tokens, memory)
        && folder.index().exists()
    {
        eprintln!("build: the index exists");
        built.is_resumed = true;
        return built;
    }
    if folder.index().exists() {
        std::fs::remove_dir_all(folder.index()).expect("the bench's own folder can be removed");
    }
    let built: Built = in_child_process(BUILD);
    folder.save(RECORD, &built);
    built
}

/// Verifies a sample of the index.
pub fn verify_index() -> Checked {
    in_child_process(VERIFY)
}

/// Runs the bench itself, which answers with JSON.
pub fn in_child_process<T: DeserializeOwned>(argument: &str) -> T {
    let bench = std::env::current_exe().expect("the path of the bench is known");
    let mut child = Command::new(bench)
        .arg(argument)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the bench can start itself");
    let mut answer = String::new();
    child
        .stdout
        .take()
        .expect("stdout is piped")
        .read_to_string(&mut answer)
        .expect("the answer is text");
    let status = child.wait().expect("it was started here");
    assert!(status.success(), "{argument}: {status}");
    serde_json::from_str(&answer).expect("the answer is JSON")
}

/// Builds the index in this process.
pub fn build_here(folder: &Folder, text_tokens: u64, memory: u64) -> Built {
    let tokenizer = Tokenizer::open(folder.tokenizer()).expect("it was written with the text");
    let is_resumed = folder.unfinished_index().exists();
    let clock = Clock::new();
    let progress = |progress| clock.report(progress);
    let options =
        BuildOptions { memory: Some(memory), progress: Some(&progress), ..BuildOptions::default() };
    let most_disk = AtomicU64::new(0);
    let (ended, end) = std::sync::mpsc::channel::<()>();
    let manifest = std::thread::scope(|scope| {
        let unfinished = folder.unfinished_index();
        let most_disk = &most_disk;
        scope.spawn(move || {
            while end.recv_timeout(Duration::from_secs(1))
                == Err(std::sync::mpsc::RecvTimeoutError::Timeout)
            {
                most_disk.fetch_max(size(&unfinished), Ordering::Relaxed);
            }
        });
        let manifest = build(&[folder.text()], &tokenizer, &folder.index(), &options);
        drop(ended);
        manifest.unwrap_or_else(|error| panic!("the text cannot be indexed: {error}"))
    });
    let index_bytes = size(&folder.index());
    let (seconds, stages) = clock.stop();
    Built {
        text_tokens,
        memory,
        tokens: manifest.tokens,
        documents: manifest.documents,
        seconds,
        stages,
        is_resumed,
        peak_memory: peak_memory(),
        most_disk: most_disk.into_inner().max(index_bytes),
        index_bytes,
    }
}

/// Verifies a sample of the index in this process.
pub fn verify_here(folder: &Folder) -> Checked {
    let start = Instant::now();
    let verified = verify(folder.index(), OpenOptions::default(), VerifyLevel::Sampled(SAMPLE));
    let VerifyReport { checksums, documents, suffix_pairs } =
        verified.unwrap_or_else(|error| panic!("the index is damaged: {error}"));
    let seconds = start.elapsed().as_secs_f64();
    Checked { seconds, checksums, documents, suffix_pairs }
}

/// The current stage of a build, and the time of each.
struct Clock {
    start: Instant,
    state: Mutex<State>,
}

struct State {
    stage: &'static str,
    since: Instant,
    reported: Instant,
    /// Seconds by stage, in the order of the first time.
    seconds: Vec<(&'static str, f64)>,
}

impl State {
    fn enter(&mut self, stage: &'static str, start: Instant) {
        if self.stage == stage {
            return;
        }
        self.leave();
        self.stage = stage;
        self.reported = Instant::now();
        eprintln!("build: {stage} begins at {:.1} s", start.elapsed().as_secs_f64());
    }

    fn leave(&mut self) {
        let took = self.since.elapsed().as_secs_f64();
        self.since = Instant::now();
        match self.seconds.iter_mut().find(|(stage, _)| *stage == self.stage) {
            Some((_, seconds)) => *seconds += took,
            None => self.seconds.push((self.stage, took)),
        }
    }
}

impl Clock {
    fn new() -> Self {
        let start = Instant::now();
        let state =
            State { stage: "tokenising", since: start, reported: start, seconds: Vec::new() };
        Self { start, state: Mutex::new(state) }
    }

    fn report(&self, progress: BuildProgress) {
        let (stage, done, all) = match progress {
            BuildProgress::Tokenised { read_bytes, input_bytes, .. } => {
                ("tokenising", read_bytes, input_bytes)
            }
            BuildProgress::Sorting { sorted, tokens, .. } => ("sorting", sorted, tokens),
            BuildProgress::Ranking { ranked, tokens, .. } => ("ranking", ranked, tokens),
            BuildProgress::Merging { merged, tokens, .. } => ("merging", merged, tokens),
            BuildProgress::Prefixes { written, prefixes, .. } => ("prefixes", written, prefixes),
            _ => return,
        };
        let mut state = self.state.lock().expect("no thread panics while timing");
        state.enter(stage, self.start);
        if state.reported.elapsed() >= REPORT {
            state.reported = Instant::now();
            let (percent, seconds) =
                (100.0 * done as f64 / all.max(1) as f64, self.start.elapsed().as_secs_f64());
            eprintln!("build: {stage} {percent:.0} %, {seconds:.0} s");
        }
    }

    fn stop(self) -> (f64, Vec<(String, f64)>) {
        let seconds = self.start.elapsed().as_secs_f64();
        let mut state = self.state.into_inner().expect("no thread panics while timing");
        state.leave();
        let stages =
            state.seconds.into_iter().map(|(stage, seconds)| (stage.to_owned(), seconds)).collect();
        (seconds, stages)
    }
}

/// Returns the peak resident memory of this process, bytes.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok());
    1024 * peak.unwrap_or(0_u64)
}
