//! Text that a server sends. It may have any length, and may quote the token that it was sent.

use regex::bytes::{NoExpand, Regex};

use crate::Token;

/// Longest text of a server in a message, characters.
const MAX_CHARS: usize = 500;

/// Shortest token that is redacted, characters. A shorter one, such as `EMPTY`, is no secret, and
/// may be a word of every reply.
const MIN_SECRET_CHARS: usize = 8;

/// Text in the place of a token.
const REDACTED: &[u8] = b"[redacted]";

/// Returns the start of a server's text, for messages: 500 characters.
#[must_use]
pub fn shorten_foreign(text: &str) -> String {
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Removal of a client's token from all that its server sends.
#[derive(Debug)]
pub(crate) struct Redaction {
    /// Pattern of the token; `None` without a secret.
    secret: Option<Regex>,
}

impl Redaction {
    pub(crate) fn new(token: Option<&Token>) -> Self {
        let secret = token.filter(|token| token.num_chars() >= MIN_SECRET_CHARS);
        Self { secret: secret.map(pattern) }
    }

    /// Returns the body of a response without the token. JSON remains JSON.
    pub(crate) fn apply(&self, body: Vec<u8>) -> Vec<u8> {
        let Some(secret) = &self.secret else { return body };
        match secret.is_match(&body) {
            true => secret.replace_all(&body, NoExpand(REDACTED)).into_owned(),
            false => body,
        }
    }
}

/// Returns the pattern of a token, each of its characters as it is or as an escape of JSON.
fn pattern(token: &Token) -> Regex {
    let mut pattern = String::new();
    for c in token.reveal().chars() {
        let plain = if c == '/' { r"\\?/".to_owned() } else { regex::escape(&c.to_string()) };
        let code = u32::from(c);
        pattern += &format!(r"(?:{plain}|\\u(?i:{code:04x}))");
    }
    Regex::new(&pattern).expect("a token has at most 1,024 characters, all of ASCII")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redact(token: &str, body: &str) -> String {
        let redaction = Redaction::new(Some(&Token::parse(token, "").unwrap()));
        String::from_utf8(redaction.apply(body.as_bytes().to_vec())).unwrap()
    }

    #[test]
    fn token_is_redacted_with_and_without_escapes() {
        let token = "sk-0123/+=~.x";
        for body in [
            r#"{"error": "no such key: Bearer sk-0123/+=~.x"}"#,
            r#"{"error": "no such key: Bearer sk-0123\/+=~.x"}"#,
            r#"{"error": "no such key: Bearer \u0073k-0123\u002F+=~\u002ex"}"#,
        ] {
            assert_eq!(redact(token, body), r#"{"error": "no such key: Bearer [redacted]"}"#);
        }
        assert_eq!(redact(token, "sk-0123/+=~.xsk-0123/+=~.x"), "[redacted][redacted]");
        let other = "SK-0123/+=~.x sk-0123/+=~,x";
        assert_eq!(redact(token, other), other);
    }

    #[test]
    fn longest_token_is_redacted_and_placeholder_is_not() {
        let long = "k".repeat(1_024);
        assert_eq!(redact(&long, &format!("a {long} b")), "a [redacted] b");
        assert_eq!(redact("EMPTY", r#"{"EMPTY": 1}"#), r#"{"EMPTY": 1}"#);
        assert_eq!(Redaction::new(None).apply(b"x".to_vec()), b"x");
    }

    #[test]
    fn long_text_is_shortened() {
        assert_eq!(shorten_foreign("é"), "é");
        assert_eq!(shorten_foreign(&"é".repeat(500)), "é".repeat(500));
        assert_eq!(shorten_foreign(&"é".repeat(501)), format!("{}…", "é".repeat(500)));
    }
}
