//! What a good client feels while others attack the server. `make attack` shows it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use corver_core::{Counter, Query};
use corver_corpus::{BuildOptions, CnfOptions, Corpus, Tokenizer, build_from_documents};
use corver_counts::{Limits, Remote, RemoteSettings, Server, Token};
use socket2::{Domain, Socket, Type};

const WORDS: &str = r#"{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":null,
    "pre_tokenizer":{"type":"Whitespace"},"post_processor":null,"decoder":null,"model":{"type":"WordLevel",
    "vocab":{"[UNK]":0,"red":1,"fox":2,"den":3},"unk_token":"[UNK]"}}"#;
const QUERY: &str = r#"{"index": "wiki", "query_type": "count", "query": "red AND fox"}"#;
/// All connections from 127.0.0.2 alone, more than the server has places for one address.
const ATTACKERS: usize = 400;

struct Running {
    address: SocketAddr,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    _folder: tempfile::TempDir,
}

impl Running {
    fn new(token: Option<Token>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index");
        let tokenizer = Tokenizer::from_bytes(WORDS).unwrap();
        build_from_documents(["red fox", "fox den", "red fox den"], &tokenizer, &path, &BuildOptions::default())
            .unwrap();
        // Fewer places than attackers; the proportions are those of the defaults.
        let limits = Limits { connections: 256, connections_per_peer: 32, ..Limits::default() };
        let corpus = Corpus::open(&path).unwrap();
        let server = Server::bind(corpus, "wiki", "127.0.0.1:0".parse().unwrap(), limits, token).unwrap();
        let address = server.address();
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let thread = std::thread::spawn(move || server.run(async { stopped.await.unwrap_or_default() }).unwrap());
        Self { address, stop: Some(stop), thread: Some(thread), _folder: folder }
    }

    fn remote(&self, token_file: Option<&Path>) -> Remote {
        let settings = RemoteSettings {
            patience_s: 1.0,
            token_file: token_file.map(Path::to_owned),
            cache: false,
            ..RemoteSettings::default()
        };
        Remote::open(&format!("http://{}/", self.address), "wiki", CnfOptions::default(), &settings, None).unwrap()
    }

    /// The time that 99 of 100 requests of a good client stay below.
    fn p99(&self, what: &str) -> Duration {
        let mut remote = self.remote(None);
        let mut times: Vec<Duration> = (0..300)
            .map(|_| {
                let start = Instant::now();
                let counts = remote.count(&[Query::new([["red"], ["fox"]])]).unwrap();
                assert_eq!(counts[0].occurrences, Some(1), "{what}");
                start.elapsed()
            })
            .collect();
        times.sort();
        let p99 = times[times.len() * 99 / 100];
        eprintln!("| server, {what} | a good client's p99 is {:.1} ms |", p99.as_secs_f64() * 1e3);
        p99
    }

    fn stop(&mut self) {
        let _ = self.stop.take().map(|stop| stop.send(()));
        self.thread.take().into_iter().for_each(|thread| thread.join().unwrap());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A connection from 127.0.0.2; none where the server does not take it in time.
fn attacker(server: SocketAddr) -> Option<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&"127.0.0.2:0".parse::<SocketAddr>().unwrap().into()).unwrap();
    socket.connect_timeout(&server.into(), Duration::from_millis(200)).ok()?;
    socket.set_nonblocking(true).unwrap();
    Some(socket)
}

fn post(body: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// How the good client fares while every attacker sends what `next` gives it, again and again.
fn under_attack(what: &str, next: impl Fn(usize) -> String + Sync) {
    let server = Running::new(None);
    let quiet = server.p99("no attack");
    let over = AtomicBool::new(false);
    let attacked = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut round = 0;
            let mut sockets: Vec<Socket> = Vec::new();
            while !over.load(Relaxed) {
                while sockets.len() < ATTACKERS
                    && let Some(socket) = attacker(server.address)
                {
                    sockets.push(socket);
                }
                let text = next(round);
                // One that was closed comes back.
                let open = |socket: &Socket| match socket.send(text.as_bytes()) {
                    Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
                    Ok(_) => true,
                };
                sockets.retain(open);
                round += 1;
            }
        });
        std::thread::sleep(Duration::from_secs(1)); // the attack has begun
        let attacked = server.p99(what);
        over.store(true, Relaxed);
        attacked
    });
    assert!(attacked < quiet + Duration::from_secs(1), "{what}: {attacked:?}, without {quiet:?}");
}

#[test]
fn clients_that_send_and_never_read_do_not_block_others() {
    under_attack("400 clients that send and never read", |_| post(QUERY).repeat(50));
}

#[test]
fn slow_clients_do_not_block_others() {
    let request = post(QUERY);
    under_attack("400 slow clients", |round| {
        std::thread::sleep(Duration::from_millis(10));
        request.as_bytes().get(round % 20).map(|&byte| char::from(byte).to_string()).unwrap_or_default()
    });
}

/// A request that never ends, a connection that says nothing.
#[test]
fn clients_that_take_too_long_are_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    let tokenizer = Tokenizer::from_bytes(WORDS).unwrap();
    build_from_documents(["red fox"], &tokenizer, &path, &BuildOptions::default()).unwrap();
    let limits = Limits { transfer: Duration::from_millis(300), ..Limits::default() };
    let server =
        Server::bind(Corpus::open(&path).unwrap(), "wiki", "127.0.0.1:0".parse().unwrap(), limits, None).unwrap();
    let address = server.address();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let thread = std::thread::spawn(move || server.run(async { stopped.await.unwrap_or_default() }).unwrap());
    // One that sends requests and reads nothing: what it has sent is answered until its own buffers are full.
    let mut deaf = TcpStream::connect(address).unwrap();
    deaf.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    let started = Instant::now();
    let requests = post(QUERY).repeat(1_000);
    let cut_off = loop {
        match deaf.write_all(requests.as_bytes()) {
            Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => break true,
            _ if started.elapsed() > Duration::from_secs(20) => break false,
            _ => {}
        }
    };
    assert!(cut_off, "it still holds its place after 20 s");
    let mut silent = TcpStream::connect(address).unwrap();
    silent.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    assert_eq!(silent.read(&mut [0; 1]).unwrap(), 0, "the server has closed it");
    let _ = stop.send(());
    thread.join().unwrap();
}

#[test]
fn a_server_that_is_told_to_end_answers_what_it_was_asked() {
    const CLIENTS: usize = 30; // of the 32 that one address may have
    let mut server = Running::new(None);
    let mut clients: Vec<TcpStream> = (0..CLIENTS).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    for client in &mut clients {
        client.write_all(post(QUERY).as_bytes()).unwrap();
    }
    server.stop();
    let answered = clients.iter_mut().filter_map(|client| {
        let mut answer = String::new();
        client.read_to_string(&mut answer).ok().filter(|_| answer.starts_with("HTTP/1.1 200"))
    });
    let answered = answered.count();
    eprintln!("| server told to end | {answered} of {CLIENTS} requests under way are answered |");
    assert_eq!(answered, CLIENTS);
}

#[test]
fn a_server_with_a_token_answers_those_who_have_it() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let [good, wrong, short] =
        [("good", "correct-horse-battery\n"), ("wrong", "correct-horse-batterx\n"), ("short", "x\n")]
            .map(|(name, text)| write(name, text));
    let server = Running::new(Some(Token::read(&good).unwrap()));
    let ask = |token: Option<&Path>| server.remote(token).count(&[Query::new([["red"], ["fox"]])]);
    assert_eq!(ask(Some(&good)).unwrap()[0].occurrences, Some(1));
    for token in [None, Some(&*wrong)] {
        let error = ask(token).unwrap_err().to_string();
        assert!(error.contains("this server answers those who have its token"), "{error}");
        assert!(!error.contains("horse"), "{error}");
    }
    let error = Token::read(&short).unwrap_err().to_string();
    assert!(error.contains("short holds no token"), "{error}");
    assert!(!format!("{:?}", Token::read(&good)).contains("horse"));
}
