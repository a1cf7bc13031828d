//! The secret that lets a client in.

use std::fmt;
use std::path::{Path, PathBuf};

/// A bearer token, from a file: a command line and a configuration would show it to others. It is never shown.
#[derive(Clone)]
pub struct Token(String);

/// Why a token cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// Its file cannot be read.
    #[error("cannot read the token in {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
    /// Its file holds something else.
    #[error("{} holds no token: one line of 16 to 1,024 visible ASCII characters was expected", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
    },
}

impl Token {
    /// Reads the one line of a file.
    ///
    /// # Errors
    /// Where the file cannot be read, or holds no token.
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let text = std::fs::read_to_string(path).map_err(|source| TokenError::Read { path: path.into(), source })?;
        let token = text.trim_end();
        let good = (16..=1024).contains(&token.len()) && token.bytes().all(|byte| byte.is_ascii_graphic());
        if good { Ok(Self(token.to_owned())) } else { Err(TokenError::Malformed { path: path.into() }) }
    }

    /// The value of an `Authorization` header.
    pub(crate) fn header(&self) -> String {
        format!("Bearer {}", self.0)
    }

    /// Whether a request's `Authorization` header has this token. How long that takes says nothing about it.
    #[cfg(feature = "server")]
    pub(crate) fn is_in(&self, header: Option<&[u8]>) -> bool {
        header.is_some_and(|header| blake3::hash(header) == blake3::hash(self.header().as_bytes()))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}
