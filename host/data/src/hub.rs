//! The cache of Hugging Face's own tools: models and datasets that they have downloaded.

use std::path::{Path, PathBuf};

/// Jaro–Winkler similarity above which a name is suggested, 0 to 1.
const SIMILAR: f64 = 0.85;

/// The kind of a repository of the hub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepoKind {
    /// A repository with a model's weights and tokenizer.
    Model,
    /// A repository with question files.
    Dataset,
}

impl RepoKind {
    /// Returns the prefix of such repositories' folders in the cache.
    fn prefix(self) -> &'static str {
        match self {
            Self::Model => "models",
            Self::Dataset => "datasets",
        }
    }

    fn download(self) -> &'static str {
        match self {
            Self::Model => "hf download",
            Self::Dataset => "hf download --repo-type dataset",
        }
    }
}

/// Returns the newest snapshot of `OWNER/NAME` in the cache. `None`: it is not there, or the text
/// is no such name.
pub fn snapshot(kind: RepoKind, name: &str) -> Option<PathBuf> {
    let name = repository_name(name)?.replace('/', "--");
    let folder = cache()?.join(format!("{}--{name}", kind.prefix()));
    let commit = std::fs::read_to_string(folder.join("refs/main")).ok()?;
    let snapshot = folder.join("snapshots").join(commit.trim());
    snapshot.is_dir().then_some(snapshot)
}

/// Returns the message about a file or folder that does not exist. It has the most similar name of
/// its folder; or, if the path may be meant as `OWNER/NAME`, the command that downloads it.
pub fn missing_message(kind: RepoKind, path: &Path) -> String {
    if let Some(similar) = most_similar_sibling(path) {
        return format!("there is no {}; did you mean {}?", path.display(), similar.display());
    }
    match name_in(path).zip(cache()) {
        Some((name, cache)) => {
            format!(
                "there is no {}, and no {name} in {}; `{} {name}` gets it",
                path.display(),
                cache.display(),
                kind.download()
            )
        }
        None => format!("there is no {}", path.display()),
    }
}

/// Returns the file or folder in the folder of `path` whose name is most similar.
fn most_similar_sibling(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_string_lossy();
    let mut best = None;
    let mut best_similarity = SIMILAR;
    for entry in std::fs::read_dir(path.parent()?).ok()?.flatten() {
        let similarity = strsim::jaro_winkler(&entry.file_name().to_string_lossy(), &name);
        if similarity > best_similarity {
            best_similarity = similarity;
            best = Some(entry.path());
        }
    }
    best
}

/// Returns the `OWNER/NAME` that an absolute path was made of, unless it is a question file's.
fn name_in(path: &Path) -> Option<&str> {
    let extension = path.extension().unwrap_or_default();
    if ["json", "jsonl", "ndjson", "parquet", "gz"].iter().any(|of_file| extension == *of_file) {
        return None;
    }
    let here = std::env::current_dir().unwrap_or_default();
    repository_name(path.strip_prefix(here).ok()?.to_str()?)
}

/// Returns the text if it is `OWNER/NAME`, in characters that the hub allows.
fn repository_name(text: &str) -> Option<&str> {
    let (owner, name) = text.split_once('/')?;
    (is_hub_name(owner) && is_hub_name(name)).then_some(text)
}

fn is_hub_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

/// Returns the folder of the cache, by the rules of `huggingface_hub`.
fn cache() -> Option<PathBuf> {
    if let Some(cache) = path_variable("HF_HUB_CACHE") {
        return Some(cache);
    }
    if let Some(home) = path_variable("HF_HOME") {
        return Some(home.join("hub"));
    }
    let user_cache = match path_variable("XDG_CACHE_HOME") {
        Some(folder) => folder,
        None => path_variable("HOME")?.join(".cache"),
    };
    Some(user_cache.join("huggingface/hub"))
}

fn path_variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_path_is_compared_with_its_neighbours() {
        let dir = tempfile::tempdir().unwrap();
        let model = dir.path().join("Qwen3-8B");
        std::fs::create_dir(&model).unwrap();
        let message = |name| missing_message(RepoKind::Model, &dir.path().join(name));
        let suggestion = format!("did you mean {}?", model.display());
        assert!(message("Qwen3-8b").ends_with(&suggestion), "{}", message("Qwen3-8b"));
        assert!(!message("llama").contains("did you mean"));
    }
}
