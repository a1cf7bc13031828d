//! Rewards over HTTP, from the built binary: the same as on the command line; ends and losses under
//! load.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use regex::Regex;
use serde_json::{Value, json};

use crate::host::{OTHER_INDEX, Server, host, lines};
use crate::transcript::Transcript;

pub fn start(args: &[&str]) -> Server {
    Server::run(&[&["serve", "--json", "--listen", "127.0.0.1:0"], args].concat())
}

/// A connection that is kept.
struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Self(BufReader::new(stream))
    }

    /// Status and body of one exchange, and whether the server closes the connection after it.
    fn exchange(&mut self, request: &str) -> std::io::Result<(u16, String, bool)> {
        self.0.get_mut().write_all(request.as_bytes())?;
        let (mut head, mut line) = (String::new(), String::new());
        while line != "\r\n" {
            line.clear();
            if self.0.read_line(&mut line)? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            head += &line.to_ascii_lowercase();
        }
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        let mut body = vec![0; length.parse().unwrap()];
        self.0.read_exact(&mut body)?;
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Ok((status, String::from_utf8(body).unwrap(), head.contains("connection: close")))
    }
}

fn post(path: &str, body: &Value) -> String {
    let body = body.to_string();
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

/// One exchange on a connection of its own.
pub fn ask(address: &str, path: &str, body: &Value) -> (u16, Value) {
    let (status, body, _) = Client::connect(address).exchange(&post(path, body)).unwrap();
    (status, serde_json::from_str(&body).unwrap())
}

pub fn get(address: &str, path: &str) -> (u16, String) {
    let (status, body, _) = Client::connect(address)
        .exchange(&format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"))
        .unwrap();
    (status, body)
}

/// Completions about the demo's world: each says three sentences of its articles.
fn completions(folder: &Path, many: usize) -> Vec<Value> {
    let world = folder.join("world");
    host(&["demo", "world", world.to_str().unwrap()]).good();
    let articles = lines(&world.join("articles.jsonl"));
    let said = |article: &Value| {
        let text = article["text"].as_str().unwrap();
        let thought: Vec<&str> = text.split_inclusive(". ").take(3).collect();
        let title = article["title"].as_str().unwrap();
        json!({"question": format!("What is {title}?"), "answers": [title],
            "completion": format!("<think>{}</think><answer>{title}</answer>", thought.concat().trim())})
    };
    articles.iter().take(many).map(said).collect()
}

/// What OpenRLHF posts for one of them.
fn rollout(completion: &Value) -> Value {
    let text = |field: &str| completion[field].as_str().unwrap();
    let prompt =
        format!("<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n", text("question"));
    let query = format!("{prompt}{}<|im_end|>", text("completion"));
    json!({"query": [query], "prompts": [prompt], "labels": [completion["answers"]]})
}

#[test]
fn http_reward_equals_command_line_reward() {
    let folder = tempfile::tempdir().unwrap();
    let given = completions(folder.path(), 12);
    let file = folder.path().join("completions.jsonl");
    fs::write(&file, given.iter().map(|one| format!("{one}\n")).collect::<String>()).unwrap();
    let settings = ["--plugin", "min.wasm", "--set", "reward.lambda_judge=0.5"];
    let printed =
        host(&[&["score", file.to_str().unwrap(), "--json"], &settings[..]].concat()).good();
    let printed: Vec<Value> =
        printed.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();

    let mut server = start(&settings);
    let (status, scored) = ask(&server.address, "/v1/score", &json!({"completions": given}));
    assert_eq!((status, &scored["completions"]), (200, &Value::Array(printed.clone())));
    for (completion, printed) in given.iter().zip(&printed) {
        let (status, reply) = ask(&server.address, "/get_reward", &rollout(completion));
        assert_eq!(
            (status, &reply["rewards"], &reply["scores"]),
            (200, &printed["mean_return"], &json!(1.0)),
            "{reply}"
        );
    }
    let text = given[0]["completion"].as_str().unwrap();
    let checked =
        host(&["check", "--json", "--text", text, "--passages", "2", "--plugin", "min.wasm"]);
    let checked: Value = serde_json::from_str(checked.stdout.trim()).unwrap();
    let asked = json!({"texts": [{"text": text}], "passages": 2});
    assert_eq!(ask(&server.address, "/v1/check", &asked), (200, json!({"texts": [checked]})));
    assert_eq!(ask(&server.address, "/v1/check", &json!({"texts": [], "passages": 21})).0, 400);
    let (_, rule) = get(&server.address, "/v1/rule");
    let rule: Value = serde_json::from_str(&rule).unwrap();
    let identity = host(&["plugin", "check", "min.wasm", "--json"]).good().json();
    assert_eq!(rule["rules"][0]["blake3"], identity["blake3"]);
    assert_eq!(rule["rules"][0]["weight"], 1.0);
    assert_eq!((&rule["judge"], &rule["reward"]["lambda_judge"]), (&Value::Null, &json!(0.5)));
    // The demo's index, too.
    let counted = json!({"index": "demo", "query_type": "count", "query": "birthplace"});
    assert!(ask(&server.address, "/", &counted).1["count"].as_u64().unwrap() > 0);
    assert_eq!(get(&server.address, "/ready"), (200, "ready\n".to_owned()));
    assert!(get(&server.address, "/metrics").1.contains("corver_completions_total 24"));
    server.stop();
}

#[test]
fn help_lists_every_route() {
    let help = host(&["serve", "--help"]).good().stdout;
    let words: Vec<&str> = help.split([' ', ',', '\n']).collect();
    let route = Regex::new(r#"(?:Route::(?:get|post)|unbatched_route)\([^"]*"(/[^"]*)""#).unwrap();
    let mut paths = ["/health", "/ready", "/metrics"].map(str::to_owned).to_vec();
    for file in [
        "cli/src/command/serve.rs",
        "serve/src/counts/mod.rs",
        "serve/src/reward/native.rs",
        "serve/src/reward/openrlhf.rs",
    ] {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
        let source = fs::read_to_string(source).unwrap();
        assert!(route.is_match(&source), "{file} has no route");
        paths.extend(route.captures_iter(&source).map(|found| found[1].to_owned()));
    }
    for path in paths {
        assert!(words.contains(&path.as_str()), "{path} is not in\n{help}");
    }
}

#[test]
fn serving_guide_examples_are_answered() {
    let guide =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/integrations.md"))
            .unwrap();
    let server = start(&[]);
    let examples: Vec<_> = guide.split("$ curl http://127.0.0.1:8765").skip(1).collect();
    assert_eq!(examples.len(), 3);
    for example in examples {
        let (path, rest) = example.split_once(" -d '").unwrap();
        let (body, answer) = rest.split_once("'\n").unwrap();
        let (status, reply) = ask(&server.address, path, &serde_json::from_str(body).unwrap());
        assert_eq!(status, 200, "{body}: {reply}");
        let answer = answer.split("```").next().unwrap().replace(",…}", "}").replace('…', "\"…\"");
        let shown: Value =
            serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{error} in {answer}"));
        assert!(shows(&shown, &reply), "{path} shows {shown}, and answers {reply}");
    }
}

/// Whether what is shown is part of what was reply; `…` stands for the rest of a list.
fn shows(shown: &Value, reply: &Value) -> bool {
    match (shown, reply) {
        (Value::Object(shown), Value::Object(reply)) => {
            shown.iter().all(|(key, value)| reply.get(key).is_some_and(|reply| shows(value, reply)))
        }
        (Value::Array(shown), Value::Array(reply)) => {
            let whole = shown.last().is_none_or(|last| last != "…");
            let shown = &shown[..shown.len() - usize::from(!whole)];
            let alike = shown.iter().zip(reply).all(|(shown, reply)| shows(shown, reply));
            alike && if whole { shown.len() == reply.len() } else { shown.len() < reply.len() }
        }
        (shown, reply) => shown == reply,
    }
}

#[test]
fn served_reward_counts_from_several_index_servers() {
    let folder = tempfile::tempdir().unwrap();
    let given = completions(folder.path(), 12);
    let file = folder.path().join("completions.jsonl");
    fs::write(&file, given.iter().map(|one| format!("{one}\n")).collect::<String>()).unwrap();
    let articles = fs::read_to_string(folder.path().join("world/articles.jsonl")).unwrap();
    let articles: Vec<&str> = articles.lines().collect();
    let tokenizer =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../demo/assets/policy/tokenizer.json");
    let parts = articles.chunks(articles.len().div_ceil(2)).zip(["first", "second"]).map(
        |(articles, name)| {
            let (text, index) =
                (folder.path().join(format!("{name}.jsonl")), folder.path().join(name));
            fs::write(&text, articles.join("\n")).unwrap();
            let [text, tokenizer, out] =
                [&text, &tokenizer, &index].map(|path| path.to_str().unwrap());
            host(&["index", "build", text, "--tokenizer", tokenizer, "--out", out]).good();
            index.to_str().unwrap().to_owned()
        },
    );
    let parts: Vec<String> = parts.collect();
    let counting: Vec<Server> =
        parts.iter().map(|part| Server::start(&["--index", part], "127.0.0.1:0")).collect();
    let urls: Vec<&String> = counting.iter().map(|server| &server.url).collect();

    let here = format!("corpus.index={parts:?}");
    let printed = host(
        &[&["score", file.to_str().unwrap(), "--json", "--set", &here], &OTHER_INDEX[..]].concat(),
    )
    .good()
    .stdout;
    let printed: Vec<Value> =
        printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let sentences = || printed.iter().flat_map(|trace| trace["sentences"].as_array().unwrap());
    assert!(
        sentences().any(|sentence| sentence["verdict"]["count"].as_u64() > Some(0)),
        "{printed:?}"
    );
    let server = start(&[&["--set", &format!("corpus.index={urls:?}")], &OTHER_INDEX[..]].concat());
    let (status, scored) = ask(&server.address, "/v1/score", &json!({"completions": given}));
    assert_eq!((status, &scored["completions"]), (200, &Value::Array(printed)));
    // What takes the text of an index is not there.
    assert_eq!(ask(&server.address, "/", &json!({})).0, 404);
    let asked = json!({"texts": [{"text": "It is."}], "passages": 1});
    assert_eq!(ask(&server.address, "/v1/check", &asked).0, 400);
}

#[test]
fn token_guards_all_but_health_and_ready() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    fs::write(&token, "0f1e2d3c4b5a69788796a5b4c3d2e1f0\n").unwrap();
    let server = start(&["--token-file", token.to_str().unwrap()]);
    for path in ["/get_reward", "/v1/score", "/v1/check", "/"] {
        assert_eq!(ask(&server.address, path, &json!({})).0, 401, "{path}");
    }
    let statuses = ["/health", "/ready", "/metrics"].map(|path| get(&server.address, path).0);
    assert_eq!(statuses, [200, 200, 401]);
    let shown = "POST /v1/score HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer 0f1e2d3c4b5a69788796a5b4c3d2e1f0\r\nContent-Length: 2\r\n\r\n{}";
    assert_eq!(Client::connect(&server.address).exchange(shown).unwrap().0, 400);
}

#[test]
fn invalid_serve_settings_fail_at_start() {
    let mut transcript = Transcript::default();
    transcript.add_failure(&host(&["serve", "--plugin", "nowhere.wasm"]));
    transcript.add_failure(&host(&["serve", "--max-batch", "9", "--queue", "8"]));
    transcript.add_failure(&host(&["serve", "--connections", "0"]));
    transcript.add_usage_error(&host(&["serve", "--queue-bytes", "much"]));
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    transcript.add_failure(&host(&["serve", "--listen", &address]));
    insta::assert_snapshot!(transcript);
}

/// Asks `address` for rewards from so many connections that are kept, until `enough` or the server
/// closes them. Gives the answers' number; each must be good, and what `expected` says for its
/// request.
fn ask_on_and_on(
    address: &str,
    requests: &[(String, f64)],
    clients: usize,
    enough: usize,
    begun: &AtomicUsize,
) -> usize {
    let client = |first: usize| {
        let mut client = Client::connect(address);
        for (answered, (request, expected)) in
            requests.iter().cycle().skip(first * 7).take(enough).enumerate()
        {
            begun.fetch_add(1, Ordering::Relaxed);
            let (status, body, closes) =
                client.exchange(request).unwrap_or_else(|error| panic!("{error}, not answered"));
            let reply: Value = serde_json::from_str(&body).unwrap_or_default();
            assert!(
                status == 200
                    && reply["rewards"] == *expected
                    && reply["extra_logs"]["corver/error"] == 0.0,
                "{status} {body}"
            );
            if closes {
                return answered + 1;
            }
        }
        enough
    };
    std::thread::scope(|scope| {
        let clients: Vec<_> =
            (0..clients).map(|first| scope.spawn(move || client(first))).collect();
        clients.into_iter().map(|client| client.join().unwrap()).sum()
    })
}

/// Requests for rewards, with the reward that a single server gives.
fn rewarded(server: &Server, folder: &Path, many: usize) -> Vec<(String, f64)> {
    let reward = |completion: &Value| {
        let rollout = rollout(completion);
        let (_, reply) = ask(&server.address, "/get_reward", &rollout);
        (
            post("/get_reward", &rollout),
            reply["rewards"].as_f64().unwrap_or_else(|| panic!("{reply}")),
        )
    };
    completions(folder, many).iter().map(reward).collect()
}

/// Until so many requests have been begun.
fn wait_for(begun: &AtomicUsize, many: usize) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while begun.load(Ordering::Relaxed) < many {
        assert!(Instant::now() < deadline, "{begun:?} of {many} requests");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn sigterm_answers_all_accepted_requests() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = start(&[]);
    let requests = rewarded(&server, folder.path(), 64);
    let (address, begun) = (server.address.clone(), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let clients = scope.spawn(|| ask_on_and_on(&address, &requests, 8, usize::MAX, &begun));
        wait_for(&begun, 200);
        assert!(server.signal("-TERM").success());
        assert_eq!(
            clients.join().unwrap(),
            begun.load(Ordering::Relaxed),
            "every request was answered"
        );
    });
}

/// nginx with the configuration of docs/integrations.md, for as long as the value lives.
struct Proxy {
    process: Child,
    address: String,
    _folder: tempfile::TempDir,
}

impl Proxy {
    fn start(replicas: [&str; 2]) -> Self {
        let guide =
            fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/integrations.md"))
                .unwrap();
        let config = guide.split("```nginx\n").nth(1).unwrap().split("```").next().unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let config = config
            .replace("replica-1:8765", replicas[0])
            .replace("replica-2:8765", replicas[1])
            .replace("listen 8765", &format!("listen {address}"));
        assert!(
            replicas.iter().chain([&address.as_str()]).all(|address| config.contains(*address)),
            "{config}"
        );
        // Nothing outside of a folder of its own; in the foreground.
        let folder = tempfile::tempdir().unwrap();
        let places = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|what| format!("{what}_temp_path {what};"));
        let config =
            config.replace("http {", &format!("http {{ access_log off; {}", places.concat()));
        fs::write(folder.path().join("nginx.conf"), config).unwrap();
        let process = Command::new(nginx())
            .arg("-p")
            .arg(folder.path())
            .args([
                "-c",
                "nginx.conf",
                "-e",
                "error.log",
                "-g",
                "daemon off; pid nginx.pid; worker_processes 1;",
            ])
            .stderr(Stdio::null())
            .spawn()
            .expect("nginx is there: host/setup/proxy.sh installs it");
        let proxy = Self { process, address, _folder: folder };
        let deadline = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(&proxy.address).is_err() {
            assert!(Instant::now() < deadline, "nginx does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        proxy
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // Its master ends its worker when it is reply to, not when it is killed.
        let _ = Command::new("kill").args(["-TERM", &self.process.id().to_string()]).status();
        let _ = self.process.wait();
    }
}

/// In a folder that is not on everyone's path.
fn nginx() -> PathBuf {
    let installed = Path::new("/usr/sbin/nginx");
    if installed.exists() { installed.to_owned() } else { "nginx".into() }
}

#[test]
fn killed_replica_loses_no_request() {
    let folder = tempfile::tempdir().unwrap();
    let (mut first, second) = (start(&[]), start(&[]));
    let requests = rewarded(&second, folder.path(), 64);
    assert_eq!(
        rewarded(&first, folder.path(), 64),
        requests,
        "a completion earns the same on every replica"
    );
    let proxy = Proxy::start([&first.address, &second.address]);
    let begun = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let clients = scope.spawn(|| ask_on_and_on(&proxy.address, &requests, 8, 150, &begun));
        wait_for(&begun, 300);
        let scored = get(&first.address, "/metrics").1;
        let scored =
            scored.lines().find_map(|line| line.strip_prefix("corver_completions_total ")).unwrap();
        assert!(scored.parse::<usize>().unwrap() > 64, "it has its share: {scored}");
        assert!(!first.signal("-KILL").success());
        assert_eq!(clients.join().unwrap(), 8 * 150);
    });
}
