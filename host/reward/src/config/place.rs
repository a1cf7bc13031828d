//! Settings that name a file, a folder, a downloaded model or dataset, or an index: the demo's, or
//! an absolute path.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use corver_counts::CorpusSource;
use corver_data::hub;
use corver_settings::DEMO;

/// Part of the built-in demo, or the user's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DemoOr<T> {
    /// Part of the built-in demo.
    Demo,
    /// Part that the user names.
    Own(T),
}

/// File or folder; the path is absolute.
pub type DemoOrPath = DemoOr<PathBuf>;

impl<T> DemoOr<T> {
    /// Returns the text of the setting that names it.
    #[must_use]
    pub fn to_setting(&self, own: impl Fn(&T) -> String) -> String {
        match self {
            Self::Demo => DEMO.to_owned(),
            Self::Own(value) => own(value),
        }
    }
}

/// Returns the indexes that a command line names; the demo's if it names none.
///
/// # Errors
/// If a URL names no index, or there is no such folder.
pub fn parse_sources(texts: &[String]) -> Result<Vec<DemoOr<CorpusSource>>> {
    if texts.is_empty() {
        return Ok(vec![DemoOr::Demo]);
    }
    texts.iter().map(|text| parse_source(text)).collect()
}

/// Returns the index folder, the index on a server, or the demo's index, that a text names.
pub(super) fn parse_source(text: &str) -> Result<DemoOr<CorpusSource>> {
    if text == DEMO {
        return Ok(DemoOr::Demo);
    }
    Ok(DemoOr::Own(match text.parse()? {
        CorpusSource::Folder(_) => CorpusSource::Folder(hub_path(hub::RepoKind::Dataset, text)?),
        remote @ CorpusSource::Remote { .. } => remote,
    }))
}

/// Returns the folder, the downloaded repository, or the demo's part that a text names.
///
/// # Errors
/// If there is no such folder.
pub fn resolve_hub_path(kind: hub::RepoKind, text: &str) -> Result<DemoOrPath> {
    if text == DEMO {
        return Ok(DemoOr::Demo);
    }
    Ok(DemoOr::Own(hub_path(kind, text)?))
}

fn hub_path(kind: hub::RepoKind, text: &str) -> Result<PathBuf> {
    let path = match hub::snapshot(kind, text) {
        Some(snapshot) if !Path::new(text).exists() => absolute(&snapshot)?,
        _ => absolute(Path::new(text))?,
    };
    ensure!(path.exists(), hub::missing_message(kind, &path));
    Ok(path)
}

/// Returns an absolute path in UTF-8, as a configuration file holds it.
///
/// # Errors
/// If the path is not UTF-8.
pub fn absolute(path: &Path) -> Result<PathBuf> {
    let absolute =
        std::path::absolute(path).with_context(|| format!("the path {}", path.display()))?;
    if absolute.to_str().is_none() {
        bail!("the path {} is not UTF-8", absolute.display());
    }
    Ok(absolute)
}
