//! A server in this process that answers as the test says, and remembers what it was asked.

#[path = "../../../http/tests/served/mod.rs"]
mod served;

use std::io::{BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::Value;

use served::{Request, next_request};

/// Status and body.
pub type Answer = (u16, String);

/// From the route and the body of a request to its answer.
type Script = dyn Fn(&str, &Value) -> Answer + Send + Sync;

/// Listens on a port of this machine until the test's process ends.
pub struct Server {
    pub url: String,
    seen: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Server {
    pub fn new(script: impl Fn(&str, &Value) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (seen, script): (Arc<Mutex<_>>, Arc<Script>) = (Arc::default(), Arc::new(script));
        let server = Self { url, seen: seen.clone() };
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (seen, script) = (seen.clone(), script.clone());
                std::thread::spawn(move || serve(stream.unwrap(), &*script, &seen));
            }
        });
        server
    }

    /// The bodies of all requests of this route, in their order.
    pub fn asked(&self, route: &str) -> Vec<Value> {
        let seen = self.seen.lock().unwrap();
        seen.iter().filter(|(asked, _)| asked == route).map(|(_, body)| body.clone()).collect()
    }
}

fn serve(mut stream: TcpStream, script: &Script, seen: &Mutex<Vec<(String, Value)>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    while let Some(Request { head, body }) = next_request(&mut reader) {
        let route = head.split_whitespace().nth(1).unwrap().to_owned();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        seen.lock().unwrap().push((route.clone(), body.clone()));
        let (status, answer) = script(&route, &body);
        let answer =
            format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n{answer}", answer.len());
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}
