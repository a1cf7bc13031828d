//! Index folders, as the commands open them.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use corver_corpus::{Corpus, Index, OpenOptions, Tokenizer};

use corver_reward::parts;

/// The index folder that is named, or the demo's.
pub fn folder(index: Option<&Path>) -> Result<PathBuf> {
    index.map_or_else(parts::demo_index, |path| Ok(path.to_owned()))
}

/// Opens an index with its own tokenizer or another.
pub fn open_folder(folder: &Path, tokenizer: Option<&Path>, options: OpenOptions) -> Result<Corpus> {
    let corpus = match tokenizer {
        Some(tokenizer) => Corpus::new(Index::open_with(folder, options)?, Tokenizer::from_file(tokenizer)?),
        None => Corpus::open_with(folder, options),
    };
    corpus.with_context(|| format!("opening the index {}", folder.display()))
}
