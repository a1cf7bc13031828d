//! The server apart from its replies: monitoring, memory, and a client that finds all connections taken.

mod http;

use std::io::Write;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use corver_serve::{Health, HttpError, HttpReply, HttpServer, Metrics, Route, ServerLimits};
use http::{Running, post, read_answer};

/// A server with one route, `POST /slow`. It says when an answer is begun, and ends it with a word
/// from the test.
fn slow(limits: ServerLimits) -> (Running, mpsc::Receiver<()>, mpsc::Sender<()>) {
    let (begin, begun) = mpsc::channel();
    let (word, words) = mpsc::channel();
    let words = Arc::new(Mutex::new(words));
    let wait = move |_| {
        let (begin, words) = (begin.clone(), words.clone());
        async move {
            let wait = move || {
                begin.send(()).map_err(|_| HttpError::internal("the test is over"))?;
                words.lock().unwrap().recv().map_err(|_| HttpError::internal("the test is over"))
            };
            tokio::task::spawn_blocking(wait).await.unwrap().map(|()| HttpReply::json(&"done"))
        }
    };
    let mut server =
        HttpServer::bind("127.0.0.1:0".parse().unwrap(), limits, None, Metrics::default()).unwrap();
    server.add_routes([Route::post("/slow", 1_000, wait)]);
    (Running::new(server), begun, word)
}

/// Until the server says so, by its metrics.
fn wait_for(server: &Running, line: &str) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !server.get("/metrics").body.contains(line) {
        assert!(Instant::now() < deadline, "{line} is not in {}", server.get("/metrics").body);
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn excess_connection_gets_retry_after() {
    let (server, begun, word) = slow(ServerLimits { connections: 2, ..ServerLimits::default() });
    let mut at_work = [server.connect(), server.connect()];
    for stream in &mut at_work {
        stream.write_all(post("/slow", "{}").as_bytes()).unwrap();
        begun.recv().unwrap();
    }
    for body in ["{}".to_owned(), "x".repeat(900_000)] {
        let answer = server.post("/slow", &body);
        assert_eq!(answer.status, 503);
        assert!(
            answer.head.contains("retry-after: 1") && answer.head.contains("connection: close"),
            "{answer:?}"
        );
        assert!(answer.error().contains("connections of this server are in use"), "{answer:?}");
    }
    // Monitors are answered all the same.
    assert_eq!((server.get("/health").status, server.get("/ready").status), (200, 200));
    for _ in 0..2 {
        word.send(()).unwrap();
    }
    assert!(at_work.iter_mut().all(|stream| read_answer(stream).status == 200));
    assert!(
        server
            .get("/metrics")
            .body
            .contains(r#"corver_requests_total{route="/slow",status="503"} 2"#)
    );
}

#[test]
fn total_request_memory_is_limited() {
    let (server, begun, word) =
        slow(ServerLimits { request_bytes: 1_500, ..ServerLimits::default() });
    let body = "x".repeat(1_000);
    let mut first = server.connect();
    first.write_all(post("/slow", &body).as_bytes()).unwrap();
    begun.recv().unwrap();
    let refused = server.post("/slow", &body);
    assert_eq!(
        (refused.status, refused.error().as_str()),
        (503, "too many requests are being answered")
    );
    word.send(()).unwrap();
    assert_eq!(read_answer(&mut first).status, 200);
    word.send(()).unwrap();
    assert_eq!(
        server.post("/slow", &body).status,
        200,
        "what was answered has given its memory back"
    );
    // A length that is not announced is bounded too.
    let chunked = format!(
        "POST /slow HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}x\r\n0\r\n\r\n",
        1_001
    );
    assert_eq!(server.exchange(&chunked).status, 413);
    assert_eq!(server.post("/slow", &"x".repeat(1_001)).status, 413);
}

#[test]
fn health_and_metrics_report_server_state() {
    let mut server = HttpServer::bind(
        "127.0.0.1:0".parse().unwrap(),
        ServerLimits::default(),
        None,
        Metrics::default(),
    )
    .unwrap();
    let health = Arc::new(Mutex::new(Health::Ready));
    let reported = health.clone();
    server.set_health(move || *reported.lock().unwrap());
    let server = Running::new(server);
    for (state, alive, ready) in [
        (Health::Ready, 200, 200),
        (Health::Busy("full"), 200, 503),
        (Health::Broken("worn out"), 500, 500),
    ] {
        *health.lock().unwrap() = state;
        assert_eq!(
            (server.get("/health").status, server.get("/ready").status),
            (alive, ready),
            "{state:?}"
        );
    }
    let metrics = server.get("/metrics");
    assert!(
        metrics.head.contains("content-type: application/openmetrics-text; version=1.0.0"),
        "{}",
        metrics.head
    );
    for line in [
        r#"corver_requests_total{route="/ready",status="503"} 1"#,
        r#"corver_request_seconds_count{route="/health"} 3"#,
        "# TYPE corver_requests_in_flight gauge",
        "# EOF",
    ] {
        assert!(metrics.body.contains(line), "{line} is not in {}", metrics.body);
    }
    // Whatever paths are asked for, they are one name there.
    assert_eq!((server.get("/a").status, server.get("/b").status), (404, 404));
    assert!(
        server
            .get("/metrics")
            .body
            .contains(r#"corver_requests_total{route="other",status="404"} 2"#)
    );
}

#[test]
fn disconnected_client_request_is_dropped() {
    let (server, begun, _word) = slow(ServerLimits::default());
    let mut leaves = server.connect();
    leaves.write_all(post("/slow", "{}").as_bytes()).unwrap();
    begun.recv().unwrap();
    drop(leaves);
    wait_for(&server, r#"corver_requests_total{route="/slow",status="499"} 1"#);
}
