//! Sends the input to a server of counts, as it is or as the body of a request: the server answers
//! or closes, and then answers a good request.
#![no_main]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::LazyLock;
use std::time::Duration;

use corver_corpus::{BuildOptions, TextIndex, Tokenizer, build_from_documents};
use corver_serve::{CountLimits, HttpServer, Metrics, ServerLimits, count_routes};
use libfuzzer_sys::fuzz_target;

const TOKENIZER: &str = r#"{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":null,
    "pre_tokenizer":{"type":"Whitespace"},"post_processor":null,"decoder":null,"model":{"type":"WordLevel",
    "vocab":{"[UNK]":0,"a":1,"b":2,"c":3},"unk_token":"[UNK]"}}"#;
const GOOD: &str = r#"{"index": "small", "query_type": "count", "query": "a AND b"}"#;

static ADDRESS: LazyLock<SocketAddr> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("there is a folder for temporary files").keep();
    let path = folder.join("index");
    let tokenizer = Tokenizer::from_bytes(TOKENIZER).expect("it is a tokenizer");
    build_from_documents(["a b c a b", "c b a"], &tokenizer, &path, &BuildOptions::default())
        .expect("it can be indexed");
    let time = Duration::from_millis(200);
    let corpus = TextIndex::open(&path).expect("it was built");
    let limits = ServerLimits { time, ..ServerLimits::default() };
    let mut server = HttpServer::bind(
        "127.0.0.1:0".parse().expect("an address"),
        limits,
        None,
        Metrics::default(),
    )
    .expect("it is free");
    server.add_routes(count_routes(
        corpus,
        "small",
        CountLimits { time, ..CountLimits::default() },
    ));
    let address = server.address();
    std::thread::spawn(|| server.run(std::future::pending()));
    address
});

/// Returns the server's reply. A client that closes its side afterwards may get none.
fn send(request: &[u8], hangs_up: bool) -> String {
    let mut stream = TcpStream::connect(*ADDRESS).expect("the server listens");
    stream.set_read_timeout(Some(Duration::from_secs(5))).expect("it is not 0");
    // The server may close before it has read everything; its reply may then be lost.
    let _ = stream.write_all(request);
    if hangs_up {
        let _ = stream.shutdown(Shutdown::Write);
    }
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
            panic!("no answer within 5 s")
        }
        _ => String::from_utf8_lossy(&answer).into_owned(),
    }
}

fn post(body: &[u8]) -> String {
    let head = format!(
        "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    send(&[head.as_bytes(), body].concat(), false)
}

fuzz_target!(|input: (bool, &[u8])| {
    let (whole, bytes) = input;
    let answer = if whole { send(bytes, true) } else { post(bytes) };
    assert!(answer.is_empty() || answer.starts_with("HTTP/1."), "{answer:?}");
    // A busy machine may be slower than the limit once; a server that is stuck always is.
    let mut answers = (0..20).map(|_| post(GOOD.as_bytes()));
    let good =
        answers.find(|answer| !answer.starts_with("HTTP/1.1 503")).expect("one of 20 is in time");
    assert!(good.starts_with("HTTP/1.1 200") && good.contains("\"count\""), "{good:?}");
});
