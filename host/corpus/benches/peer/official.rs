//! The official engine in a process of its own: `query.py` holds the protocol.
#![allow(dead_code, reason = "two benches and a test use it, each a part of it")]

use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use corver_corpus::TokenWidth;
use serde::de::DeserializeOwned;

pub struct Official {
    child: Child,
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

/// Count and the flag that says that it was scaled up.
pub type Answer = (u64, bool, serde_json::Value);

impl Official {
    /// Opens an index in the engine that `python` has installed; `queries` is the JSONL file that
    /// it will be asked.
    pub fn start(python: &Path, width: TokenWidth, index: &Path, queries: &Path) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/peer/query.py");
        let mut child = Command::new(python)
            .args([script.as_path(), Path::new(&width.to_string()), index, queries])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| {
                panic!("cannot run {}: {e}; `make bench-corpus` installs it", python.display())
            });
        let commands = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().expect("stdout is piped"));
        Self { child, commands, answers }
    }

    pub fn answers(&mut self) -> Vec<Answer> {
        self.ask("answers")
    }

    /// Nanoseconds of one call for each of some queries.
    pub fn pass(&mut self, queries: &Range<usize>) -> Vec<u64> {
        self.ask(&format!("pass {} {}", queries.start, queries.end))
    }

    /// Calls per second of several threads that ask some of the queries over and over, and per
    /// second of processor time.
    pub fn rate(&mut self, threads: usize, seconds: f64, queries: &Range<usize>) -> [f64; 2] {
        self.ask(&format!("rate {threads} {seconds} {} {}", queries.start, queries.end))
    }

    /// Counts each of some queries once with this many threads.
    pub fn batch<T: DeserializeOwned>(&mut self, threads: usize, queries: &Range<usize>) -> T {
        self.ask(&format!("batch {threads} {} {}", queries.start, queries.end))
    }

    /// The process that the engine runs in.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// The same queries on a cold index; afterwards only this and the pages can be asked.
    pub fn cold<T: DeserializeOwned>(&mut self, queries: &Range<usize>) -> Vec<T> {
        self.ask(&format!("cold {} {}", queries.start, queries.end))
    }

    /// Pages of the index's files that are in memory, whoever brought them there.
    pub fn pages_in_memory(&mut self) -> u64 {
        self.ask("pages")
    }

    fn ask<T: DeserializeOwned>(&mut self, command: &str) -> T {
        let commands = self.commands.as_mut().expect("open until dropped");
        writeln!(commands, "{command}").expect("the official engine takes commands");
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("the official engine answers");
        serde_json::from_str(&line)
            .unwrap_or_else(|e| panic!("the official engine answered {line:?} to {command}: {e}"))
    }
}

impl Drop for Official {
    fn drop(&mut self) {
        self.commands = None; // end of input ends the process
        let _ = self.child.wait();
    }
}
