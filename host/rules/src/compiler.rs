//! Compilation of a plugin file to machine code. A file of a few hundred bytes can take hours and
//! all memory, so a child process compiles it, which the operating system kills at its limits.

use std::ffi::OsString;
use std::fmt::Display;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};

use rustix::process::{Resource, Rlimit, Signal, setrlimit};
use wasmtime::Engine;

use crate::limits::compile_seconds;
use crate::{Limits, RuleError, admit, engine};

/// The process that compiles rules.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Compiler {
    /// This process, without limits. Use it for trusted files only.
    #[default]
    InProcess,
    /// A child process for every file, within [`Limits::compile_s`] and
    /// [`Limits::compile_bytes`]. It receives one more argument, which it must pass to
    /// [`compile_as_child`].
    Child {
        /// Path of the program.
        program: PathBuf,
        /// Arguments that make the program call [`compile_as_child`].
        arguments: Vec<OsString>,
    },
}

impl Compiler {
    /// Returns the machine code of the plugin `wasm` for an engine with these limits. `path` is for
    /// messages.
    pub(crate) fn compile(
        &self,
        path: &Path,
        wasm: &[u8],
        limits: &Limits,
    ) -> Result<Vec<u8>, RuleError> {
        match self {
            Self::InProcess => compile(wasm, limits).map_err(|detail| admit::damaged(path, detail)),
            Self::Child { program, arguments } => {
                let limits_as_argument = serde_json::to_string(limits).expect("numbers");
                let output =
                    run(Command::new(program).args(arguments).arg(limits_as_argument), wasm)
                        .map_err(|error| failed(path, error))?;
                code(output, path, wasm.len(), limits)
            }
        }
    }
}

/// Converts a module to a component, and compiles it.
fn compile(wasm: &[u8], limits: &Limits) -> Result<Vec<u8>, String> {
    let component = admit::component(wasm)?;
    let engine = Engine::new(&engine::config(limits, engine::inlining(wasm.len())));
    engine
        .and_then(|engine| engine.precompile_component(&component))
        .map_err(|error| format!("{error:#}"))
}

/// Writes `wasm` to the child's standard input while reading its output, so that neither blocks.
fn run(command: &mut Command, wasm: &[u8]) -> std::io::Result<Output> {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut input = child.stdin.take().expect("it is piped above");
    std::thread::scope(|scope| {
        // If the child ends before it has read everything, its exit status has the reason.
        scope.spawn(move || drop(input.write_all(wasm)));
        child.wait_with_output()
    })
}

/// Exit code of a child that rejects the file. The reason is on standard error.
const REJECTED: u8 = 3;

fn failed(path: &Path, detail: impl Display) -> RuleError {
    RuleError::Engine(format!("the compiler of {} failed: {detail}", path.display()))
}

/// Returns the machine code that the child wrote, or the error that its status means.
fn code(output: Output, path: &Path, bytes: usize, limits: &Limits) -> Result<Vec<u8>, RuleError> {
    if output.status.success() {
        return Ok(output.stdout);
    }
    let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if output.status.code() == Some(REJECTED.into()) {
        return Err(admit::damaged(path, stderr));
    }
    Err(if output.status.signal() == Some(Signal::XCPU.as_raw()) {
        RuleError::LimitExceeded(format!(
            "compiling {} takes more than {} s of processor time (limits.compile_s for each MiB \
             of the file)",
            path.display(),
            compile_seconds(limits, bytes)
        ))
    } else if OUT_OF_MEMORY.iter().any(|words| stderr.contains(words)) {
        RuleError::LimitExceeded(format!(
            "compiling {} takes more than {} bytes of memory (limits.compile_bytes)",
            path.display(),
            limits.compile_bytes
        ))
    } else {
        failed(path, format!("{}; {stderr}", output.status))
    })
}

/// Messages of a Rust program, and of the operating system, if there is no memory left.
const OUT_OF_MEMORY: [&str; 2] = ["memory allocation of", "Cannot allocate memory"];

/// Compiles a plugin in the child process of [`Compiler::Child`], whose argument is `limits`.
///
/// Reads the plugin from standard input and writes its machine code to standard output. The
/// operating system kills the process if it exceeds the limits.
#[must_use]
pub fn compile_as_child(limits: &str) -> ExitCode {
    let rejected = |reason: String| {
        eprintln!("{reason}");
        ExitCode::from(REJECTED)
    };
    let parsed_limits: Limits = match serde_json::from_str(limits) {
        Ok(parsed) => parsed,
        Err(error) => return rejected(format!("not the limits of a rule: {error}")),
    };
    let mut wasm = Vec::new();
    let ready = std::io::stdin()
        .read_to_end(&mut wasm)
        .and_then(|_| limit_this_process(&parsed_limits, wasm.len()));
    let written = ready.map(|()| compile(&wasm, &parsed_limits)).and_then(|code| match code {
        Ok(code) => std::io::stdout().write_all(&code).map(|()| ExitCode::SUCCESS),
        Err(reason) => Ok(rejected(reason)),
    });
    written.unwrap_or_else(|error| {
        eprintln!("{error}");
        ExitCode::FAILURE
    })
}

fn limit_this_process(limits: &Limits, bytes: usize) -> std::io::Result<()> {
    // The sixth number: private writable pages. The limit is for what compiling adds to them.
    let pages = std::fs::read_to_string("/proc/self/statm")?;
    let in_use: u64 = pages.split(' ').nth(5).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    let in_use = in_use * rustix::param::page_size() as u64;
    let seconds = compile_seconds(limits, bytes);
    for (resource, limit) in [
        (Resource::Data, in_use.saturating_add(limits.compile_bytes)),
        (Resource::Cpu, seconds),
        (Resource::Core, 0),
    ] {
        setrlimit(
            resource,
            Rlimit { current: Some(limit), maximum: Some(limit.saturating_add(1)) },
        )?;
    }
    Ok(())
}
