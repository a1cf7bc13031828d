//! Where counts come from, by name: index folders and servers.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use corver_core::{BoxError, CorpusSize, Count, Counter, Query};
use corver_corpus::{CnfCount, CnfOptions, Corpus, OpenOptions, Part};

use crate::{Local, Remote, RemoteError, RemoteSettings};

/// One place that counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// An index folder.
    Folder(PathBuf),
    /// An index behind Infini-gram's HTTP API, written `URL#NAME`.
    Remote {
        /// The server.
        url: String,
        /// Its name for the index.
        index: String,
    },
}

/// Why there is no counter.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// Sources that cannot be counted together, or a server without the name of an index.
    #[error("{0}")]
    InvalidSources(String),
    /// An index folder that cannot be opened or counted in.
    #[error(transparent)]
    Corpus(#[from] corver_corpus::Error),
    /// A server that cannot be asked.
    #[error(transparent)]
    Remote(#[from] RemoteError),
}

/// How sources are opened, and with which options they are asked.
#[derive(Debug, Clone, Default)]
pub struct OpenSettings {
    /// The options of every count.
    pub options: CnfOptions,
    /// How long a batch of queries may take in an index folder; for ever where `None`.
    pub count_time: Option<Duration>,
    /// How index folders are opened.
    pub index: OpenOptions,
    /// How to deal with servers.
    pub remote: RemoteSettings,
    /// Where servers' answers are kept, if `remote` wants it.
    pub cache_dir: Option<PathBuf>,
}

impl FromStr for Source {
    type Err = SourceError;

    fn from_str(text: &str) -> Result<Self, SourceError> {
        if !(text.starts_with("http://") || text.starts_with("https://")) {
            return Ok(Self::Folder(text.into()));
        }
        match text.split_once('#') {
            Some((url, index)) if !index.is_empty() => {
                Ok(Self::Remote { url: url.into(), index: index.into() })
            }
            _ => Err(SourceError::InvalidSources(format!(
                "{text} names no index: write it as {}#NAME",
                text.trim_end_matches('#')
            ))),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(path) => write!(f, "the index {}", path.display()),
            Self::Remote { url, index } => write!(f, "the index {index} at {url}"),
        }
    }
}

impl Source {
    /// Opens it. A server is asked what it is.
    ///
    /// # Errors
    /// Where the folder holds no index, or as [`Remote::open`].
    pub fn open(&self, settings: &OpenSettings) -> Result<Opened, SourceError> {
        let OpenSettings { options, count_time, index: open, remote, cache_dir } = settings;
        Ok(match self {
            Self::Folder(folder) => Opened::Local(
                Local::new(Corpus::open_with(folder, open.clone())?, *options).within(*count_time),
            ),
            Self::Remote { url, index } => {
                Opened::Remote(Remote::open(url, index, *options, remote, cache_dir.as_deref())?)
            }
        })
    }

    /// What a run's manifest records: the hash of an index folder; a server's index has only its
    /// name.
    ///
    /// # Errors
    /// Where the folder cannot be read.
    pub fn fingerprint(&self) -> Result<String, SourceError> {
        Ok(match self {
            Self::Folder(folder) => corver_corpus::fingerprint(folder)?,
            Self::Remote { .. } => format!("{self}, unhashed"),
        })
    }
}

/// A source that was opened.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a run opens a handful")]
pub enum Opened {
    /// An index folder.
    Local(Local),
    /// A server's index.
    Remote(Remote),
}

impl Opened {
    /// The shards that it has, and of which index, where that is recorded.
    pub(crate) fn part(&self) -> Option<Part> {
        match self {
            Self::Local(local) => local.corpus().index().part(),
            Self::Remote(remote) => remote.part(),
        }
    }

    /// A whole count with everything that the source says about it; `None` where it has none.
    ///
    /// # Errors
    /// Where counting itself fails.
    pub fn count_words(&self, all_of: &[Vec<String>]) -> Result<Option<CnfCount>, SourceError> {
        Ok(match self {
            Self::Local(local) => local.count_words(all_of)?,
            Self::Remote(remote) => remote.count_words(all_of)?,
        })
    }
}

impl Counter for Opened {
    fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, BoxError> {
        match self {
            Self::Local(local) => local.count(queries),
            Self::Remote(remote) => remote.count(queries),
        }
    }

    fn size(&self) -> CorpusSize {
        match self {
            Self::Local(local) => local.size(),
            Self::Remote(remote) => remote.size(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_parses_folder_or_server() {
        let parse = |text: &str| text.parse::<Source>();
        assert_eq!(parse("wiki#2").unwrap(), Source::Folder("wiki#2".into()));
        assert_eq!(
            parse("https://api.infini-gram.io/#v4_pileval_llama").unwrap(),
            Source::Remote {
                url: "https://api.infini-gram.io/".into(),
                index: "v4_pileval_llama".into()
            }
        );
        for nameless in ["http://localhost:8765", "http://localhost:8765#"] {
            let error = parse(nameless).unwrap_err();
            assert!(error.to_string().contains("http://localhost:8765#NAME"), "{error}");
        }
    }
}
