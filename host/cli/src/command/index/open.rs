//! Index folders, as the commands open them.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use corver_corpus::{Corpus, Index, OpenOptions, Tokenizer};

use corver_reward::parts;
use corver_settings::DEMO;

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

/// What clients call an index: its given name, `demo`, or its folder's name.
pub fn name_of(folder: &Path, given: Option<&str>, is_demo: bool) -> Result<String> {
    match given {
        Some(name) => return Ok(name.to_owned()),
        None if is_demo => return Ok(DEMO.to_owned()),
        None => {}
    }
    let folder = folder.canonicalize().with_context(|| format!("finding {}", folder.display()))?;
    let name = folder.file_name().context("the index has no folder name to go by: give it a name with --name")?;
    Ok(name.to_string_lossy().into_owned())
}
