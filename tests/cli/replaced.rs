//! A binary that is removed while it runs, as by a build.

use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::path::Path;

use crate::host::{command_of, run_dir};

#[test]
fn deleted_binary_starts_its_child_processes() {
    let folder = run_dir("deleted-binary");
    fs::create_dir_all(&folder).unwrap();
    let link = folder.join("corver-host");
    fs::hard_link(env!("CARGO_BIN_EXE_corver-host"), &link).unwrap();
    let file = File::open(&link).unwrap();
    fs::remove_file(&link).unwrap();
    let program = format!("/proc/self/fd/{}", file.as_raw_fd());
    let run = |args: &[&str]| {
        let mut command = command_of(Path::new(&program), args);
        let output = command.env("XDG_CACHE_HOME", folder.join("cache")).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    // A child process renders the chat template, and another one compiles the rule.
    let answers = folder.join("answers");
    let out = answers.to_str().unwrap();
    run(&["eval", "--config", "demo", "--raw", "--limit", "1", "--out", out]);
    run(&["plugin", "check", "first.wasm"]);
}
