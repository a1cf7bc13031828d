//! Index folders and servers, by name.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use corver_core::{BoxError, CorpusInfo, Count, Counter, Query};
use corver_corpus::{CnfCount, CnfOptions, OpenOptions, Part, TextIndex};

use crate::{Local, Remote, RemoteError, RemoteSettings};

/// The location of an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CorpusSource {
    /// A folder on this machine.
    Folder(PathBuf),
    /// An index behind Infini-gram's HTTP API, written `URL#NAME`.
    Remote {
        /// URL of the server.
        url: String,
        /// Name of the index on the server.
        index: String,
    },
}

/// A failure to open or count in a source.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The sources cannot be counted together, or a server is given without the name of an index.
    #[error("{0}")]
    InvalidSources(String),
    /// An index folder cannot be opened or counted in.
    #[error(transparent)]
    Corpus(#[from] corver_corpus::Error),
    /// A server cannot be used.
    #[error(transparent)]
    Remote(#[from] RemoteError),
}

/// Options for opening sources, and of every count in them.
#[derive(Debug, Clone, Default)]
pub struct OpenSettings {
    /// Options of every count.
    pub options: CnfOptions,
    /// Longest time of a batch of queries in an index folder; `None` sets no limit.
    pub count_time: Option<Duration>,
    /// Options for opening index folders.
    pub index: OpenOptions,
    /// Connections, retries, rate limit and cache of servers.
    pub remote: RemoteSettings,
    /// Folder of the on-disk cache of servers' counts, used if `remote.cache` is true. `None`
    /// disables the cache.
    pub cache_dir: Option<PathBuf>,
}

impl FromStr for CorpusSource {
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

impl fmt::Display for CorpusSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(path) => write!(f, "the index {}", path.display()),
            Self::Remote { url, index } => write!(f, "the index {index} at {url}"),
        }
    }
}

impl CorpusSource {
    /// Opens the source. A server is requested to describe itself.
    ///
    /// # Errors
    /// Fails if the folder holds no index, or as [`Remote::open`] does.
    pub fn open(&self, settings: &OpenSettings) -> Result<OpenedSource, SourceError> {
        match self {
            Self::Folder(folder) => {
                let corpus = TextIndex::open_with(folder, settings.index.clone())?;
                let local = Local::new(corpus, settings.options).within(settings.count_time);
                Ok(OpenedSource::Local(local))
            }
            Self::Remote { url, index } => {
                let cache_dir = settings.cache_dir.as_deref();
                let remote =
                    Remote::open(url, index, settings.options, &settings.remote, cache_dir)?;
                Ok(OpenedSource::Remote(remote))
            }
        }
    }

    /// Returns the fingerprint that a run's manifest records: the hash of an index folder, or the
    /// name of a server's index.
    ///
    /// # Errors
    /// Fails if the folder cannot be read.
    pub fn fingerprint(&self) -> Result<String, SourceError> {
        Ok(match self {
            Self::Folder(folder) => corver_corpus::fingerprint(folder)?,
            Self::Remote { .. } => format!("{self}, unhashed"),
        })
    }
}

/// An open source, ready to count.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a run opens a handful")]
pub enum OpenedSource {
    /// An index folder on this machine.
    Local(Local),
    /// An index of a server.
    Remote(Remote),
}

impl OpenedSource {
    /// Returns the shards that the source has; `None` if they are not recorded.
    pub(crate) fn part(&self) -> Option<Part> {
        match self {
            Self::Local(local) => local.corpus().index().part(),
            Self::Remote(remote) => remote.part(),
        }
    }

    /// Returns a count without a limit, with the source's flags; `None` if the query has no count.
    ///
    /// # Errors
    /// Fails if the index cannot be read or the server does not reply.
    pub fn count_words(&self, all_of: &[Vec<String>]) -> Result<Option<CnfCount>, SourceError> {
        Ok(match self {
            Self::Local(local) => local.count_words(all_of)?,
            Self::Remote(remote) => remote.count_words(all_of)?,
        })
    }
}

impl Counter for OpenedSource {
    fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, BoxError> {
        match self {
            Self::Local(local) => local.count(queries),
            Self::Remote(remote) => remote.count(queries),
        }
    }

    fn info(&self) -> CorpusInfo {
        match self {
            Self::Local(local) => local.info(),
            Self::Remote(remote) => remote.info(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_parses_folder_or_server() {
        let parse = |text: &str| text.parse::<CorpusSource>();
        assert_eq!(parse("wiki#2").unwrap(), CorpusSource::Folder("wiki#2".into()));
        assert_eq!(
            parse("https://api.infini-gram.io/#v4_pileval_llama").unwrap(),
            CorpusSource::Remote {
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
