//! From a plugin file to machine code. How long that takes, and how much memory, is the file's
//! choice: a few hundred bytes can ask for hours. So a process of its own does it, which the system
//! ends at its limits.

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

/// Who compiles rules.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Compiler {
    /// This process, without limits: for files that are trusted.
    #[default]
    Here,
    /// A process of its own for every file, within [`Limits::compile_s`] and
    /// [`Limits::compile_bytes`]: this program with these arguments and one more, which it hands to
    /// [`compile_as_child`].
    Child {
        /// Its path.
        program: PathBuf,
        /// What it takes to make it a compiler.
        arguments: Vec<OsString>,
    },
}

impl Compiler {
    /// The machine code of the plugin `wasm`, which was read from `path`, for an engine of these
    /// limits.
    pub(crate) fn compile(
        &self,
        path: &Path,
        wasm: &[u8],
        limits: &Limits,
    ) -> Result<Vec<u8>, RuleError> {
        match self {
            Self::Here => compile(wasm, limits).map_err(|detail| admit::damaged(path, detail)),
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

/// Translates a module to a component, and that to machine code.
fn compile(wasm: &[u8], limits: &Limits) -> Result<Vec<u8>, String> {
    let component = admit::component(wasm)?;
    let engine = Engine::new(&engine::config(limits, engine::inlining(wasm.len())));
    engine
        .and_then(|engine| engine.precompile_component(&component))
        .map_err(|error| format!("{error:#}"))
}

/// Gives the process its input while its output is read.
fn run(command: &mut Command, wasm: &[u8]) -> std::io::Result<Output> {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut input = child.stdin.take().expect("it is piped");
    std::thread::scope(|scope| {
        // A process that ends before it has read everything says why.
        scope.spawn(move || drop(input.write_all(wasm)));
        child.wait_with_output()
    })
}

/// The exit code of a compiler that does not accept its file and says why on standard error.
const REFUSED: u8 = 3;

fn failed(path: &Path, detail: impl Display) -> RuleError {
    RuleError::Engine(format!("the compiler of {} failed: {detail}", path.display()))
}

fn code(output: Output, path: &Path, bytes: usize, limits: &Limits) -> Result<Vec<u8>, RuleError> {
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if output.status.success() {
        return Ok(output.stdout);
    }
    if output.status.code() == Some(REFUSED.into()) {
        return Err(admit::damaged(path, said));
    }
    Err(if output.status.signal() == Some(Signal::XCPU.as_raw()) {
        RuleError::LimitExceeded(format!(
            "compiling {} takes more than {} s of processor time (limits.compile_s for each MiB \
             of the file)",
            path.display(),
            compile_seconds(limits, bytes)
        ))
    } else if OUT_OF_MEMORY.iter().any(|words| said.contains(words)) {
        RuleError::LimitExceeded(format!(
            "compiling {} takes more than {} bytes of memory (limits.compile_bytes)",
            path.display(),
            limits.compile_bytes
        ))
    } else {
        failed(path, format!("{}; {said}", output.status))
    })
}

/// What a Rust program says last that gets no more memory, and what the system calls it.
const OUT_OF_MEMORY: [&str; 2] = ["memory allocation of", "Cannot allocate memory"];

/// What the child of [`Compiler::Child`] does with its argument: reads a plugin from standard input
/// and writes its machine code to standard output. It ends where that takes more than the limits
/// allow.
#[must_use]
pub fn compile_as_child(limits: &str) -> ExitCode {
    let refused = |reason: String| {
        eprintln!("{reason}");
        ExitCode::from(REFUSED)
    };
    let limits: Limits = match serde_json::from_str(limits) {
        Ok(limits) => limits,
        Err(error) => return refused(format!("not the limits of a rule: {error}")),
    };
    let mut wasm = Vec::new();
    let ready = std::io::stdin()
        .read_to_end(&mut wasm)
        .and_then(|_| limit_this_process(&limits, wasm.len()));
    let written = ready.map(|()| compile(&wasm, &limits)).and_then(|code| match code {
        Ok(code) => std::io::stdout().write_all(&code).map(|()| ExitCode::SUCCESS),
        Err(reason) => Ok(refused(reason)),
    });
    written.unwrap_or_else(|error| {
        eprintln!("{error}");
        ExitCode::FAILURE
    })
}

fn limit_this_process(limits: &Limits, bytes: usize) -> std::io::Result<()> {
    // The sixth figure: pages that this process alone can write to.
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
