//! A small HTTP server in this process, for the tests of several crates. The test decides how it
//! answers, and reads afterwards what it was sent.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A request as it has arrived.
#[derive(Clone)]
pub struct Request {
    /// Time of arrival.
    pub arrived: Instant,
    /// First line and headers.
    pub head: String,
    /// JSON body; null for a GET request.
    pub body: Value,
}

impl Request {
    /// Returns the method, such as `POST`.
    pub fn method(&self) -> &str {
        self.head.split_whitespace().next().unwrap()
    }

    /// Returns the path, such as `/v1/models`.
    pub fn route(&self) -> &str {
        self.head.split_whitespace().nth(1).unwrap()
    }
}

/// The server's reaction to one request.
#[derive(Clone)]
pub enum Response {
    /// An answer: status, further header lines (each with its `\r\n`), body.
    Answer(u16, &'static str, String),
    /// An answer of status 200 after a wait: the wait, body.
    LateAnswer(Duration, String),
    /// A closed connection, and no answer.
    CloseWithoutAnswer,
    /// A connection closed within the answer, after this part of its body.
    CloseMidAnswer(&'static str),
}

/// Responses in a fixed order; the last one repeats.
pub struct Sequence {
    responses: Vec<Response>,
    num_taken: AtomicUsize,
}

impl Sequence {
    /// Returns a sequence that starts with the first of these responses.
    pub fn new(responses: Vec<Response>) -> Self {
        Self { responses, num_taken: AtomicUsize::new(0) }
    }

    /// Returns the next response.
    pub fn next(&self) -> Response {
        let number = self.num_taken.fetch_add(1, SeqCst);
        self.responses[number.min(self.responses.len() - 1)].clone()
    }
}

/// A server on a free port of this machine. Its threads end with the test's process.
pub struct Server {
    /// Address, without a slash at its end.
    pub url: String,
    log: Arc<Log>,
}

/// The requests of a server.
#[derive(Default)]
struct Log {
    requests: Mutex<Vec<Request>>,
    in_flight: AtomicUsize,
    max_in_flight: AtomicUsize,
}

impl Log {
    /// Returns the request that is recorded. A body that is not JSON poisons the lock: from then
    /// on the server answers nothing, and the test fails.
    fn record(&self, head: String, body: &[u8]) -> Request {
        let mut requests = self.requests.lock().unwrap();
        let mut request = Request { arrived: Instant::now(), head, body: Value::Null };
        if request.method() != "GET" {
            request.body = serde_json::from_slice(body).expect("a body of JSON");
        }
        requests.push(request.clone());
        request
    }
}

impl Server {
    /// Starts a server that responds as the script says. Each connection has a thread of its own,
    /// on which the script runs: it may sleep.
    pub fn new(script: impl Fn(&Request) -> Response + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let log = Arc::<Log>::default();
        let script = Arc::new(script);
        let server = Self { url, log: log.clone() };
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let log = log.clone();
                let script = script.clone();
                std::thread::spawn(move || serve(stream.unwrap(), &*script, &log));
            }
        });
        server
    }

    /// Starts a server that gives these responses in their order; the last one repeats.
    pub fn with_responses(responses: Vec<Response>) -> Self {
        let sequence = Sequence::new(responses);
        Self::new(move |_| sequence.next())
    }

    /// Returns all requests so far, in the order of their arrival.
    pub fn requests(&self) -> Vec<Request> {
        self.log.requests.lock().unwrap().clone()
    }

    /// Returns the number of requests so far.
    pub fn num_requests(&self) -> usize {
        self.log.requests.lock().unwrap().len()
    }

    /// Returns the bodies of the requests to this route, in the order of their arrival.
    pub fn bodies(&self, route: &str) -> Vec<Value> {
        let requests = self.requests().into_iter();
        requests.filter(|request| request.route() == route).map(|request| request.body).collect()
    }

    /// Returns the highest number of requests that waited for their answers at one time.
    pub fn max_in_flight(&self) -> usize {
        self.log.max_in_flight.load(SeqCst)
    }
}

/// Answers the requests of one connection until one side closes it.
fn serve(mut stream: TcpStream, script: &dyn Fn(&Request) -> Response, log: &Log) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    while let Some((head, body)) = next_request(&mut reader) {
        log.max_in_flight.fetch_max(log.in_flight.fetch_add(1, SeqCst) + 1, SeqCst);
        let request = log.record(head, &body);
        let response = script(&request);
        if let Response::LateAnswer(wait, _) = &response {
            std::thread::sleep(*wait);
        }
        log.in_flight.fetch_sub(1, SeqCst);
        let (text, closes) = match response {
            Response::Answer(status, headers, body) => {
                (answer(status, headers, body.len(), &body), false)
            }
            Response::LateAnswer(_, body) => (answer(200, "", body.len(), &body), false),
            Response::CloseWithoutAnswer => (String::new(), true),
            Response::CloseMidAnswer(part) => (answer(200, "", part.len() + 100, part), true),
        };
        // The client may be gone.
        if stream.write_all(text.as_bytes()).is_err() || closes {
            return;
        }
    }
}

/// Returns an answer as it is written. Its headers promise a body of `length` bytes.
fn answer(status: u16, headers: &str, length: usize, body: &str) -> String {
    format!("HTTP/1.1 {status} X\r\n{headers}content-length: {length}\r\n\r\n{body}")
}

/// Returns head and body of the next request of a connection; `None` if the client has closed
/// it.
fn next_request(reader: &mut impl BufRead) -> Option<(String, Vec<u8>)> {
    let mut length = 0;
    let mut head = String::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return None;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line == "\r\n" {
            break;
        }
        head.push_str(&line);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    Some((head, body))
}
