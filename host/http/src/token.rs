//! Bearer tokens (RFC 6750).

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

const MAX_CHARS: usize = 1_024;

/// A bearer token or API key. `Debug` hides it, and it is not serialisable.
#[derive(Clone)]
pub struct Token(String);

/// A failure to load a token.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The token file cannot be read.
    #[error("failed to read a key or token from {}: {source}", path.display())]
    Io {
        /// Path of the token file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The file or environment variable does not hold a valid token.
    #[error(
        "{source_name} does not hold a key or token: it has {chars} characters; \
         1 to {MAX_CHARS} letters, digits and -._~+/= are needed"
    )]
    Invalid {
        /// Path of the file, or "the environment variable X".
        source_name: String,
        /// Length of the text, characters.
        chars: usize,
    },
}

impl Token {
    /// Loads a token from a file, without the surrounding white space, or else from an environment
    /// variable. Returns `None` if there is no file and the variable is not set.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or the file or variable does not hold a valid token.
    pub fn load(file: Option<&Path>, variable: Option<&str>) -> Result<Option<Self>, TokenError> {
        if let Some(path) = file {
            let mut text = Vec::new();
            File::open(path)
                // Enough to see that a file is too long; it may be large by mistake.
                .and_then(|opened| opened.take(MAX_CHARS as u64 * 2).read_to_end(&mut text))
                .map_err(|source| TokenError::Io { path: path.to_owned(), source })?;
            let text = String::from_utf8_lossy(&text);
            return Self::parse(&text, &path.display().to_string()).map(Some);
        }
        let Some(name) = variable else { return Ok(None) };
        let Some(value) = std::env::var_os(name) else { return Ok(None) };
        let source_name = format!("the environment variable {name}");
        Self::parse(&value.to_string_lossy(), &source_name).map(Some)
    }

    pub(crate) fn parse(text: &str, source_name: &str) -> Result<Self, TokenError> {
        let token = text.trim_start_matches('\u{feff}').trim();
        let chars = token.chars().count();
        if (1..=MAX_CHARS).contains(&chars) && token.chars().all(is_token_char) {
            Ok(Self(token.to_owned()))
        } else {
            Err(TokenError::Invalid { source_name: source_name.to_owned(), chars })
        }
    }

    /// Returns the token's length in characters.
    #[must_use]
    pub fn num_chars(&self) -> usize {
        self.0.len() // all are ASCII
    }

    /// Returns the token itself.
    #[cfg(feature = "client")]
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    /// Returns the value of a client's `Authorization` header.
    #[must_use]
    pub fn header(&self) -> String {
        format!("Bearer {}", self.0)
    }

    /// True if a request's `Authorization` header has this token. The time of the comparison does
    /// not depend on the token: hashes are compared.
    #[must_use]
    pub fn is_in_header(&self, header: &[u8]) -> bool {
        const SCHEME: &[u8] = b"bearer ";
        let Some((scheme, candidate)) = header.split_at_checked(SCHEME.len()) else {
            return false;
        };
        scheme.eq_ignore_ascii_case(SCHEME)
            && blake3::hash(candidate) == blake3::hash(self.0.as_bytes())
    }
}

fn is_token_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-._~+/=".contains(c)
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
            assert!(matches!(&error, TokenError::Invalid { .. }), "{error}");
            assert!(wrong.trim().is_empty() || !error.to_string().contains(wrong), "{error}");
        }
        assert!(matches!(
            Token::load(Some(&folder.path().join("none")), None),
            Err(TokenError::Io { .. })
        ));
    }

    #[test]
    fn only_matching_bearer_token_is_accepted() {
        let token = |text: &str| Token::parse(text, "").unwrap();
        let ours = token("0123456789abcdef");
        assert!(
            ours.is_in_header(ours.header().as_bytes())
                && ours.is_in_header(b"bearer 0123456789abcdef")
        );
        assert!(!ours.is_in_header(token("0123456789abcdeg").header().as_bytes()));
        for wrong in [
            "",
            "Bearer",
            "Bearer ",
            "Basic 0123456789abcdef",
            "Bearer 0123456789abcdef0",
            "0123456789abcdef",
        ] {
            assert!(!ours.is_in_header(wrong.as_bytes()), "{wrong:?}");
        }
    }
}
