//! What the corpus says: text around the matches of a query, where the index is on this machine.

use std::cell::OnceCell;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use corver_corpus::{CnfOptions, MatchPassage, TextIndex};
use corver_counts::CorpusSource;

use crate::config::CorpusConfig;
use crate::parts;

/// The indexes of a configuration that can be read, opened when a passage is first asked for.
#[derive(Debug)]
pub struct Passages {
    folders: Vec<PathBuf>,
    corpora: OnceCell<Vec<TextIndex>>,
    options: CnfOptions,
}

impl Passages {
    /// Those on this machine; the demo's is built where it is missing.
    ///
    /// # Errors
    /// Where that fails.
    pub fn new(config: &CorpusConfig) -> Result<Self> {
        let folder = |source| match source {
            CorpusSource::Folder(folder) => Some(folder),
            CorpusSource::Remote { .. } => None,
        };
        let folders = parts::sources(&config.sources)?.into_iter().filter_map(folder).collect();
        Ok(Self { folders, corpora: OnceCell::new(), options: config.counting })
    }

    /// Opens the indexes once more: their files are mapped, so that this takes little memory.
    ///
    /// # Errors
    /// Where one is not there or damaged.
    pub fn open(&self) -> Result<&[TextIndex]> {
        if let Some(opened) = self.corpora.get() {
            return Ok(opened);
        }
        let opened = self.folders.iter().map(TextIndex::open).collect::<Result<_, _>>()?;
        Ok(self.corpora.get_or_init(|| opened))
    }

    /// Whether there is none: a server counts, and has no text to show.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.folders.is_empty()
    }

    /// Up to `limit` passages that match: as many as the first index has, then the second, and so
    /// on.
    ///
    /// # Errors
    /// Where every index is on a server, which counts and has no text to show, or an index is
    /// damaged.
    pub fn of(&self, all_of: &[Vec<String>], limit: usize) -> Result<Vec<MatchPassage>> {
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
