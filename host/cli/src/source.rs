//! Where counts come from: an index folder, the demo's, a server, or several of those.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use corver_corpus::{Corpora, Corpus, OpenOptions, WordCounter};
use corver_remote::{Remote, RemoteSettings};
use corver_study::run_dir;
use serde::{Deserialize, Serialize};

use crate::config::DEMO_SOURCE;
use crate::parts;

/// One place that counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The index of the demo's articles.
    Demo,
    /// An index folder.
    Folder(PathBuf),
    /// An index behind Infini-gram's HTTP API, written `URL#NAME`.
    Remote { url: String, index: String },
}

impl FromStr for Source {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        if text == DEMO_SOURCE {
            return Ok(Self::Demo);
        }
        if !(text.starts_with("http://") || text.starts_with("https://")) {
            return Ok(Self::Folder(text.into()));
        }
        match text.split_once('#') {
            Some((url, index)) if !index.is_empty() => Ok(Self::Remote { url: url.into(), index: index.into() }),
            _ => bail!("{text} names no index: write it as {}#NAME", text.trim_end_matches('#')),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Demo => f.write_str("the demo's index"),
            Self::Folder(path) => write!(f, "the index {}", path.display()),
            Self::Remote { url, index } => write!(f, "the index {index} at {url}"),
        }
    }
}

impl Source {
    /// The folder, where there is one; the demo's index is built on first use.
    pub fn folder(&self) -> Result<Option<PathBuf>> {
        match self {
            Self::Demo => parts::demo_index().map(Some),
            Self::Folder(path) => Ok(Some(path.clone())),
            Self::Remote { .. } => Ok(None),
        }
    }

    /// Opens it. Of a remote index nothing is asked yet.
    pub fn open(&self, options: OpenOptions, remote: &RemoteSettings) -> Result<Box<dyn WordCounter>> {
        let open = || -> Result<Box<dyn WordCounter>> {
            Ok(match (self.folder()?, self) {
                (Some(folder), _) => Box::new(Corpus::open_with(folder, options)?),
                (None, Self::Remote { url, index }) => {
                    let cache = remote.cache.then(|| Ok::<_, anyhow::Error>(parts::cache_dir()?.join("counts")));
                    Box::new(Remote::open(url, index, remote, cache.transpose()?.as_deref())?)
                }
                (None, _) => unreachable!("only a remote index has no folder"),
            })
        };
        open().with_context(|| format!("opening {self}"))
    }

    /// What a run's manifest records: the hash of a local index; of a remote one nothing is known but its name.
    pub fn fingerprint(&self) -> Result<String> {
        match (self.folder()?, self) {
            (Some(folder), _) => Ok(run_dir::index_fingerprint(&folder)?),
            (None, _) => Ok(format!("{self}, which nobody has hashed")),
        }
    }
}

/// The setting `corpus.index`: one source or a list of them, whose counts are added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a folder, URL#NAME, or a list of those")]
pub enum Sources {
    One(String),
    Several(Vec<String>),
}

impl Sources {
    /// The sources, each understood.
    pub fn parse(&self) -> Result<Vec<Source>> {
        let texts = self.texts();
        if texts.iter().all(String::is_empty) {
            bail!("`corpus.index` is not set: give an index folder, URL#NAME, a list of those, or \"{DEMO_SOURCE}\"");
        }
        texts.iter().map(|text| text.parse()).collect()
    }

    fn texts(&self) -> &[String] {
        match self {
            Self::One(text) => std::slice::from_ref(text),
            Self::Several(texts) => texts,
        }
    }

    /// As they are written.
    pub fn texts_mut(&mut self) -> &mut [String] {
        match self {
            Self::One(text) => std::slice::from_mut(text),
            Self::Several(texts) => texts,
        }
    }

    /// Whether this is the demo's index and nothing else.
    pub fn is_demo(&self) -> bool {
        matches!(self, Self::One(text) if text == DEMO_SOURCE)
    }
}

/// Opens all sources; several are counted as one.
pub fn open(sources: &[Source], options: OpenOptions, remote: &RemoteSettings) -> Result<Box<dyn WordCounter>> {
    let mut members = sources.iter().map(|source| source.open(options, remote)).collect::<Result<Vec<_>>>()?;
    Ok(if members.len() == 1 { members.remove(0) } else { Box::new(Corpora::new(members)) })
}

/// The fingerprints of all sources.
pub fn fingerprint(sources: &[Source]) -> Result<String> {
    Ok(sources.iter().map(Source::fingerprint).collect::<Result<Vec<_>>>()?.join(" + "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_folders_or_servers() {
        let parse = |text: &str| text.parse::<Source>();
        assert_eq!(parse("demo").unwrap(), Source::Demo);
        assert_eq!(parse("wiki#2").unwrap(), Source::Folder("wiki#2".into()));
        assert_eq!(
            parse("https://api.infini-gram.io/#v4_pileval_llama").unwrap(),
            Source::Remote { url: "https://api.infini-gram.io/".into(), index: "v4_pileval_llama".into() }
        );
        let error = parse("http://localhost:8765").unwrap_err();
        assert!(error.to_string().contains("http://localhost:8765#NAME"), "{error}");
    }

    #[test]
    fn a_list_is_no_demo_and_an_empty_one_is_not_set() {
        assert!(Sources::One("demo".into()).is_demo());
        assert!(!Sources::Several(vec!["demo".into(), "wiki".into()]).is_demo());
        for nothing in [Sources::One(String::new()), Sources::Several(Vec::new())] {
            assert!(nothing.parse().unwrap_err().to_string().contains("corpus.index"));
        }
    }

    #[test]
    fn a_remote_index_is_fingerprinted_by_its_name() {
        let fingerprint = fingerprint(&["http://host/#wiki".parse().unwrap()]).unwrap();
        assert!(fingerprint.contains("wiki") && fingerprint.contains("http://host/"), "{fingerprint}");
    }
}
