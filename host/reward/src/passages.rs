//! What the corpus says: text around the matches of a query, where the index is on this machine.

use anyhow::{Result, ensure};
use corver_corpus::{CnfOptions, Corpus, Passage};
use corver_counts::Source;

use crate::{Config, parts};

/// The indexes of a configuration that can be read.
#[derive(Debug)]
pub struct Passages {
    corpora: Vec<Corpus>,
    options: CnfOptions,
}

impl Passages {
    /// Opens the indexes on this machine once more: their files are mapped, so that this takes no memory.
    ///
    /// # Errors
    /// Where one is not there or damaged.
    pub fn open(config: &Config) -> Result<Self> {
        let folder = |source| match source {
            Source::Folder(folder) => Some(folder),
            Source::Remote { .. } => None,
        };
        let folders = parts::sources(&config.sources)?.into_iter().filter_map(folder);
        let corpora = folders.map(|folder| Corpus::open(&folder)).collect::<Result<_, _>>()?;
        Ok(Self { corpora, options: config.counting })
    }

    /// Whether there is none: a server counts, and has no text to show.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.corpora.is_empty()
    }

    /// Up to `limit` passages that match: as many as the first index has, then the second, and so on.
    ///
    /// # Errors
    /// Where every index is on a server, which counts and has no text to show, or an index is damaged.
    pub fn of(&self, all_of: &[Vec<String>], limit: usize) -> Result<Vec<Passage>> {
        let mut passages = Vec::new();
        ensure!(!self.is_empty(), "The index is on a server, which counts and has no text to show.");
        for corpus in &self.corpora {
            passages.extend(corpus.passages(all_of, &self.options, limit - passages.len())?);
        }
        Ok(passages)
    }
}
