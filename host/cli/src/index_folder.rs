//! Index folders of a command line.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use corver_corpus::{Index, OpenOptions, TextIndex, Tokenizer};

use corver_data::hub::RepoKind;
use corver_reward::config::{DemoOr, resolve_hub_path};
use corver_reward::parts;
use corver_settings::DEMO;

use crate::settings;

/// True if the demo's index is named, or no index.
pub fn is_demo(index: Option<&Path>) -> bool {
    index.is_none_or(|path| path.as_os_str() == DEMO)
}

/// Returns the index folder or the downloaded index that is named, or the demo's.
pub fn folder(index: Option<&Path>) -> Result<PathBuf> {
    match index {
        Some(path) => {
            let text = path.to_str().context("the path of the index is not UTF-8")?;
            match resolve_hub_path(RepoKind::Dataset, text)? {
                DemoOr::Own(folder) => Ok(folder),
                DemoOr::Demo => parts::demo_index(),
            }
        }
        None => {
            settings::note_demo();
            parts::demo_index()
        }
    }
}

/// Opens an index with its own tokenizer, or with another.
pub fn open_folder(
    folder: &Path,
    tokenizer: Option<&Path>,
    options: OpenOptions,
) -> Result<TextIndex> {
    let corpus = match tokenizer {
        Some(tokenizer) => {
            TextIndex::new(Index::open_with(folder, options)?, Tokenizer::open(tokenizer)?)
        }
        None => TextIndex::open_with(folder, options),
    };
    corpus.with_context(|| format!("opening the index {}", folder.display()))
}

/// Returns the name of an index for clients: the given name, `demo`, or its folder's name.
pub fn name_of(folder: &Path, given: Option<&str>, is_demo: bool) -> Result<String> {
    match given {
        Some(name) => return Ok(name.to_owned()),
        None if is_demo => return Ok(DEMO.to_owned()),
        None => {}
    }
    let folder = folder.canonicalize().with_context(|| format!("finding {}", folder.display()))?;
    let name =
        folder.file_name().context("the index's folder has no name: give it a name with --name")?;
    Ok(name.to_string_lossy().into_owned())
}
