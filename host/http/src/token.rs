//! The secret that a server may ask of its clients, as a bearer token (RFC 6750).

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

const MAX_CHARS: usize = 1_024;

/// A secret. It is neither shown nor serialised, in whatever form.
#[derive(Clone)]
pub struct Token(String);

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The file cannot be read.
    #[error("cannot read a key or token from {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// What was found is none.
    #[error(
        "{place} does not hold a key or token: it has {chars} characters; 1 to {MAX_CHARS} letters, digits and -._~+/= are needed"
    )]
    Form {
        /// Where it was found.
        place: String,
        /// How long it is.
        chars: usize,
    },
}

impl Token {
    /// The token of a file, white space around it aside, or else of this environment variable;
    /// `None` where there is neither.
    ///
    /// # Errors
    /// Where the file cannot be read, or holds no token, or the variable does not.
    pub fn load(file: Option<&Path>, variable: Option<&str>) -> Result<Option<Self>, TokenError> {
        let Some(path) = file else {
            let Some(variable) = variable else { return Ok(None) };
            let Some(value) = std::env::var_os(variable) else { return Ok(None) };
            return Self::parse(&value.to_string_lossy(), || {
                format!("the environment variable {variable}")
            })
            .map(Some);
        };
        let mut text = Vec::new();
        File::open(path)
            .and_then(|opened| opened.take(MAX_CHARS as u64 * 2).read_to_end(&mut text))
            .map_err(|source| TokenError::File { path: path.to_owned(), source })?;
        Self::parse(&String::from_utf8_lossy(&text), || path.display().to_string()).map(Some)
    }

    fn parse(text: &str, place: impl Fn() -> String) -> Result<Self, TokenError> {
        let text = text.trim();
        let chars = text.chars().count();
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._~+/=".contains(c);
        if (1..=MAX_CHARS).contains(&chars) && text.chars().all(plain) {
            Ok(Self(text.to_owned()))
        } else {
            Err(TokenError::Form { place: place(), chars })
        }
    }

    /// How long it is.
    #[must_use]
    pub fn num_chars(&self) -> usize {
        self.0.len() // all are ASCII
    }

    /// The value of a client's `Authorization` header.
    #[must_use]
    pub fn header(&self) -> String {
        format!("Bearer {}", self.0)
    }

    /// Whether a request's `Authorization` header shows this token. How long that takes says
    /// nothing about the token.
    #[must_use]
    pub fn is_shown_by(&self, header: &[u8]) -> bool {
        const SCHEME: &[u8] = b"bearer ";
        let Some((scheme, shown)) = header.split_at_checked(SCHEME.len()) else { return false };
        scheme.eq_ignore_ascii_case(SCHEME)
            && blake3::hash(shown) == blake3::hash(self.0.as_bytes())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_read_from_file_and_never_printed() {
        const SECRET: &str = "d41d8cd98f00b204+/~";
        let folder = tempfile::tempdir().unwrap();
        let load = |text: &str| {
            let path = folder.path().join("token");
            std::fs::write(&path, text).unwrap();
            Token::load(Some(&path), None)
        };
        let token = load(&format!(" {SECRET}\n")).unwrap().unwrap();
        assert_eq!(token.0, SECRET);
        assert!(!format!("{token:?}").contains(SECRET));
        assert_eq!(load("EMPTY").unwrap().unwrap().num_chars(), 5);
        for wrong in
            ["", "\n", "two tokens of one file", &"long".repeat(1_000), "0123456789abcde\u{e9}"]
        {
            let error = load(wrong).unwrap_err();
            assert!(matches!(&error, TokenError::Form { .. }), "{error}");
            assert!(wrong.trim().is_empty() || !error.to_string().contains(wrong), "{error}");
        }
        assert!(matches!(
            Token::load(Some(&folder.path().join("none")), None),
            Err(TokenError::File { .. })
        ));
    }

    #[test]
    fn only_matching_bearer_token_is_accepted() {
        let token = |text: &str| Token::parse(text, String::new).unwrap();
        let ours = token("0123456789abcdef");
        assert!(
            ours.is_shown_by(ours.header().as_bytes())
                && ours.is_shown_by(b"bearer 0123456789abcdef")
        );
        assert!(!ours.is_shown_by(token("0123456789abcdeg").header().as_bytes()));
        for wrong in [
            "",
            "Bearer",
            "Bearer ",
            "Basic 0123456789abcdef",
            "Bearer 0123456789abcdef0",
            "0123456789abcdef",
        ] {
            assert!(!ours.is_shown_by(wrong.as_bytes()), "{wrong:?}");
        }
    }
}
