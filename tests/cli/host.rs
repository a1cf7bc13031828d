//! Runs the built binary.

use std::ffi::OsStr;
use std::fmt::{self, Display, Formatter};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use regex::Regex;
use serde_json::{Value, json};

use crate::transcript::{normalise, without_figures};

/// How a command ended.
pub struct Finished {
    pub stdout: String,
    pub stderr: String,
    pub code: Option<i32>,
    /// Its arguments, as a shell takes them.
    pub command: String,
}

impl Finished {
    fn new(args: &[&str], output: &Output) -> Self {
        Self {
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            code: output.status.code(),
            command: args.iter().map(|arg| quoted(arg)).collect::<Vec<_>>().join(" "),
        }
    }

    /// It succeeded.
    pub fn good(self) -> Self {
        self.found(0)
    }

    /// It found something, and says so by its exit code.
    pub fn found(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self}");
        self
    }

    /// What it printed, without the figures that a model's samples decide.
    pub fn without_figures(&self) -> Self {
        Self {
            stdout: without_figures(&normalise(&self.stdout)),
            stderr: without_figures(&normalise(&self.stderr)),
            code: self.code,
            command: self.command.clone(),
        }
    }

    /// What it printed, with a name for what matches a pattern.
    pub fn masked(&self, pattern: &str, name: &str) -> Self {
        let pattern = Regex::new(pattern).unwrap();
        Self {
            stdout: pattern.replace_all(&self.stdout, name).into_owned(),
            stderr: pattern.replace_all(&self.stderr, name).into_owned(),
            code: self.code,
            command: pattern.replace_all(&self.command, name).into_owned(),
        }
    }

    /// What it printed, as one JSON value.
    pub fn json(&self) -> Value {
        serde_json::from_str(self.stdout.trim())
            .unwrap_or_else(|error| panic!("{error} in {:?}", self.stdout))
    }
}

impl Display for Finished {
    fn fmt(&self, formatter: &mut Formatter) -> fmt::Result {
        write!(formatter, "corver-host {}\n{}\n{}", self.command, self.stdout, self.stderr)
    }
}

fn quoted(arg: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_=./:,#@".contains(c);
    if !arg.is_empty() && arg.chars().all(is_plain) { arg.to_owned() } else { format!("'{arg}'") }
}

pub fn command(args: &[&str]) -> Command {
    command_of(Path::new(env!("CARGO_BIN_EXE_corver-host")), args)
}

/// Returns a command of the binary at `program`, with the environment of the tests.
pub fn command_of(program: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).env("XDG_CACHE_HOME", Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache"));
    command
        .env_remove("RUST_BACKTRACE")
        .env_remove("LD_LIBRARY_PATH")
        .env_remove("RUST_LOG")
        .env_remove("CORVER_TOKEN")
        .env_remove("OPENAI_API_KEY")
        .env_remove("HF_HOME")
        .env_remove("HF_HUB_CACHE");
    command
}

/// Runs `corver-host` to its end.
pub fn host(args: &[&str]) -> Finished {
    Finished::new(args, &command(args).output().expect("the binary was built"))
}

/// Time and memory of a process.
pub struct Cost {
    pub time: Duration,
    pub peak_mib: u64,
}

/// Runs `corver-host` to its end, and measures it.
pub fn measured_host(args: &[&str]) -> (Finished, Cost) {
    let start = Instant::now();
    let child = command(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary was built");
    let id = child.id();
    let output = std::thread::spawn(move || child.wait_with_output().unwrap());
    let mut peak_mib = 0;
    while !output.is_finished() {
        peak_mib = peak_mib.max(peak_memory(id));
        std::thread::sleep(Duration::from_millis(5));
    }
    (Finished::new(args, &output.join().unwrap()), Cost { time: start.elapsed(), peak_mib })
}

/// Returns the largest resident memory of a process so far, MiB; 0 after its end.
fn peak_memory(id: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = peak.and_then(|peak| peak.trim().trim_end_matches(" kB").parse().ok());
    kib.unwrap_or(0) / 1024
}

/// Runs `corver-host` with this variable in its environment.
pub fn host_with(variable: &str, value: impl AsRef<OsStr>, args: &[&str]) -> Finished {
    let output = command(args).env(variable, value).output().expect("the binary was built");
    Finished::new(args, &output)
}

/// Runs `corver-host` with its caches in this folder.
pub fn host_with_cache(cache: &Path, args: &[&str]) -> Finished {
    host_with("XDG_CACHE_HOME", cache, args)
}

/// Runs `corver-host` with this bearer token in its environment, and logs everything that any
/// library has to say.
pub fn host_with_token(token: &str, args: &[&str]) -> Finished {
    let output = command(args).env("CORVER_TOKEN", token).env("RUST_LOG", "trace").output();
    Finished::new(args, &output.expect("the binary was built"))
}

/// Runs `corver-host` where no file can have more than so many KiB.
pub fn host_with_files_of(kib: usize, args: &[&str]) -> Finished {
    let this = command(args);
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("trap '' XFSZ; ulimit -f {}; exec \"$0\" \"$@\"", 2 * kib)]);
    shell.arg(this.get_program()).args(args);
    for (name, value) in this.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    Finished::new(args, &shell.output().expect("there is a shell"))
}

/// Runs `corver-host` on a machine whose `nvidia-smi` reports an H100 with this driver.
pub fn host_with_driver(driver: &str, args: &[&str]) -> Finished {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("driver-{driver}"));
    fs::create_dir_all(&folder).unwrap();
    let program = folder.join("nvidia-smi");
    let answers = format!(
        "#!/bin/sh\n[ \"$1\" = -L ] && echo 'GPU 0: NVIDIA H100 (UUID: GPU-1)' || echo {driver}\n"
    );
    fs::write(&program, answers).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
    host_with("PATH", path, args)
}

/// Runs `corver-host` and kills it, without warning, once `ready` holds.
pub fn kill_when(args: &[&str], ready: impl Fn() -> bool) {
    signal_when("-KILL", args, ready);
}

/// The same, with its caches in this folder.
pub fn kill_when_with_cache(cache: &Path, args: &[&str], ready: impl Fn() -> bool) {
    let mut child = command(args)
        .env("XDG_CACHE_HOME", cache)
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary was built");
    while !ready() {
        assert!(
            child.try_wait().unwrap().is_none(),
            "corver-host {} ended too early",
            args.join(" ")
        );
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Runs `corver-host` and kills it after this time; false where it had ended well before.
pub fn kill_after(time: Duration, args: &[&str]) -> bool {
    kill_after_event(time, args, || {})
}

/// Does the same, after an event that the program may notice.
pub fn kill_after_event(time: Duration, args: &[&str], event: impl FnOnce()) -> bool {
    let mut child = command(args)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary was built");
    std::thread::sleep(time);
    let ended = child.try_wait().unwrap();
    assert!(ended.is_none_or(|status| status.success()), "corver-host {}", args.join(" "));
    event();
    child.kill().unwrap();
    child.wait().unwrap();
    ended.is_none()
}

/// Runs `corver-host` and sends it a signal once `ready` holds.
pub fn signal_when(signal: &str, args: &[&str], ready: impl Fn() -> bool) -> Finished {
    let mut child = command(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary was built");
    let deadline = Instant::now() + Duration::from_secs(300);
    while !ready() {
        assert!(Instant::now() < deadline, "corver-host {} did not get there", args.join(" "));
        assert!(
            child.try_wait().unwrap().is_none(),
            "corver-host {} ended too early",
            args.join(" ")
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(
        Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success()
    );
    Finished::new(args, &child.wait_with_output().unwrap())
}

/// `corver-host index serve` or `serve`, for as long as the value lives.
pub struct Server {
    process: Child,
    /// What to give as `corpus.index`.
    pub url: String,
    /// What it listens on.
    pub address: String,
}

impl Server {
    pub fn start(args: &[&str], listen: &str) -> Self {
        Self::run(&[&["index", "serve", "--json", "--listen", listen], args].concat())
    }

    /// The whole command line of a server that prints JSON.
    pub fn run(args: &[&str]) -> Self {
        Self::spawn(command(args))
    }

    fn spawn(mut command: Command) -> Self {
        let mut process = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary was built");
        let mut line = String::new();
        BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let health: Value =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line:?}"));
        let url = health["url"].as_str().unwrap().to_owned();
        let address = url.trim_start_matches("http://").split('/').next().unwrap().to_owned();
        Self { process, url, address }
    }

    /// Ends it as Ctrl-C would, and sees that it ends well.
    pub fn stop(&mut self) {
        assert!(self.signal("-INT").success());
    }

    /// How it ends after a signal.
    pub fn signal(&mut self, signal: &str) -> ExitStatus {
        assert!(
            Command::new("kill")
                .args([signal, &self.process.id().to_string()])
                .status()
                .unwrap()
                .success()
        );
        self.process.wait().unwrap()
    }
}

impl Server {
    /// Largest resident memory of the process so far, MiB.
    pub fn peak_mib(&self) -> u64 {
        peak_memory(self.process.id())
    }

    /// Its exit code, and what it said on standard error, once it has ended by itself.
    pub fn end(&mut self) -> (Option<i32>, String) {
        let mut said = String::new();
        self.process.stderr.as_mut().unwrap().read_to_string(&mut said).unwrap();
        (self.process.wait().unwrap().code(), said)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill(); // it may have been stopped
        let _ = self.process.wait();
    }
}

/// The demo's extractor, as a folder: for an index that holds the demo's articles but is not the
/// demo's own.
pub const EXTRACTOR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../demo/assets/extractor");

/// The demo over an index that is not its own.
pub const OTHER_INDEX: [&str; 4] = ["--config", "demo", "--extractor", EXTRACTOR];

/// A demo run small enough for a test.
const SHORT_RUN: [&str; 10] = [
    "train",
    "--device",
    "cpu",
    "--set",
    "question.prompts_per_step=2",
    "--set",
    "question.eval_limit=16",
    "--set",
    "checkpoint.every=2",
    "--json",
];

pub fn short_run(out: &Path, steps: usize, more: &[&str]) -> Finished {
    host(&short_run_args(out, &steps.to_string(), more))
}

/// The command line of [`short_run`].
pub fn short_run_args<'a>(out: &'a Path, steps: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&SHORT_RUN[..], &["--out", out.to_str().unwrap(), "--steps", steps], more].concat()
}

/// A fresh path for a run, under the build folder.
pub fn run_dir(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("runs").join(name);
    if path.exists() {
        fs::remove_dir_all(&path).unwrap();
    }
    path
}

/// The lines of a JSONL file that are whole; none where it does not exist.
pub fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

pub fn has_gpu() -> bool {
    Command::new("nvidia-smi").arg("-L").output().is_ok_and(|output| output.status.success())
}

/// Three short articles, indexed with the demo's tokenizer.
pub fn small_index(out: &Path) {
    small_index_again(out).good();
}

/// The same once more, without expecting anything.
pub fn small_index_again(out: &Path) -> Finished {
    let articles = out.parent().unwrap().join("articles.jsonl");
    // A word is found after a space. And the neighbours of this one article must not speak of its
    // entities: the engine looks for a match on both sides before it looks for the article's end.
    let text = [
        "The capital of Peru is Lima.",
        "The city of Paris lies in France. All of France loves Paris.",
        "The capital of Italy is Rome.",
    ];
    let lines: Vec<String> = text.iter().map(|text| json!({"text": text}).to_string()).collect();
    fs::write(&articles, lines.join("\n")).unwrap();
    let tokenizer =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../demo/assets/policy/tokenizer.json");
    let [articles, tokenizer, out] =
        [&articles, &tokenizer, out].map(|path| path.to_str().unwrap());
    host(&["index", "build", articles, "--tokenizer", tokenizer, "--out", out])
}

/// Copies the demo's policy, which is unpacked into this cache.
pub fn demo_policy(cache: &Path, out: &Path) {
    host_with_cache(cache, &["index", "count", "Paris", "--index", "demo"]).good();
    let mut unpacked = fs::read_dir(cache.join("corver"))
        .unwrap()
        .map(|entry| entry.unwrap().path().join("policy"));
    let unpacked = unpacked.find(|path| path.is_dir()).unwrap();
    fs::create_dir_all(out).unwrap();
    for entry in fs::read_dir(unpacked).unwrap().map(Result::unwrap) {
        fs::copy(entry.path(), out.join(entry.file_name())).unwrap();
    }
}
