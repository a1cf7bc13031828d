//! What a setting names: a file, a folder, a model or dataset that was downloaded, an index, a rule; all with absolute paths.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use corver_counts::Source;
use corver_study::data::QuestionPlace;

use crate::hub;
use crate::plugin::{self, Plugin};
use crate::settings::DEMO;

/// What a setting names: the built-in demo's, or one of the user's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DemoOr<T> {
    /// The built-in one.
    Demo,
    /// The user's.
    Own(T),
}

/// A file or folder; the path is absolute.
pub type Place = DemoOr<PathBuf>;

impl<T> DemoOr<T> {
    pub(crate) fn written(&self, own: impl Fn(&T) -> String) -> String {
        match self {
            Self::Demo => DEMO.to_owned(),
            Self::Own(value) => own(value),
        }
    }
}

/// The indexes that a command line names; the demo's where it names none.
///
/// # Errors
/// Where a URL names no index.
pub fn sources(texts: &[String]) -> Result<Vec<DemoOr<Source>>> {
    if texts.is_empty() { Ok(vec![DemoOr::Demo]) } else { texts.iter().map(|text| source(text)).collect() }
}

/// A folder, or a model that was downloaded under this name.
pub fn model(text: &str) -> Result<Option<Place>> {
    match hub::snapshot(hub::Kind::Model, text).filter(|_| !Path::new(text).exists()) {
        Some(snapshot) => Ok(Some(DemoOr::Own(absolute(&snapshot)?))),
        None => place(text),
    }
}

/// A question file, a dataset's folder or a split of it, or a dataset that was downloaded under this name. A split stays behind
/// its folder: `FOLDER#train`.
pub fn questions(text: &str) -> Result<Option<Place>> {
    let QuestionPlace { path, split } = QuestionPlace::parse(text);
    let snapshot = path.to_str().and_then(|name| hub::snapshot(hub::Kind::Dataset, name));
    match snapshot.filter(|_| !path.exists()) {
        Some(snapshot) => {
            let place = QuestionPlace { path: absolute(&snapshot)?, split };
            Ok(Some(DemoOr::Own(place.to_string().into())))
        }
        None => place(text),
    }
}

pub(super) fn file(text: &str) -> Result<Option<PathBuf>> {
    if text.is_empty() { Ok(None) } else { absolute(Path::new(text)).map(Some) }
}

/// A file or folder, or the demo's; nothing where the text is empty.
fn place(text: &str) -> Result<Option<Place>> {
    Ok(match text {
        "" => None,
        DEMO => Some(DemoOr::Demo),
        path => Some(DemoOr::Own(absolute(Path::new(path))?)),
    })
}

/// An index folder, an index on a server, or the demo's.
pub(super) fn source(text: &str) -> Result<DemoOr<Source>> {
    Ok(match text {
        DEMO => DemoOr::Demo,
        text => DemoOr::Own(match text.parse()? {
            Source::Folder(path) => Source::Folder(absolute(&path)?),
            remote @ Source::Remote { .. } => remote,
        }),
    })
}

pub(super) fn weighted(text: &str) -> Result<Plugin> {
    let Plugin { path, weight } = text.parse()?;
    Ok(Plugin { path: plugin_path(&path)?, weight })
}

/// A shipped rule's name stays a name; every other plugin gets an absolute path.
pub(super) fn plugin_path(plugin: &Path) -> Result<PathBuf> {
    plugin::here(plugin).map_or_else(|| Ok(plugin.to_owned()), |path| absolute(&path))
}

/// An absolute path in UTF-8, as a configuration file holds it.
pub(super) fn absolute(path: &Path) -> Result<PathBuf> {
    let absolute = std::path::absolute(path).with_context(|| format!("the path {}", path.display()))?;
    if absolute.to_str().is_none() {
        bail!("the path {} is not UTF-8", absolute.display());
    }
    Ok(absolute)
}
