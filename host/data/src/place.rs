//! Where questions are: a file, or a split of a Hugging Face dataset's folder.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use corver_core::Question;

use crate::hub;
use crate::record::{QuestionError, read_questions};

/// The extensions of question files.
const EXTENSIONS: [&str; 3] = ["parquet", "jsonl", "json"];
/// Folders in folders, where a dataset keeps its files.
const MAX_DEPTH: usize = 3;

/// Why the files of a place cannot be named.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DatasetError {
    /// A folder that cannot be listed.
    #[error("cannot list the folder {}: {source}", path.display())]
    Io {
        /// Path of the folder.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
    /// A file that holds no questions.
    #[error(transparent)]
    Questions(#[from] QuestionError),
    /// A folder without questions, or not with the one split that is asked for.
    #[error("{0}")]
    InvalidPlace(String),
}

fn choices(path: &Path, splits: &[String]) -> String {
    splits.iter().map(|split| format!("{}#{split}", path.display())).collect::<Vec<_>>().join(", ")
}

/// A file, a folder, or a folder with the name of a split: `FOLDER#train`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuestionPlace {
    /// The file or folder.
    pub path: PathBuf,
    /// Which split of the folder.
    pub split: Option<String>,
}

impl QuestionPlace {
    /// Reads a place as it is written. What exists under the whole name is that.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        match text
            .rsplit_once('#')
            .filter(|(folder, split)| !folder.is_empty() && !split.is_empty())
        {
            Some((folder, split)) if !Path::new(text).exists() => {
                Self { path: folder.into(), split: Some(split.to_owned()) }
            }
            _ => Self { path: text.into(), split: None },
        }
    }

    /// Finds a place as a user writes it: a path, or the name of a dataset that Hugging Face's tools
    /// have downloaded. The path of the result is absolute.
    ///
    /// # Errors
    /// If there is neither; the message says how to download it.
    pub fn find(text: &str) -> Result<Self, DatasetError> {
        let Self { mut path, split } = Self::parse(text);
        let snapshot = path.to_str().and_then(|name| hub::snapshot(hub::Kind::Dataset, name));
        if let Some(snapshot) = snapshot
            && !path.exists()
        {
            path = snapshot;
        }
        let path = std::path::absolute(&path)
            .map_err(|source| DatasetError::Io { path: path.clone(), source })?;
        if !path.exists() {
            return Err(DatasetError::InvalidPlace(hub::missing(hub::Kind::Dataset, &path)));
        }
        Ok(Self { path, split })
    }

    /// Reads all questions, file by file.
    ///
    /// # Errors
    /// If a file cannot be found or read.
    pub fn read(&self) -> Result<Vec<(PathBuf, Vec<Question>)>, DatasetError> {
        let mut files = Vec::new();
        for path in self.files()? {
            let questions = read_questions(&path)?;
            files.push((path, questions));
        }
        Ok(files)
    }

    /// A name for results: that of the file without its extension, or of the folder, with the
    /// split.
    #[must_use]
    pub fn name(&self) -> String {
        let name = if self.path.is_dir() { self.path.file_name() } else { self.path.file_stem() };
        let name = name.unwrap_or_default().to_string_lossy();
        self.split
            .iter()
            .fold(name.into_owned(), |name, split| format!("{name}-{}", split.replace('/', "-")))
    }

    /// The files that hold its questions, in order. A file is itself, there or not.
    ///
    /// # Errors
    /// Where a folder cannot be listed, or is not one split.
    pub fn files(&self) -> Result<Vec<PathBuf>, DatasetError> {
        let path = self.path.clone();
        if self.split.is_none() && !path.is_dir() {
            return Ok(vec![path]);
        }
        let mut splits = splits(&path)?;
        let names: Vec<String> = splits.keys().cloned().collect();
        let Some(split) = &self.split else {
            return match names.len() {
                0 => Err(DatasetError::InvalidPlace(format!(
                    "{} holds no file of questions (.parquet, .jsonl or .json)",
                    path.display()
                ))),
                1 => Ok(splits.into_values().flatten().collect()),
                _ => Err(DatasetError::InvalidPlace(format!(
                    "{} has several splits; choose one: {}",
                    path.display(),
                    choices(&path, &names)
                ))),
            };
        };
        let mut named =
            names.iter().filter(|name| *name == split || name.ends_with(&format!("/{split}")));
        match (splits.remove(split), named.next(), named.next()) {
            (Some(files), ..) => Ok(files),
            (None, Some(name), None) => Ok(splits.remove(name).unwrap_or_default()),
            _ => Err(DatasetError::InvalidPlace(format!(
                "{} has no single split {split:?}, but {}",
                path.display(),
                choices(&path, &names)
            ))),
        }
    }
}

impl fmt::Display for QuestionPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        self.split.iter().try_for_each(|split| write!(f, "#{split}"))
    }
}

/// The files of each split of a dataset's folder, as Hugging Face lays them out:
///
/// | file | split |
/// | --- | --- |
/// | `train.jsonl`, `data/train-00000-of-00002.parquet` | `train` |
/// | `nq_open/validation-00000-of-00001.parquet` | `nq_open/validation` |
/// | `default/test/0000.parquet` (the hub's own conversion) | `default/test` |
fn splits(folder: &Path) -> Result<BTreeMap<String, Vec<PathBuf>>, DatasetError> {
    let mut splits: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    let mut folders = vec![(folder.to_owned(), Vec::new())];
    while let Some((path, names)) = folders.pop() {
        let list = |source| DatasetError::Io { path: path.clone(), source };
        for entry in std::fs::read_dir(&path).map_err(list)? {
            let entry = entry.map_err(list)?;
            let (entry_path, name) =
                (entry.path(), entry.file_name().to_string_lossy().into_owned());
            if name.starts_with('.') {
                continue;
            }
            if entry_path.is_dir() {
                if names.len() < MAX_DEPTH {
                    folders.push((entry_path, [&names[..], &[name]].concat()));
                }
            } else if let Some(split) = split_of(&names, &name) {
                splits.entry(split).or_default().push(entry_path);
            }
        }
    }
    splits.values_mut().for_each(|files| files.sort());
    Ok(splits)
}

/// The split that a file belongs to; `None` where it holds no questions.
fn split_of(folders: &[String], name: &str) -> Option<String> {
    let (stem, extension) = name.rsplit_once('.')?;
    let is_about_the_data =
        matches!(stem, "dataset_info" | "dataset_infos" | "state" | "dataset_dict");
    if !EXTENSIONS.contains(&extension) || is_about_the_data {
        return None;
    }
    let mut parts: Vec<&str> =
        folders.iter().map(String::as_str).filter(|folder| *folder != "data").collect();
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // NAME-00000-of-00002, and in older datasets a hash behind it.
    let split_name = match stem.split('-').collect::<Vec<_>>()[..] {
        [ref stem_parts @ .., shard, "of", shards] if is_number(shard) && is_number(shards) => {
            stem_parts.join("-")
        }
        [ref stem_parts @ .., shard, "of", shards, _] if is_number(shard) && is_number(shards) => {
            stem_parts.join("-")
        }
        _ => stem.to_owned(),
    };
    if !is_number(&split_name) || parts.is_empty() {
        parts.push(&split_name);
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn folder(files: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        folder
    }

    fn files(folder: &Path, split: &str) -> Result<Vec<String>, DatasetError> {
        let place = QuestionPlace::parse(&format!("{}{split}", folder.display()));
        let within =
            |path: &PathBuf| path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
        Ok(place.files()?.iter().map(within).collect())
    }

    #[test]
    fn split_name_follows_hub_file_name() {
        let of = |path: &str| {
            let mut folders: Vec<String> = path.split('/').map(str::to_owned).collect();
            let name = folders.pop().unwrap();
            split_of(&folders, &name)
        };
        for (file, split) in [
            ("train.jsonl", "train"),
            ("data/train-00000-of-00002.parquet", "train"),
            ("data/train-00000-of-00001-b42a775f407cee45.parquet", "train"),
            ("nq_open/validation-00000-of-00001.parquet", "nq_open/validation"),
            ("rc.nocontext/test-00003-of-00004.parquet", "rc.nocontext/test"),
            ("default/test/0000.parquet", "default/test"),
            ("0000.parquet", "0000"),
            ("open-ended-00000-of-00001.parquet", "open-ended"),
        ] {
            assert_eq!(of(file).as_deref(), Some(split), "{file}");
        }
        for other in ["README.md", "test.tsv", "dataset_infos.json", "train"] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn dataset_split_is_selected_by_name() {
        let two = folder(&[
            "README.md",
            "data/test-00000-of-00001.parquet",
            "data/train-00001-of-00002.parquet",
            "data/train-00000-of-00002.parquet",
            ".cache/x.json",
        ]);
        let train = ["data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet"];
        assert_eq!(files(two.path(), "#train").unwrap(), train);
        let error = files(two.path(), "").unwrap_err();
        assert!(
            error.to_string().ends_with("#train") && error.to_string().contains("#test, "),
            "{error}"
        );
        let error = files(two.path(), "#dev").unwrap_err().to_string();
        assert!(error.contains(" has no single split \"dev\", but "), "{error}");

        let one = folder(&["nq_open/validation-00000-of-00001.parquet"]);
        for split in ["", "#validation", "#nq_open/validation"] {
            assert_eq!(files(one.path(), split).unwrap().len(), 1, "{split}");
        }
        let twice = folder(&["a/train.jsonl", "b/train.jsonl"]);
        let error = files(twice.path(), "#train").unwrap_err().to_string();
        assert!(error.contains(" has no single split \"train\", but "), "{error}");
        assert_eq!(files(twice.path(), "#b/train").unwrap(), ["b/train.jsonl"]);
        let error = files(folder(&["README.md"]).path(), "").unwrap_err().to_string();
        assert!(error.contains(" holds no file of questions "), "{error}");
    }

    #[test]
    fn plain_question_file_is_used_directly() {
        let with_hash = folder(&["a#b.json"]);
        assert_eq!(files(with_hash.path(), "/a#b.json").unwrap(), ["a#b.json"]);
        assert_eq!(
            QuestionPlace::parse("nowhere.json").files().unwrap(),
            [PathBuf::from("nowhere.json")]
        );
        let split = QuestionPlace { path: "nq_open".into(), split: Some("rc/dev".into()) };
        assert_eq!(
            (split.name().as_str(), split.to_string().as_str()),
            ("nq_open-rc-dev", "nq_open#rc/dev")
        );
    }
}
