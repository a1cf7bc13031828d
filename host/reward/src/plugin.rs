//! The search for a rule's file: on this machine, or fetched from another one into the cache.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use corver_rules::PluginFile;
use corver_settings::PluginRef;

use crate::folders;

/// Jaro–Winkler similarity from which a file name is suggested for a misspelt one.
const SIMILAR: f64 = 0.8;

/// Returns a plugin's path from the current folder; `None` for a bare name without a file there,
/// which names a shipped rule.
pub fn local_path(plugin: &Path) -> Option<PathBuf> {
    if let Some(file) = with_extension(plugin).into_iter().find(|path| path.is_file()) {
        return Some(file);
    }
    (!is_bare(plugin)).then(|| plugin.to_owned())
}

/// Largest plugin that is fetched, bytes: the default of `rule.limits.file_bytes`.
const MAX_FETCHED_BYTES: u64 = 64 << 20;

/// Finds the file of a plugin, and fetches it first if it comes from another machine and is not in
/// the cache.
///
/// # Errors
/// If there is no such file, or it cannot be fetched.
pub fn find(plugin: &PluginRef) -> Result<PluginFile> {
    let path = match plugin.local() {
        Some(path) => find_local(path)?,
        None => fetched(plugin)?,
    };
    Ok(PluginFile { path, blake3: plugin.blake3.clone() })
}

/// Returns the cached file of a URL, fetched if it is not there or has another hash.
fn fetched(plugin: &PluginRef) -> Result<PathBuf> {
    let expected = plugin.blake3.as_deref().context("a URL has a hash")?;
    let folder = folders::cache()?.join("plugins").join(expected);
    let path = folder.join(plugin.name()).with_added_extension("wasm");
    let has_hash = |wasm: &[u8]| *blake3::hash(wasm).to_hex() == *expected;
    if std::fs::read(&path).is_ok_and(|wasm| has_hash(&wasm)) {
        return Ok(path);
    }
    tracing::info!(rule = plugin.location, "fetching a rule");
    let wasm = corver_fetch::fetch(&plugin.location, MAX_FETCHED_BYTES)?;
    if !has_hash(&wasm) {
        bail!(
            "{} has another file: its BLAKE3 hash is {}, and {expected} was given",
            plugin.location,
            blake3::hash(&wasm).to_hex()
        );
    }
    corver_files::create_folder(&folder)
        .and_then(|()| corver_files::replace(&path, &wasm))
        .with_context(|| format!("writing {}", path.display()))?;
    Ok(path)
}

/// Finds the file of a path or name. A bare name is looked up in the folders of the
/// [`search_path`].
///
/// # Errors
/// If there is no such file; the message suggests one with a similar name.
fn find_local(plugin: &Path) -> Result<PathBuf> {
    let folders = if is_bare(plugin) { search_path() } else { vec![PathBuf::new()] };
    for candidate in with_extension(plugin) {
        for folder in &folders {
            let path = folder.join(&candidate);
            // A pipe or a device counts as found, so that loading reports the problem with it.
            if path.exists() && !path.is_dir() {
                return Ok(path);
            }
        }
    }
    let hint = match suggestion(plugin) {
        Some(similar) => format!("; did you mean {}?", similar.display()),
        None if is_bare(plugin) => "; it is neither in this folder nor in plugins/dist \
                                    (`make plugins` builds the shipped rules)"
            .to_owned(),
        None => String::new(),
    };
    bail!("there is no plugin {}{hint}", plugin.display())
}

/// Returns the folders in which a bare name is looked up, in this order.
pub fn search_path() -> Vec<PathBuf> {
    vec![PathBuf::new(), PathBuf::from("plugins/dist"), folders::home().join("plugins/dist")]
}

/// Returns every plugin in the [`search_path`], in order of path.
pub fn installed() -> BTreeSet<PathBuf> {
    let mut plugins = BTreeSet::new();
    for folder in search_path() {
        for path in wasm_files(&folder) {
            plugins.insert(path.canonicalize().unwrap_or(path));
        }
    }
    plugins
}

/// Returns the `.wasm` files in a folder; none if it cannot be read.
pub fn wasm_files(folder: &Path) -> BTreeSet<PathBuf> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let Ok(entries) = std::fs::read_dir(folder) else { return BTreeSet::new() };
    entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "wasm"))
        .collect()
}

/// Suggests a plugin for a path that is none: a file in it if it is a folder, or else a file with a
/// similar name.
fn suggestion(plugin: &Path) -> Option<PathBuf> {
    if plugin.is_dir() {
        wasm_files(plugin).pop_first()
    } else if is_bare(plugin) {
        most_similar(plugin, installed()).and_then(|path| path.file_name().map(PathBuf::from))
    } else {
        most_similar(plugin, wasm_files(plugin.parent()?))
    }
}

/// Returns the file whose name is most similar to the plugin's; `None` if none is similar.
fn most_similar(plugin: &Path, files: BTreeSet<PathBuf>) -> Option<PathBuf> {
    let plugin_stem = plugin.file_stem()?.to_string_lossy();
    let mut best = None;
    let mut best_similarity = SIMILAR;
    for file in files {
        let Some(stem) = file.file_stem() else { continue };
        let similarity = strsim::jaro_winkler(&stem.to_string_lossy(), &plugin_stem);
        // The last of equally similar files, as long as they are similar enough.
        if similarity > SIMILAR && similarity >= best_similarity {
            best_similarity = similarity;
            best = Some(file);
        }
    }
    best
}

fn is_bare(plugin: &Path) -> bool {
    plugin.components().count() == 1
}

/// Returns the path of a plugin as written, and with `.wasm` appended.
fn with_extension(plugin: &Path) -> [PathBuf; 2] {
    [plugin.to_owned(), plugin.with_added_extension("wasm")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_plugin_name_means_shipped_rule() {
        assert_eq!(local_path(Path::new("min.wasm")), None);
        assert_eq!(local_path(Path::new("mine/r.wasm")).unwrap(), Path::new("mine/r.wasm"));
    }
}
