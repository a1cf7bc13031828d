//! The renderer process, both sides of it.
//!
//! Its first input line is the [`TemplateSource`], every further one [`Messages`]. It answers each
//! with a line: the text, or the reason of a failure. All lines are JSON.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};

use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::template::{Messages, Template, TemplateSource};

/// Memory of the process, bytes, including the program's own.
const MEMORY: u64 = 1 << 30;
/// Processor time per line, seconds. Templates of published models take some 0.1 ms.
const SECONDS: u64 = 5;

/// A handle of the process in its parent. Dropping it ends the process.
#[derive(Debug)]
pub(super) struct RendererProcess {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl RendererProcess {
    /// Starts the process and sends the template.
    pub(super) fn start(mut command: Command, source: &TemplateSource) -> Result<Self, String> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Ctrl-C must not end the process: an interrupted run renders prompts until it ends.
        command.process_group(0);
        let mut process =
            command.spawn().map_err(|error| format!("cannot start {command:?}: {error}"))?;
        let input = process.stdin.take().expect("it is piped");
        let output = BufReader::new(process.stdout.take().expect("it is piped"));
        let mut renderer = Self { process, input, output };
        renderer.request::<()>(source)?;
        Ok(renderer)
    }

    pub(super) fn render(&mut self, messages: &Messages) -> Result<String, String> {
        self.request(messages)
    }

    fn request<T: DeserializeOwned>(&mut self, request: &impl Serialize) -> Result<T, String> {
        let mut line = serde_json::to_vec(request).expect("text serialises");
        line.push(b'\n');
        let mut reply = String::new();
        let result = self.input.write_all(&line).and_then(|()| self.output.read_line(&mut reply));
        match result {
            Ok(1..) => serde_json::from_str::<Result<T, String>>(&reply).unwrap_or_else(|error| {
                Err(format!("the renderer process sent an unexpected reply: {error}"))
            }),
            Ok(0) | Err(_) => Err(self.exit_reason()),
        }
    }

    fn exit_reason(&mut self) -> String {
        // Without this, a process that only closed its output would be waited for.
        let _ = self.process.kill();
        let mut errors = String::new();
        if let Some(mut stderr) = self.process.stderr.take() {
            let _ = stderr.read_to_string(&mut errors);
        }
        match self.process.wait() {
            Ok(status) if status.signal() == Some(Signal::XCPU.as_raw()) => {
                format!("it takes more than {SECONDS} s of processor time")
            }
            Ok(_) if errors.contains("memory allocation of") => {
                format!("it takes more than {MEMORY} bytes of memory")
            }
            Ok(status) => format!("the renderer process ended: {status}; {}", errors.trim()),
            Err(error) => error.to_string(),
        }
    }
}

impl Drop for RendererProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs the renderer process of [`crate::ChatTokenizer::load_with_child`]: renders until standard
/// input ends.
#[must_use]
pub fn render_as_child() -> ExitCode {
    match serve_requests() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn serve_requests() -> std::io::Result<()> {
    limit(Resource::Core, 0)?;
    limit(Resource::Data, MEMORY)?;
    let mut lines = std::io::stdin().lock().lines();
    let Some(source) = lines.next() else { return Ok(()) };
    limit_time()?;
    let template = Template::read(serde_json::from_str(&source?)?);
    reply(&template.as_ref().map(drop))?;
    let Ok(template) = template else { return Ok(()) };
    for messages in lines {
        limit_time()?;
        reply(&template.render(&serde_json::from_str(&messages?)?))?;
    }
    Ok(())
}

fn reply(result: &Result<impl Serialize, impl Serialize>) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(result)?;
    line.push(b'\n');
    let mut out = std::io::stdout();
    out.write_all(&line)?;
    out.flush()
}

/// Limits the next line to [`SECONDS`] of processor time.
fn limit_time() -> std::io::Result<()> {
    let used = clock_gettime(ClockId::ProcessCPUTime).tv_sec.unsigned_abs();
    limit(Resource::Cpu, used + SECONDS + 1)
}

fn limit(resource: Resource, limit: u64) -> std::io::Result<()> {
    let maximum = getrlimit(resource).maximum;
    let current = Some(maximum.map_or(limit, |maximum| maximum.min(limit)));
    Ok(setrlimit(resource, Rlimit { current, maximum })?)
}
