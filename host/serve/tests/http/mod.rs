//! A server for as long as a value lives, and HTTP by hand.
#![allow(dead_code, reason = "each test uses some of it")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use corver_serve::HttpServer;
use serde_json::Value;
use tokio::sync::oneshot;

pub struct Running {
    pub address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    pub fn new(server: HttpServer) -> Self {
        let address = server.address();
        let (stop, stopped) = oneshot::channel();
        let thread =
            std::thread::spawn(move || server.run(async { stopped.await.unwrap_or_default() }));
        Self { address, stop: Some(stop), thread: Some(thread) }
    }

    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    pub fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).unwrap()
    }

    /// The answer to a request as it goes over the wire.
    pub fn exchange(&self, request: &str) -> Answer {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).unwrap();
        read_answer(&mut stream)
    }

    pub fn post(&self, path: &str, body: &str) -> Answer {
        self.exchange(&post(path, body))
    }

    pub fn get(&self, path: &str) -> Answer {
        self.exchange(&format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"))
    }

    /// Tells it to stop, and does not wait.
    pub fn tell_to_stop(&mut self) {
        let _ = self.stop.take().map(|stop| stop.send(()));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.tell_to_stop();
        self.thread.take().unwrap().join().unwrap();
    }
}

pub fn post(path: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// In lower case.
    pub head: String,
    pub body: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        assert!(self.head.contains("content-type: application/json"), "{self:?}");
        serde_json::from_str(&self.body).unwrap()
    }

    /// What went wrong, in words.
    pub fn error(&self) -> String {
        self.json()["error"].as_str().unwrap_or_else(|| panic!("{self:?}")).to_owned()
    }
}

pub fn read_answer(stream: &mut TcpStream) -> Answer {
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .unwrap()
        .parse()
        .unwrap();
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head, body: String::from_utf8(body).unwrap() }
}
