//! Reads requests, for the tests of several crates that answer them as a server would.

use std::io::BufRead;

/// What a client has sent.
pub struct Request {
    /// Its first line and its headers.
    #[allow(dead_code, reason = "some tests look at bodies alone")]
    pub head: String,
    pub body: Vec<u8>,
}

/// The next request of a connection; `None` where the client has closed it.
pub fn next_request(reader: &mut impl BufRead) -> Option<Request> {
    let (mut length, mut head) = (0, String::new());
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
    Some(Request { head, body })
}
