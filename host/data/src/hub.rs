//! Models and datasets that Hugging Face's own tools have downloaded.

use std::path::{Path, PathBuf};

/// What a repository of the hub holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Weights and tokenizer.
    Model,
    /// Questions.
    Dataset,
}

impl Kind {
    /// How its folder in the cache begins.
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

/// The newest snapshot of `OWNER/NAME` in the cache; `None` where there is none, or the text is no
/// such name.
pub fn snapshot(kind: Kind, name: &str) -> Option<PathBuf> {
    let repository =
        cache()?.join(format!("{}--{}", kind.prefix(), repository(name)?.replace('/', "--")));
    let commit = std::fs::read_to_string(repository.join("refs/main")).ok()?;
    Some(repository.join("snapshots").join(commit.trim())).filter(|snapshot| snapshot.is_dir())
}

/// What is said of a file or folder that is not there: how to get it, where the setting can have
/// been a name.
pub fn missing(kind: Kind, path: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    let is_file = || {
        path.extension().is_some_and(|extension| {
            ["json", "jsonl", "parquet"].iter().any(|file| extension == *file)
        })
    };
    let name = path
        .strip_prefix(here)
        .ok()
        .and_then(Path::to_str)
        .and_then(repository)
        .filter(|_| !is_file());
    match name.zip(cache()) {
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

/// `OWNER/NAME`, in characters that the hub allows.
fn repository(text: &str) -> Option<&str> {
    let (owner, name) = text.split_once('/')?;
    let is_name = |part: &str| {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        part.starts_with(|c: char| c.is_ascii_alphanumeric()) && part.chars().all(allowed)
    };
    (is_name(owner) && is_name(name)).then_some(text)
}

/// As `huggingface_hub` looks for it.
fn cache() -> Option<PathBuf> {
    let set =
        |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
    set("HF_HUB_CACHE")
        .or_else(|| Some(set("HF_HOME").or_else(|| Some(home()?.join("huggingface")))?.join("hub")))
}
