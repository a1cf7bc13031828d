//! The process that renders: both sides of it. Its first line is the [`Source`], every further one
//! [`Messages`]; each is answered by a line, the text or what is wrong. All lines are JSON.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};

use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::template::{Messages, Source, Template};

/// Memory of the process, bytes, the program's own included.
const MEMORY: u64 = 1 << 30;
/// Processor time for one line, seconds. Today's templates take some 0.1 ms.
const SECONDS: u64 = 5;

/// What a line is answered with.
type Answer<T> = Result<T, String>;

/// The process as its parent has it. It ends with this value.
#[derive(Debug)]
pub(super) struct Renderer {
    process: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Renderer {
    /// Starts the process and has it read the template.
    pub(super) fn start(mut command: Command, source: &Source) -> Result<Self, String> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0); // Ctrl-C is for the run, which still needs prompts while it ends
        let mut process =
            command.spawn().map_err(|error| format!("cannot start {command:?}: {error}"))?;
        let questions = process.stdin.take().expect("it is piped");
        let answers = BufReader::new(process.stdout.take().expect("it is piped"));
        let mut renderer = Self { process, questions, answers };
        renderer.ask::<()>(source)?;
        Ok(renderer)
    }

    pub(super) fn render(&mut self, messages: &Messages) -> Result<String, String> {
        self.ask(messages)
    }

    fn ask<T: DeserializeOwned>(&mut self, question: &impl Serialize) -> Result<T, String> {
        let mut line = serde_json::to_vec(question).expect("text");
        line.push(b'\n');
        let mut answer = String::new();
        let asked =
            self.questions.write_all(&line).and_then(|()| self.answers.read_line(&mut answer));
        match asked {
            Ok(1..) => serde_json::from_str::<Answer<T>>(&answer).unwrap_or_else(|error| {
                Err(format!("the process that renders it answered what was not expected: {error}"))
            }),
            Ok(0) | Err(_) => Err(self.why_it_ended()),
        }
    }

    fn why_it_ended(&mut self) -> String {
        // One that only closed its output would be waited for.
        let _ = self.process.kill();
        let mut said = String::new();
        let _ = self.process.stderr.take().map(|mut stderr| stderr.read_to_string(&mut said));
        match self.process.wait() {
            Ok(status) if status.signal() == Some(Signal::XCPU.as_raw()) => {
                format!("it takes more than {SECONDS} s of processor time")
            }
            Ok(_) if said.contains("memory allocation of") => {
                format!("it takes more than {MEMORY} bytes of memory")
            }
            Ok(status) => format!("the process that renders it ended: {status}; {}", said.trim()),
            Err(error) => error.to_string(),
        }
    }
}

impl Drop for Renderer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What the child of [`crate::ChatTokenizer::load_with_child`] does: renders until its standard
/// input ends.
#[must_use]
pub fn render_as_child() -> ExitCode {
    match answer_all() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn answer_all() -> std::io::Result<()> {
    limit(Resource::Core, 0)?;
    limit(Resource::Data, MEMORY)?;
    let mut lines = std::io::stdin().lock().lines();
    let Some(source) = lines.next() else { return Ok(()) };
    limit_time()?;
    let template = Template::read(serde_json::from_str(&source?)?);
    answer(&template.as_ref().map(drop))?;
    let Ok(template) = template else { return Ok(()) };
    for messages in lines {
        limit_time()?;
        answer(&template.render(&serde_json::from_str(&messages?)?))?;
    }
    Ok(())
}

fn answer(answer: &Result<impl Serialize, impl Serialize>) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    let mut out = std::io::stdout();
    out.write_all(&line)?;
    out.flush()
}

/// [`SECONDS`] from now on.
fn limit_time() -> std::io::Result<()> {
    let used = clock_gettime(ClockId::ProcessCPUTime).tv_sec.unsigned_abs();
    limit(Resource::Cpu, used + SECONDS + 1)
}

fn limit(resource: Resource, limit: u64) -> std::io::Result<()> {
    let maximum = getrlimit(resource).maximum;
    let current = Some(maximum.map_or(limit, |maximum| maximum.min(limit)));
    Ok(setrlimit(resource, Rlimit { current, maximum })?)
}
