//! Text around the matches of a query, from the indexes on this machine.

use std::cell::OnceCell;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use corver_corpus::{CnfOptions, MatchPassage, TextIndex};
use corver_counts::CorpusSource;

use crate::config::CorpusConfig;
use crate::parts;

/// Indexes of a configuration that are on this machine, opened on first use.
#[derive(Debug)]
pub struct CorpusPassages {
    folders: Vec<PathBuf>,
    corpora: OnceCell<Vec<TextIndex>>,
    options: CnfOptions,
}

impl CorpusPassages {
    /// Selects the indexes on this machine, and builds the demo's if it is missing.
    ///
    /// # Errors
    /// If the demo's index cannot be built.
    pub fn new(config: &CorpusConfig) -> Result<Self> {
        let mut folders = Vec::new();
        for source in parts::resolve_sources(&config.sources)? {
            if let CorpusSource::Folder(folder) = source {
                folders.push(folder);
            }
        }
        Ok(Self { folders, corpora: OnceCell::new(), options: config.counting })
    }

    /// Opens the indexes. They may be open elsewhere: the files are mapped, so a second mapping
    /// takes little memory.
    ///
    /// # Errors
    /// If an index is missing or damaged.
    pub fn open(&self) -> Result<&[TextIndex]> {
        if let Some(corpora) = self.corpora.get() {
            return Ok(corpora);
        }
        let corpora = self.folders.iter().map(TextIndex::open).collect::<Result<_, _>>()?;
        Ok(self.corpora.get_or_init(|| corpora))
    }

    /// True if every index is on a server, which counts and has no text to show.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.folders.is_empty()
    }

    /// Finds up to `limit` passages that match: as many as the first index has, then those of the
    /// next.
    ///
    /// # Errors
    /// If every index is on a server, or an index is damaged.
    pub fn find(&self, all_of: &[Vec<String>], limit: usize) -> Result<Vec<MatchPassage>> {
        let mut passages = Vec::new();
        ensure!(
            !self.is_empty(),
            "The index is on a server, which counts and has no text to show."
        );
        for corpus in self.open()? {
            passages.extend(corpus.passages(all_of, &self.options, limit - passages.len())?);
        }
        Ok(passages)
    }
}
