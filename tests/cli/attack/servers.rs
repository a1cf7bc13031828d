//! Requests that cost a server more than they cost the client.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::json;

use super::print_row;
use crate::host::{Cost, Server, host_with_token, small_index};
use crate::serve::{ask, get, start};
use crate::served;

/// Longest wait of a good client during an attack.
const GOOD_CLIENT: Duration = Duration::from_secs(2);

/// Sends a request whose body lacks its last byte, and returns the open connection.
fn half_sent(address: &str, path: &str, length: usize) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_write_timeout(Some(GOOD_CLIENT)).unwrap();
    let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n");
    // The server may answer or close before it has read everything.
    let _ = stream.write_all(head.as_bytes());
    let _ = stream.write_all(&vec![b' '; length - 1]);
    stream
}

/// Sends a complete request, and returns the answer.
fn post(address: &str, path: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let _ = stream.write_all(&[head.as_bytes(), body.as_bytes()].concat());
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

#[test]
fn many_sentences_are_refused_before_they_are_scored() {
    let server = start(&[]);
    let start = Instant::now();
    let completion =
        json!({"question": "Who?", "answers": ["x"], "completion": "x<think>".repeat(16_000)});
    let (status, reply) = ask(&server.address, "/v1/score", &json!({"completions": [completion]}));
    let cost = Cost { time: start.elapsed(), peak_mib: server.peak_mib() };
    assert_eq!(status, 413, "{reply}");
    assert!(cost.time < GOOD_CLIENT, "{:?}", cost.time);
    print_row(
        "limit on other things than the work",
        "a completion of 16,000 opening tags",
        "512 sentences",
        &cost,
        "413",
    );
}

#[test]
fn millions_of_queries_do_not_silence_health() {
    let server = start(&[]);
    let address = &server.address;
    let body = format!("{{\"query\": [{}\"\"]}}", "\"\",".repeat(2_700_000));
    let start = Instant::now();
    let mut longest = Duration::ZERO;
    std::thread::scope(|scope| {
        let attackers: Vec<_> =
            (0..4).map(|_| scope.spawn(|| post(address, "/get_reward", &body))).collect();
        while !attackers.iter().all(|attacker| attacker.is_finished()) {
            let before = Instant::now();
            assert_eq!(get(address, "/health").0, 200);
            longest = longest.max(before.elapsed());
        }
        for attacker in attackers {
            let answer = attacker.join().unwrap();
            // The server may close before the attacker reads its answer.
            let is_refused = answer.is_empty() || answer.starts_with("HTTP/1.1 413");
            assert!(is_refused && answer.len() < 2_000, "{answer}");
        }
    });
    let cost = Cost { time: start.elapsed(), peak_mib: server.peak_mib() };
    assert!(longest < GOOD_CLIENT, "{longest:?}");
    assert!(cost.peak_mib < 500, "{} MiB", cost.peak_mib);
    print_row(
        "bound after the work",
        "four requests with 2.7 million queries each",
        "`--max-batch`, before queries are read",
        &cost,
        &format!("413; `/health` within {:.2} s", longest.as_secs_f64()),
    );
}

#[test]
fn half_sent_bodies_do_not_exclude_good_client() {
    let server = start(&[]);
    let folder = tempfile::tempdir().unwrap();
    let index = folder.path().join("index");
    small_index(&index);
    let counting = Server::start(&["--index", index.to_str().unwrap()], "127.0.0.1:0");
    let score = json!({"completions": [{"question": "Who?", "answers": ["x"], "completion": "x"}]});
    let count = json!({
        "index": "index", "query_type": "count", "query": "Paris AND France", "max_diff_tokens": 1_000
    });
    for (server, path, attackers, length, request) in
        [(&server, "/v1/score", 8, 8 << 20, &score), (&counting, "/", 65, 1 << 20, &count)]
    {
        let open: Vec<TcpStream> =
            (0..attackers).map(|_| half_sent(&server.address, path, length)).collect();
        std::thread::sleep(Duration::from_secs(1)); // the server reads what has arrived
        let start = Instant::now();
        let (status, reply) = ask(&server.address, path, request);
        let cost = Cost { time: start.elapsed(), peak_mib: server.peak_mib() };
        assert_eq!(status, 200, "{reply}");
        assert!(cost.time < GOOD_CLIENT, "{:?}", cost.time);
        drop(open);
        print_row(
            "budget without a share per peer",
            &format!("{attackers} half-sent bodies of {} MiB", length >> 20),
            "half-sent bodies give way",
            &cost,
            "a good client is answered",
        );
    }
}

#[test]
fn key_that_an_endpoint_echoes_is_not_passed_on() {
    const KEY: &str = "0f1e2d3c4b5a69788796a5b4c3d2e1f0";
    let server = served::Server::new(|request| {
        let message = format!("refused: {} {}", request.head, "x".repeat(1 << 20));
        served::Response::Answer(400, "", json!({"error": message}).to_string())
    });
    let url = format!("{}#index", server.url);
    let start = Instant::now();
    let finished = host_with_token(KEY, &["index", "count", "Paris", "--index", &url]).found(1);
    let cost = Cost { time: start.elapsed(), peak_mib: 0 };
    assert!(!finished.stderr.contains(KEY) && !finished.stdout.contains(KEY), "{finished}");
    let error = finished.stderr.lines().last().unwrap();
    assert!(error.len() < 10_000, "{} bytes", error.len());
    print_row(
        "foreign text passed on",
        "a count server that echoes the key and 1 MiB",
        "keys are redacted, messages are cut",
        &cost,
        "the key appears nowhere",
    );
}
