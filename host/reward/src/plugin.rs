//! The search for a rule's file.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::folders;

/// A plugin's path from the current folder; none for a bare name that is not there, which is a
/// shipped rule's.
pub fn here(plugin: &Path) -> Option<PathBuf> {
    let here = with_extension(plugin).into_iter().find(|path| path.is_file());
    here.or_else(|| (!is_bare(plugin)).then(|| plugin.to_owned()))
}

/// The file of a plugin: as given, or, for a bare name, in one of the [`search_path`]'s folders.
pub fn find(plugin: &Path) -> Result<PathBuf> {
    let folders = if is_bare(plugin) { search_path() } else { vec![PathBuf::new()] };
    // A pipe or a device is found too, so that loading says what is wrong with it.
    let found = |candidate: &PathBuf| {
        folders
            .iter()
            .map(|folder| folder.join(candidate))
            .find(|path| path.exists() && !path.is_dir())
    };
    with_extension(plugin).iter().find_map(found).with_context(|| {
        let hint = match meant(plugin) {
            Some(nearest) => format!("; did you mean {}?", nearest.display()),
            None if is_bare(plugin) => {
                "; it is neither in this folder nor in plugins/dist (`make plugins` builds the shipped rules)"
                    .to_owned()
            }
            None => String::new(),
        };
        format!("there is no plugin {}{hint}", plugin.display())
    })
}

/// Folders in which a bare name is looked up, in this order.
pub fn search_path() -> Vec<PathBuf> {
    vec![PathBuf::new(), PathBuf::from("plugins/dist"), folders::home().join("plugins/dist")]
}

/// Every plugin in the [`search_path`], in order of path.
pub fn built() -> BTreeSet<PathBuf> {
    let files = search_path().into_iter().flat_map(|folder| wasm_files(&folder));
    files.map(|path| path.canonicalize().unwrap_or(path)).collect()
}

/// The `.wasm` files in a folder; none where it cannot be read.
pub fn wasm_files(folder: &Path) -> BTreeSet<PathBuf> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let paths = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()));
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "wasm")).collect()
}

/// What somebody meant who wrote this path: a file in it where it is a folder, else one with a
/// similar name.
fn meant(plugin: &Path) -> Option<PathBuf> {
    if plugin.is_dir() {
        wasm_files(plugin).pop_first()
    } else if is_bare(plugin) {
        nearest(plugin, built()).and_then(|path| path.file_name().map(PathBuf::from))
    } else {
        nearest(plugin, wasm_files(plugin.parent()?))
    }
}

/// The file among these whose name is most like this plugin's, if any is.
fn nearest(plugin: &Path, files: BTreeSet<PathBuf>) -> Option<PathBuf> {
    let stem = |path: &Path| path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let wanted = stem(plugin)?;
    let likeness =
        |path: &PathBuf| stem(path).map_or(0.0, |name| strsim::jaro_winkler(&name, &wanted));
    let like = files.into_iter().filter(|path| likeness(path) > 0.8);
    like.max_by(|a, b| likeness(a).total_cmp(&likeness(b)))
}

fn is_bare(plugin: &Path) -> bool {
    plugin.components().count() == 1
}

/// A plugin as it is written, and with `.wasm` appended.
fn with_extension(plugin: &Path) -> [PathBuf; 2] {
    [plugin.to_owned(), plugin.with_added_extension("wasm")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_plugin_name_means_shipped_rule() {
        assert_eq!(here(Path::new("min.wasm")), None);
        assert_eq!(here(Path::new("mine/r.wasm")).unwrap(), Path::new("mine/r.wasm"));
    }
}
