//! Text of other servers: a key that it quotes is passed on nowhere, and its length is bounded.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::host::{Finished, OTHER_INDEX, Server, host, host_with_token, run_dir, short_run_args};
use crate::served::{Request, Response, Server as Endpoint};
use serde_json::{Value, json};

const KEY: &str = "sk-0123/456789+abcdef=";

/// Starts a server of counts and chats that refuses every POST request with this status, and quotes
/// the key that it was sent in each way that JSON has.
fn echo(status: u16) -> Endpoint {
    Endpoint::new(move |request: &Request| {
        let header = request.head.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("authorization").then(|| value.to_owned())
        });
        let header = header.unwrap_or_else(|| "no key".to_owned());
        let escaped = header.replace('/', "\\/").replace("sk", "\\u0073k");
        let error =
            format!("the key is wrong: {header} {escaped}\\u001b[2J {}", "x".repeat(100_000));
        let body = format!(r#"{{"error": {{"message": "{error}", "code": "{header}"}}}}"#);
        let status = if request.method() == "GET" { 404 } else { status };
        Response::Answer(status, "", body)
    })
}

/// Checks that a text quotes the server, and neither its key nor all of its message.
fn check_text(text: &str) {
    assert!(text.contains("the key is wrong: Bearer [redacted] Bearer [redacted]"), "{text}");
    assert!(!text.contains(KEY) && !text.contains("456789"), "{text}");
    assert!(!text.contains(&"x".repeat(1_000)) && !text.contains('\x1b'), "{text}");
}

fn check_output(finished: &Finished) {
    assert_ne!(finished.code, Some(0), "{finished}");
    check_text(&finished.stderr);
    assert!(!finished.stdout.contains(KEY), "{finished}");
}

/// Checks that no file of a folder has the key.
fn check_folder(folder: &Path) {
    let key = KEY.as_bytes();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            check_folder(&path);
        } else {
            let bytes = fs::read(&path).unwrap();
            assert!(!bytes.windows(key.len()).any(|part| part == key), "{}", path.display());
        }
    }
}

/// Writes completions with facts of the demo's world, and their question.
fn completions(folder: &Path) -> Vec<Value> {
    let world = folder.join("world");
    host(&["demo", "world", world.to_str().unwrap()]).good();
    let article: Value = serde_json::from_str(
        fs::read_to_string(world.join("articles.jsonl")).unwrap().lines().next().unwrap(),
    )
    .unwrap();
    let text = article["text"].as_str().unwrap();
    vec![json!({"question": "What?", "answers": ["x"], "completion": text})]
}

#[test]
fn echoed_key_of_count_server_is_passed_on_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let given = completions(folder.path());
    let file = folder.path().join("completions.jsonl");
    fs::write(&file, format!("{}\n", given[0])).unwrap();
    let key_file = folder.path().join("key");
    fs::write(&key_file, KEY).unwrap();
    let key_file = format!("corpus.remote.token_file={}", key_file.display());
    for status in [400, 503] {
        let endpoint = echo(status);
        let index = format!("corpus.index=[\"{}/#wiki\"]", endpoint.url);
        let remote =
            [&OTHER_INDEX[..], &["--set", &index, "--set", "corpus.remote.retry_timeout_s=0.001"]]
                .concat();
        let file = file.to_str().unwrap();
        check_output(&host_with_token(KEY, &[&["score", file][..], &remote[..]].concat()));

        let out = run_dir(&format!("echoed-{status}"));
        check_output(&host_with_token(KEY, &short_run_args(&out, "1", &remote)));
        check_folder(&out);

        let serve = ["serve", "--json", "--listen", "127.0.0.1:0", "--set", &key_file];
        let mut server = Server::run(&[&serve[..], &remote[..]].concat());
        let (status, reply) = post(&server.address, "/v1/score", &json!({"completions": given}));
        assert_eq!(status, 500, "{reply}");
        check_text(&reply.to_string());
        server.signal("-INT");
        check_text(&server.end().1);
    }
}

#[test]
fn echoed_key_of_chat_endpoint_is_passed_on_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let given = completions(folder.path());
    let key_file = folder.path().join("key");
    fs::write(&key_file, KEY).unwrap();
    let key_file = format!("backends.chat.key_file={}", key_file.display());
    for status in [401, 500] {
        let endpoint = echo(status);
        let address = format!("backends.chat.endpoint={}/v1", endpoint.url);
        let mut args = vec!["serve", "--json", "--listen", "127.0.0.1:0", "--config", "demo"];
        args.extend(["--judge", "knowrl"]);
        for set in [
            &key_file,
            &address,
            "backends.chat.model=m",
            "backends.chat.retry_timeout_s=0.001",
            "backends.nli.model=demo",
            "backends.passages.index=demo",
        ] {
            args.extend(["--set", set]);
        }
        let mut server = Server::run(&args);
        let (status, reply) = post(&server.address, "/v1/score", &json!({"completions": given}));
        assert_eq!(status, 500, "{reply}");
        check_text(&reply.to_string());
        server.signal("-INT");
        check_text(&server.end().1);
    }
}

fn post(address: &str, path: &str, body: &Value) -> (u16, Value) {
    use std::io::{Read, Write};

    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let body = body.to_string();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap())
}
