//! The server under attack: what a good client still gets. `--nocapture` prints the figures.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use corver_core::Query;
use corver_corpus::{BuildOptions, CnfOptions, TextIndex, Tokenizer, build_from_documents};
use corver_counts::{Remote, RemoteSettings};
use corver_serve::{CountLimits, HttpServer, Metrics, ServerLimits, count_routes};
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::net::TcpSocket;
use tokio::runtime::Runtime;
use tokio::time::sleep;

const WORDS: &str = r#"{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":null,
    "pre_tokenizer":{"type":"Whitespace"},"post_processor":null,"decoder":null,"model":{"type":"WordLevel",
    "vocab":{"[UNK]":0,"red":1,"fox":2,"den":3,"hen":4},"unk_token":"[UNK]"}}"#;

const ATTACKERS: usize = 1_100;
/// How long each attack lasts.
const LASTS: Duration = Duration::from_secs(3);
/// What a good client's requests may take: 99 of 100 where the attackers have another address, half
/// of them where they have its own. There its connection may give way to one of theirs, and it asks
/// again after waits that grow.
const BOUND: Duration = Duration::from_millis(500);

const QUICK: &str = r#"{"index":"wiki","query_type":"count","query":"red fox"}"#;

/// Takes a processor for some time.
fn costly() -> String {
    let query = ["red AND fox AND den AND hen"; 8].join(" AND ");
    format!(
        r#"{{"index":"wiki","query_type":"count","query":"{query}","mode":"exact","max_clause_freq":5000000,"max_diff_tokens":9}}"#
    )
}

fn post(body: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

fn serve(limits: ServerLimits) -> Running {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    let tokenizer = Tokenizer::from_bytes(WORDS).unwrap();
    let document = "red fox den hen ".repeat(2_500);
    build_from_documents([document.as_str(); 40], &tokenizer, &path, &BuildOptions::default())
        .unwrap();
    let corpus = TextIndex::open(&path).unwrap();
    let mut server =
        HttpServer::bind("127.0.0.1:0".parse().unwrap(), limits, None, Metrics::default()).unwrap();
    server.add_routes(count_routes(corpus, "wiki", CountLimits::default()));
    let address = server.address();
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let thread =
        std::thread::spawn(move || server.run(async { stopped.await.unwrap_or_default() }));
    Running { address, stop, thread, _folder: folder }
}

struct Running {
    address: SocketAddr,
    stop: tokio::sync::oneshot::Sender<()>,
    thread: std::thread::JoinHandle<()>,
    _folder: tempfile::TempDir,
}

/// What each of many clients does, again and again.
#[derive(Debug, Clone, Copy)]
enum Attack {
    /// Sends requests and reads no answer.
    NeverReads,
    /// Sends a request, a byte every 50 ms.
    SendsSlowly,
    /// Connects, and says nothing.
    Connects,
}

async fn attack(attack: Attack, from: IpAddr, server: SocketAddr) {
    loop {
        let _ = attack_once(attack, from, server).await; // until the server ends it
        sleep(Duration::from_millis(500)).await;
    }
}

async fn attack_once(attack: Attack, from: IpAddr, server: SocketAddr) -> std::io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((from, 0).into())?;
    let stream = socket.connect(server).await?;
    let request = post(QUICK);
    let step = if let Attack::SendsSlowly = attack { 1 } else { request.len() };
    for part in request.as_bytes().chunks(step).cycle() {
        match attack {
            Attack::NeverReads => stream.writable().await?,
            Attack::SendsSlowly => sleep(Duration::from_millis(50)).await,
            Attack::Connects => {
                stream.readable().await?;
                return Ok(());
            }
        }
        match stream.try_write(part) {
            Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// How long a good client's requests take, sorted.
fn good_client(server: SocketAddr) -> Vec<Duration> {
    let settings = RemoteSettings { connections: 1, cache: false, ..RemoteSettings::default() };
    let url = format!("http://{server}/");
    let remote = Remote::open(&url, "wiki", CnfOptions::default(), &settings, None).unwrap();
    let query = Query::new([["red fox"]]);
    let (start, mut took) = (Instant::now(), Vec::new());
    while start.elapsed() < LASTS {
        let start = Instant::now();
        assert_eq!(remote.count_words(&query.all_of).unwrap().unwrap().count, 100_000);
        took.push(start.elapsed());
        std::thread::sleep(Duration::from_millis(5));
    }
    took.sort_unstable();
    took
}

#[test]
fn well_behaved_client_is_served_under_attack() {
    let mut files = getrlimit(Resource::Nofile);
    files.current = files.maximum; // both ends of every connection are in this process
    setrlimit(Resource::Nofile, files).unwrap();

    let server = serve(ServerLimits::default());
    let report = |what: &str, bounded: f64, took: &[Duration]| {
        let share =
            |share: f64| took[((took.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
        eprintln!(
            "| server, {what} | {} requests of a good client: p50 {:.1} ms, p99 {:.1} ms, at most {:.0} ms |",
            took.len(),
            share(0.5),
            share(0.99),
            share(1.0)
        );
        assert!(share(bounded) < BOUND.as_secs_f64() * 1e3, "{what}");
    };
    report("no attack", 0.99, &good_client(server.address));
    for how in [Attack::NeverReads, Attack::SendsSlowly, Attack::Connects] {
        for (whence, from, bounded) in
            [("another address", [127, 0, 0, 2], 0.99), ("its own address", [127, 0, 0, 1], 0.5)]
        {
            let attackers = Runtime::new().unwrap();
            let from = IpAddr::V4(Ipv4Addr::from(from));
            for _ in 0..ATTACKERS {
                attackers.spawn(attack(how, from, server.address));
            }
            std::thread::sleep(Duration::from_millis(500)); // until they are connected
            report(
                &format!("{ATTACKERS} clients of {whence}: {how:?}"),
                bounded,
                &good_client(server.address),
            );
            attackers.shutdown_background();
        }
    }
    server.stop.send(()).unwrap();
    server.thread.join().unwrap();
}

/// Status of the answer to a request that was sent; `None` where the connection ended without one.
fn status(mut stream: TcpStream) -> Option<u16> {
    let mut answer = Vec::new();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.read_to_end(&mut answer).ok()?;
    let answer = String::from_utf8(answer).unwrap();
    assert!(
        answer.is_empty() || answer.to_ascii_lowercase().contains("connection: close"),
        "{answer}"
    );
    answer.split(' ').nth(1)?.parse().ok()
}

#[test]
fn shutdown_answers_requests_in_flight() {
    for (grace, all_counted) in
        [(Duration::from_secs(30), true), (Duration::from_millis(300), false)]
    {
        let server = serve(ServerLimits { grace, ..ServerLimits::default() });
        let clients: Vec<TcpStream> = (0..40)
            .map(|_| {
                let mut stream = TcpStream::connect(server.address).unwrap();
                stream.write_all(post(&costly()).as_bytes()).unwrap();
                stream
            })
            .collect();
        let start = Instant::now();
        server.stop.send(()).unwrap();
        let answers: Vec<_> = clients.into_iter().map(status).collect();
        server.thread.join().unwrap();
        let took = start.elapsed();
        let num = |wanted| answers.iter().filter(|&&status| status == wanted).count();
        eprintln!(
            "| server stopped with 40 requests under way, {grace:?} of grace | {} counted, {} told to come back, {} lost, after {took:.1?} |",
            num(Some(200)),
            num(Some(503)),
            num(None)
        );
        assert_eq!(num(Some(200)) + num(Some(503)), 40, "{answers:?}");
        assert_eq!(num(Some(200)) == 40, all_counted);
        assert!(took < grace + Duration::from_secs(3), "{took:?}");
    }
}
