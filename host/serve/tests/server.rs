//! The server apart from its replies: monitoring, memory, and a client that finds all connections taken.

mod http;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use corver_serve::{Health, HttpError, HttpReply, HttpServer, Metrics, Route, ServerLimits};
use http::{Running, post, read_answer};
use tokio::net::TcpSocket;

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

/// A server with one route, `POST /`, for bodies of at most `body_bytes`.
fn bounded(body_bytes: usize, limits: ServerLimits) -> Running {
    let mut server =
        HttpServer::bind("127.0.0.1:0".parse().unwrap(), limits, None, Metrics::default()).unwrap();
    server.add_routes([Route::post("/", body_bytes, |_| async { Ok(HttpReply::json(&"done")) })]);
    Running::new(server)
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
fn pipelining_client_gives_way() {
    let (server, begun, word) = slow(ServerLimits { connections: 2, ..ServerLimits::default() });
    let mut waits = server.connect();
    waits.write_all(post("/slow", "{}").as_bytes()).unwrap();
    begun.recv().unwrap();
    word.send(()).unwrap();
    assert_eq!(read_answer(&mut waits).status, 200);
    let mut pipelines = server.connect();
    pipelines.write_all(post("/slow", "{}").repeat(2).as_bytes()).unwrap();
    begun.recv().unwrap();
    word.send(()).unwrap();
    begun.recv().unwrap(); // the second of its requests is being answered
    waits.write_all(post("/slow", "{}").as_bytes()).unwrap();
    begun.recv().unwrap();

    let mut newcomer = server.connect();
    newcomer.write_all(post("/slow", "{}").as_bytes()).unwrap();
    begun.recv_timeout(Duration::from_secs(20)).expect("a slot is free");
    for _ in 0..3 {
        word.send(()).unwrap();
    }
    assert_eq!(read_answer(&mut waits).status, 200);
    assert_eq!(read_answer(&mut newcomer).status, 200);
    let mut rest = Vec::new();
    let _ = pipelines.read_to_end(&mut rest); // it ends, perhaps by a reset
    assert_eq!(String::from_utf8(rest).unwrap().matches("200 OK").count(), 1);
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
    // An answer arrives just before its request's memory is free.
    let start = Instant::now();
    let mut status = server.post("/slow", &body).status;
    while status == 503 && start.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(10));
        status = server.post("/slow", &body).status;
    }
    assert_eq!(status, 200, "what was answered has given its memory back");
    // A length that is not announced is bounded too.
    let chunked = format!(
        "POST /slow HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}x\r\n0\r\n\r\n",
        1_001
    );
    assert_eq!(server.exchange(&chunked).status, 413);
    assert_eq!(server.post("/slow", &"x".repeat(1_001)).status, 413);
}

#[test]
fn client_that_sends_oversized_body_reads_413() {
    let server = bounded(4 << 20, ServerLimits::default());
    // More than the system buffers: sending ends only if the server reads.
    let body = "x".repeat(16 << 20);
    let chunked = format!(
        "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
        body.len()
    );
    for request in [post("/", &body), chunked] {
        let mut stream = server.connect();
        stream.write_all(request.as_bytes()).unwrap();
        let refused = read_answer(&mut stream);
        assert_eq!(refused.status, 413);
        assert!(refused.error().contains("longer than 4194304 bytes"), "{refused:?}");
        stream.write_all(post("/", "{}").as_bytes()).unwrap();
        assert_eq!(read_answer(&mut stream).status, 200, "the connection is still usable");
    }
}

#[test]
fn client_that_waits_is_not_invited_to_send_a_refused_body() {
    let server = bounded(64 << 10, ServerLimits::default());
    let mut stream = server.connect();
    let head =
        "POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 100000\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    assert_eq!(read_answer(&mut stream).status, 413, "no 100 comes before it");
}

#[test]
fn refused_body_is_read_within_limits() {
    let limits = ServerLimits { time: Duration::from_millis(500), ..ServerLimits::default() };
    let announce =
        |length: usize| format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n");
    let hasty = bounded(64 << 10, limits);
    assert_eq!(hasty.exchange(&announce(100_000)).status, 413, "although no body arrives");

    // More than four times the limit is not waited for.
    let server = bounded(64 << 10, ServerLimits::default());
    let start = Instant::now();
    assert_eq!(server.exchange(&announce((256 << 10) + 1)).status, 413);
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());

    let mut endless = server.connect();
    endless.write_all(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
    let chunk = format!("{:x}\r\n{}\r\n", 64 << 10, "x".repeat(64 << 10));
    let num_sent = (0..1_000).take_while(|_| endless.write_all(chunk.as_bytes()).is_ok()).count();
    assert!(num_sent < 1_000, "the server reads without end");
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

/// Sends all but the last bytes of a body, until the server answers; then again.
fn send_halves(from: Ipv4Addr, server: SocketAddr, body_bytes: usize, until: Instant) {
    let request = post("/", &"x".repeat(body_bytes));
    let part = &request.as_bytes()[..request.len() - 5];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    while Instant::now() < until {
        let mut stream = runtime
            .block_on(async {
                let socket = TcpSocket::new_v4()?;
                socket.bind((from, 0).into())?;
                socket.connect(server).await?.into_std()
            })
            .unwrap();
        stream.set_nonblocking(false).unwrap();
        let left = until.saturating_duration_since(Instant::now());
        stream.set_read_timeout(Some(left.max(Duration::from_millis(1)))).unwrap();
        // The server may close the connection at any time.
        if stream.write_all(part).is_ok() {
            let _ = stream.read(&mut [0; 4096]);
        }
    }
}

/// Sends a request to the server, and again until it is answered.
fn wait_for_answer(server: SocketAddr, request: &str) {
    loop {
        let mut stream = TcpStream::connect(server).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut answer = [0; 4096];
        if stream.write_all(request.as_bytes()).is_ok()
            && let Ok(length) = stream.read(&mut answer)
            && answer[..length].starts_with(b"HTTP/1.1 200")
        {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The limits are those of `serve`, where a trainer is one address, and of `index serve`.
#[test]
fn half_sent_bodies_exclude_no_client() {
    let of_serve = ServerLimits { connections_per_peer: 512, ..ServerLimits::default() };
    for (attackers, body_bytes, limits) in
        [(8, 8 << 20, of_serve), (65, 1 << 20, ServerLimits::default())]
    {
        for from in [Ipv4Addr::new(127, 0, 0, 2), Ipv4Addr::LOCALHOST] {
            let address = "127.0.0.1:0".parse().unwrap();
            let mut server = HttpServer::bind(address, limits, None, Metrics::default()).unwrap();
            let answer = |_| async { Ok(HttpReply::json(&"done")) };
            server.add_routes([Route::post("/", body_bytes, answer)]);
            let server = Running::new(server);
            let until = Instant::now() + Duration::from_secs(3);
            let mut slowest = Duration::ZERO;
            std::thread::scope(|scope| {
                for _ in 0..attackers {
                    scope.spawn(|| send_halves(from, server.address, body_bytes, until));
                }
                std::thread::sleep(Duration::from_secs(1)); // until the memory is full
                let request = post("/", &"x".repeat(100_000));
                while Instant::now() < until {
                    let start = Instant::now();
                    wait_for_answer(server.address, &request);
                    slowest = slowest.max(start.elapsed());
                    std::thread::sleep(Duration::from_millis(20));
                }
            });
            eprintln!("{attackers} half-sent bodies of {from}: answers within {slowest:?}");
            assert!(slowest < Duration::from_secs(2), "{attackers}, {from}: {slowest:?}");
        }
    }
}

#[test]
fn dropped_body_gets_408() {
    let (server, begun, word) =
        slow(ServerLimits { request_bytes: 1_500, ..ServerLimits::default() });
    let mut half = server.connect();
    let request = post("/slow", &"x".repeat(900));
    half.write_all(&request.as_bytes()[..request.len() - 1]).unwrap();
    std::thread::sleep(Duration::from_millis(300)); // until it has arrived
    word.send(()).unwrap();
    assert_eq!(server.post("/slow", &"x".repeat(1_000)).status, 200);
    begun.recv().unwrap();
    let dropped = read_answer(&mut half);
    assert_eq!(dropped.status, 408);
    assert!(dropped.head.contains("connection: close"), "{dropped:?}");
    assert!(dropped.error().contains("send it again"), "{dropped:?}");
}
