//! A headless Chromium that shows pages and says what is on them, over its debugging pipe: JSON
//! messages that end with a zero byte. (The crates that speak this protocol compile all of it, some
//! hundred thousand lines; these tests need ten of its commands.)

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

const NAMES: [&str; 4] = ["chromium", "google-chrome", "google-chrome-stable", "chromium-browser"];

/// Where its standard error goes.
const SAID: &str = "said";

pub struct Browser {
    process: Child,
    to: File,
    from: BufReader<File>,
    sent: u64,
    session: Option<String>,
    /// Everything that was asked for since the last page was opened.
    pub requests: Vec<String>,
    /// Errors on the console since then, and refused requests.
    pub problems: Vec<String>,
    /// Its profile and its pipes, and what it said.
    folder: TempDir,
}

impl Browser {
    pub fn start() -> Self {
        let program = program();
        let folder = tempfile::tempdir().unwrap();
        let pipe = |name: &str| folder.path().join(name);
        assert!(
            Command::new("mkfifo").args([pipe("to"), pipe("from")]).status().unwrap().success()
        );
        // The browser reads from descriptor 3 and writes to 4.
        let mut shell = Command::new("sh");
        shell
            .args(["-c", "exec \"$@\" 3<\"$0/to\" 4>\"$0/from\""])
            .arg(folder.path())
            .arg(&program);
        shell.args(["--headless", "--remote-debugging-pipe", "--disable-gpu", "--no-first-run"]);
        shell.args([
            "--disable-background-networking",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
        ]);
        shell.arg(format!("--user-data-dir={}", pipe("profile").display()));
        if std::fs::metadata("/proc/self").unwrap().uid() == 0 {
            shell.arg("--no-sandbox"); // root has none
        }
        let said = File::create(pipe(SAID)).unwrap();
        let process = shell.stdout(Stdio::null()).stderr(said).spawn().unwrap();
        let to = File::options().write(true).open(pipe("to")).unwrap();
        let from = BufReader::new(File::open(pipe("from")).unwrap());
        let (requests, problems) = (Vec::new(), Vec::new());
        let mut browser =
            Self { process, to, from, sent: 0, session: None, requests, problems, folder };
        let target =
            browser.call("Target.createTarget", json!({"url": "about:blank"}))["targetId"].clone();
        let attached =
            browser.call("Target.attachToTarget", json!({"targetId": target, "flatten": true}));
        browser.session = Some(attached["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Opens a file in a window of this width, in the light or the dark.
    pub fn open(&mut self, file: &Path, width: u32, is_dark: bool) {
        let url = format!("file://{}", file.canonicalize().unwrap().display());
        self.visit(&url, width, is_dark);
    }

    /// Opens an address, as [`Self::open`] does a file.
    pub fn visit(&mut self, url: &str, width: u32, is_dark: bool) {
        let scheme = if is_dark { "dark" } else { "light" };
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", json!({"features": features}));
        let size = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", size);
        self.requests.clear();
        self.problems.clear();
        self.call("Page.navigate", json!({"url": url}));
        while self.receive()["method"] != "Page.loadEventFired" {}
    }

    /// The value of an expression on the page.
    pub fn look(&mut self, expression: &str) -> Value {
        let answer =
            self.call("Runtime.evaluate", json!({"expression": expression, "returnByValue": true}));
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        self.sent += 1;
        let mut message = json!({"id": self.sent, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let written = self.to.write_all(format!("{message}\0").as_bytes());
        assert!(written.is_ok(), "{}", self.ended());
        loop {
            let answer = self.receive();
            if answer["id"] == self.sent {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
        }
    }

    fn receive(&mut self) -> Value {
        let mut message = Vec::new();
        self.from.read_until(0, &mut message).unwrap();
        assert_eq!(message.pop(), Some(0), "{}", self.ended());
        let message: Value = serde_json::from_slice(&message).unwrap();
        let params = &message["params"];
        match message["method"].as_str() {
            Some("Network.requestWillBeSent") => {
                self.requests.push(params["request"]["url"].as_str().unwrap().to_owned())
            }
            Some("Runtime.exceptionThrown" | "Runtime.consoleAPICalled" | "Log.entryAdded") => {
                self.problems.push(params.to_string());
            }
            _ => {}
        }
        message
    }

    fn ended(&self) -> String {
        let said = std::fs::read_to_string(self.folder.path().join(SAID)).unwrap_or_default();
        format!("the browser has ended:\n{said}")
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill(); // it may have ended
        let _ = self.process.wait();
    }
}

fn program() -> String {
    let runs = |name: &String| {
        Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success())
    };
    let found = match std::env::var("CORVER_BROWSER") {
        Ok(own) => Some(own).filter(runs),
        Err(_) => NAMES.map(String::from).into_iter().find(runs),
    };
    found.expect("there is no browser to look at pages with: host/setup/browser.sh installs Chromium, or set CORVER_BROWSER to one of yours")
}
