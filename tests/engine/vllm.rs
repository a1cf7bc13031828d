//! A real vLLM server on the CPU, which serves the demo's policy.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// The server's name for the model.
pub const MODEL: &str = "demo";
/// For its start, beside other work.
const START: Duration = Duration::from_secs(600);

/// Ends with this value, and all that it started.
pub struct Vllm {
    process: Child,
    port: u16,
    log: PathBuf,
}

/// A port that is free now.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Vllm {
    /// Starts it and waits until it answers; its output goes into `folder`.
    pub fn start(model: &Path, port: u16, folder: &Path) -> Self {
        let python = std::env::var("CORVER_VLLM")
            .expect("CORVER_VLLM is the Python that has vLLM: `make test-engine` sets it");
        let log = folder.join(format!("vllm-{port}.log"));
        let output = File::options().create(true).append(true).open(&log).unwrap();
        let port_text = port.to_string();
        let arguments = [
            ["--served-model-name", MODEL],
            ["--host", "127.0.0.1"],
            ["--port", &port_text],
            ["--dtype", "float32"],
            ["--max-model-len", "512"],
            ["--max-num-seqs", "64"],
            ["--max-lora-rank", "16"],
            ["--max-loras", "2"],
            ["--logprobs-mode", "processed_logprobs"],
        ];
        // The package for CPUs has another name than its command looks for, hence the module.
        let mut command = Command::new(python);
        command
            .args([
                "-m",
                "vllm.entrypoints.openai.api_server",
                "--enforce-eager",
                "--enable-lora",
                "--model",
            ])
            .arg(model);
        command.args(arguments.iter().flatten()).current_dir(folder);
        command.envs([
            ("VLLM_ALLOW_RUNTIME_LORA_UPDATING", "1"),
            ("VLLM_CPU_KVCACHE_SPACE", "1"),
            ("OMP_NUM_THREADS", "1"),
        ]);
        command.envs([
            ("HF_HUB_OFFLINE", "1"),
            ("VLLM_NO_USAGE_STATS", "1"),
            ("DO_NOT_TRACK", "1"),
        ]);
        command
            .env_remove("LD_LIBRARY_PATH")
            .process_group(0)
            .stdout(output.try_clone().unwrap())
            .stderr(output);
        let mut server =
            Self { process: command.spawn().expect("CORVER_VLLM is a Python"), port, log };
        let start = Instant::now();
        while server.try_request("GET", "/health", "").is_none_or(|(status, _)| status != 200) {
            let has_ended = server.process.try_wait().unwrap().is_some();
            assert!(
                !has_ended && start.elapsed() < START,
                "vLLM does not start; see {}",
                server.log.display()
            );
            std::thread::sleep(Duration::from_millis(500));
        }
        server
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Status and body.
    pub fn request(&self, method: &str, route: &str, body: &str) -> (u16, String) {
        self.try_request(method, route, body)
            .unwrap_or_else(|| panic!("no answer; see {}", self.log.display()))
    }

    fn try_request(&self, method: &str, route: &str, body: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        let head = format!(
            "{method} {route} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(head.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        Some((head.split_whitespace().nth(1)?.parse().ok()?, body.to_owned()))
    }

    /// As a machine that loses its power.
    pub fn kill(self) {}
}

impl Drop for Vllm {
    fn drop(&mut self) {
        // The group: the engine is a process of its own.
        let group = format!("-{}", self.process.id());
        let _ = Command::new("kill").args(["-9", "--", &group]).status();
        let _ = self.process.wait();
    }
}
