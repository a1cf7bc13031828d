//! The location of a question set: a file, or a split of a Hugging Face dataset's folder.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use corver_core::Question;

use crate::hub;
use crate::record::{QuestionError, read_questions};

/// Extensions of question files.
const EXTENSIONS: [&str; 4] = ["parquet", "jsonl", "ndjson", "json"];
/// Deepest level of a dataset's folders that is searched for files.
const MAX_DEPTH: usize = 3;

/// A file, a folder, or a folder with the name of a split: `FOLDER#train`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuestionLocation {
    /// Path of the file or folder.
    pub path: PathBuf,
    /// Name of a split. `None`: the path is a file, or a folder with a single split.
    pub split: Option<String>,
}

impl QuestionLocation {
    /// Parses `PATH` or `FOLDER#SPLIT`. A path that exists and has a `#` in its name is not split.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        match text.rsplit_once('#') {
            Some((folder, split))
                if !folder.is_empty() && !split.is_empty() && !Path::new(text).exists() =>
            {
                Self { path: folder.into(), split: Some(split.to_owned()) }
            }
            _ => Self { path: text.into(), split: None },
        }
    }

    /// Finds a path, or a dataset that Hugging Face's tools have downloaded, by its name. The path
    /// of the result is absolute.
    ///
    /// # Errors
    /// Fails if there is neither. The message has the command that downloads the dataset.
    pub fn find(text: &str) -> Result<Self, QuestionError> {
        let Self { mut path, split } = Self::parse(text);
        let snapshot = path.to_str().and_then(|name| hub::snapshot(hub::RepoKind::Dataset, name));
        if let Some(snapshot) = snapshot
            && !path.exists()
        {
            path = snapshot;
        }
        let path =
            std::path::absolute(&path).map_err(QuestionError::io("resolve the path", &path))?;
        if !path.exists() {
            return Err(QuestionError::Invalid(hub::missing_message(
                hub::RepoKind::Dataset,
                &path,
            )));
        }
        Ok(Self { path, split })
    }

    /// Reads all questions, file by file.
    ///
    /// # Errors
    /// Fails if a file cannot be found or read, or has no questions.
    pub fn read(&self) -> Result<Vec<(PathBuf, Vec<Question>)>, QuestionError> {
        let mut files = Vec::new();
        for path in self.files()? {
            let questions = read_questions(&path)?;
            files.push((path, questions));
        }
        Ok(files)
    }

    /// Returns a name for results: that of the file without its extension, or of the folder, with
    /// the split.
    #[must_use]
    pub fn name(&self) -> String {
        let name = if self.path.is_dir() { self.path.file_name() } else { self.path.file_stem() };
        let name = name.unwrap_or_default().to_string_lossy();
        match &self.split {
            Some(split) => format!("{name}-{}", split.replace('/', "-")),
            None => name.into_owned(),
        }
    }

    /// Returns the question files, in order. A path that is no folder is returned unchecked.
    ///
    /// # Errors
    /// Fails if a folder cannot be listed, or has several splits and none is named, or the split is
    /// neither one file nor one complete set of files.
    pub fn files(&self) -> Result<Vec<PathBuf>, QuestionError> {
        let path = self.path.clone();
        if self.split.is_none() && !path.is_dir() {
            return Ok(vec![path]);
        }
        let mut splits = splits(&path)?;
        let names: Vec<String> = splits.keys().cloned().collect();
        let Some(split) = &self.split else {
            return match names.len() {
                0 => Err(QuestionError::Invalid(format!(
                    "{} holds no file of questions (.parquet, .jsonl or .json)",
                    path.display()
                ))),
                1 => checked_paths(&splits.into_values().flatten().collect::<Vec<_>>()),
                _ => Err(QuestionError::Invalid(format!(
                    "{} has several splits; choose one: {}",
                    path.display(),
                    choices(&path, &names)
                ))),
            };
        };
        let mut named =
            names.iter().filter(|name| *name == split || name.ends_with(&format!("/{split}")));
        match (splits.remove(split), named.next(), named.next()) {
            (Some(files), ..) => checked_paths(&files),
            (None, Some(name), None) => checked_paths(&splits.remove(name).unwrap_or_default()),
            _ => Err(QuestionError::Invalid(format!(
                "{} has no single split {split:?}, but {}",
                path.display(),
                choices(&path, &names)
            ))),
        }
    }
}

impl fmt::Display for QuestionLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        match &self.split {
            Some(split) => write!(f, "#{split}"),
            None => Ok(()),
        }
    }
}

fn choices(path: &Path, splits: &[String]) -> String {
    let mut choices = Vec::with_capacity(splits.len());
    for split in splits {
        choices.push(format!("{}#{split}", path.display()));
    }
    choices.join(", ")
}

/// A file of a split.
struct SplitFile {
    path: PathBuf,
    /// Number of the file in its set. `None`: the file is no part of a set.
    number: Option<u64>,
    /// Number of files of the set, if the name has it.
    set_size: Option<usize>,
}

impl SplitFile {
    /// True if two files of a split may hold the same questions.
    fn may_repeat(&self, other: &Self) -> bool {
        self.number.is_none() || other.number.is_none() || self.number == other.number
    }
}

/// Returns the paths of the files of a split.
///
/// # Errors
/// Fails if two files may hold the same questions, or files of a set are missing.
fn checked_paths(files: &[SplitFile]) -> Result<Vec<PathBuf>, QuestionError> {
    for (index, file) in files.iter().enumerate() {
        if let Some(earlier) = files[..index].iter().find(|earlier| file.may_repeat(earlier)) {
            return Err(QuestionError::Invalid(format!(
                "{} and {} may hold the same questions; name the file to read, or remove the other",
                earlier.path.display(),
                file.path.display()
            )));
        }
    }
    for file in files {
        // Numbers without a size are consecutive.
        let before = file.number.filter(|number| *number > 1).map(|number| number - 1);
        let is_consecutive = before.is_none_or(|n| files.iter().any(|f| f.number == Some(n)));
        if !is_consecutive || file.set_size.is_some_and(|size| size != files.len()) {
            let size = file.set_size.map_or("several".to_owned(), |size| size.to_string());
            return Err(QuestionError::Invalid(format!(
                "{} is one of {size} files, but its split has {}; download the set again, or name \
                 a file to read it alone",
                file.path.display(),
                files.len()
            )));
        }
    }
    Ok(files.iter().map(|file| file.path.clone()).collect())
}

/// Returns the files of each split of a dataset's folder, in Hugging Face's layouts:
///
/// | file | split |
/// | --- | --- |
/// | `train.jsonl`, `data/train-00000-of-00002.parquet` | `train` |
/// | `nq_open/validation-00000-of-00001.parquet` | `nq_open/validation` |
/// | `default/test/0000.parquet` (the hub's own conversion) | `default/test` |
fn splits(folder: &Path) -> Result<BTreeMap<String, Vec<SplitFile>>, QuestionError> {
    let mut splits: BTreeMap<String, Vec<SplitFile>> = BTreeMap::new();
    let mut folders = vec![(folder.to_owned(), Vec::new())];
    while let Some((path, names)) = folders.pop() {
        let list = || QuestionError::io("list the folder", &path);
        for entry in std::fs::read_dir(&path).map_err(list())? {
            let entry = entry.map_err(list())?;
            let entry_path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with('.') {
                continue;
            }
            if entry_path.is_dir() {
                if names.len() < MAX_DEPTH {
                    folders.push((entry_path, [&names[..], &[name]].concat()));
                }
            } else if let Some((split, file)) = split_of(&names, &entry_path) {
                splits.entry(split).or_default().push(file);
            }
        }
    }
    for files in splits.values_mut() {
        files.sort_by(|one, other| one.path.cmp(&other.path));
    }
    Ok(splits)
}

/// Returns the name of the split that a file belongs to, with the file. `None`: it is no question
/// file.
fn split_of(folders: &[String], path: &Path) -> Option<(String, SplitFile)> {
    let name = path.file_name()?.to_string_lossy();
    let (stem, extension) = name.strip_suffix(".gz").unwrap_or(&name).rsplit_once('.')?;
    let is_metadata = matches!(stem, "dataset_info" | "dataset_infos" | "state" | "dataset_dict");
    if !EXTENSIONS.contains(&extension) || is_metadata {
        return None;
    }
    let mut parts: Vec<&str> =
        folders.iter().map(String::as_str).filter(|folder| *folder != "data").collect();
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // NAME-00000-of-00002; older datasets append a hash.
    let words: Vec<&str> = stem.split('-').collect();
    let (split_name, mut number, set_size) = match words[..] {
        [ref before @ .., number, "of", size] | [ref before @ .., number, "of", size, _]
            if is_number(number) && is_number(size) =>
        {
            (before.join("-"), Some(number), size.parse::<usize>().ok())
        }
        _ => (stem.to_owned(), None, None),
    };
    if is_number(&split_name) && !parts.is_empty() {
        number = number.or(Some(split_name.as_str()));
    } else {
        parts.push(&split_name);
    }
    let number = number.and_then(|digits| digits.parse().ok());
    let file = SplitFile { path: path.to_owned(), number, set_size };
    Some((parts.join("/"), file))
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

    fn files(folder: &Path, split: &str) -> Result<Vec<String>, QuestionError> {
        let location = QuestionLocation::parse(&format!("{}{split}", folder.display()));
        let mut names = Vec::new();
        for path in location.files()? {
            names.push(path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned());
        }
        Ok(names)
    }

    #[test]
    fn split_name_follows_hub_file_name() {
        let split = |path: &str| {
            let mut folders: Vec<String> = path.split('/').map(str::to_owned).collect();
            let name = folders.pop().unwrap();
            split_of(&folders, Path::new(&name)).map(|(split, _)| split)
        };
        for (file, expected) in [
            ("train.jsonl", "train"),
            ("train.jsonl.gz", "train"),
            ("data/train-00000-of-00002.parquet", "train"),
            ("data/train-00000-of-00001-b42a775f407cee45.parquet", "train"),
            ("nq_open/validation-00000-of-00001.parquet", "nq_open/validation"),
            ("rc.nocontext/test-00003-of-00004.parquet", "rc.nocontext/test"),
            ("default/test/0000.parquet", "default/test"),
            ("0000.parquet", "0000"),
            ("open-ended-00000-of-00001.parquet", "open-ended"),
        ] {
            assert_eq!(split(file).as_deref(), Some(expected), "{file}");
        }
        for other in ["README.md", "test.tsv", "dataset_infos.json", "train"] {
            assert_eq!(split(other), None, "{other}");
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
    fn split_with_questions_in_two_files_is_refused() {
        for twice in [
            ["train.jsonl", "train.jsonl.gz"],
            ["train.jsonl", "train.parquet"],
            ["data/train.jsonl", "train.jsonl"],
            ["data/train-00000-of-00002.parquet", "train.jsonl"],
            ["data/train-00000-of-00001.parquet", "data/train-00000-of-00001-b42a775f.parquet"],
            ["default/train/0000.jsonl", "default/train/0000.parquet"],
            ["train-0-of-2.jsonl", "train-00000-of-00002.jsonl"],
        ] {
            let dataset = folder(&twice);
            let error = files(dataset.path(), "#train").unwrap_err().to_string();
            let has_names = twice.iter().all(|name| error.contains(*name));
            assert!(has_names && error.contains(" may hold the same questions"), "{error}");
            assert_eq!(files(dataset.path(), &format!("/{}", twice[0])).unwrap(), [twice[0]]);
        }
        let hub = folder(&["default/train/0000.parquet", "default/train/0001.parquet"]);
        assert_eq!(files(hub.path(), "#train").unwrap().len(), 2);
    }

    #[test]
    fn split_with_a_missing_file_is_refused() {
        let half = "validation-00000-of-00002.parquet";
        let dataset = folder(&[half, "test-1-of-2.jsonl", "test-2-of-2.jsonl"]);
        let error = files(dataset.path(), "#validation").unwrap_err().to_string();
        assert!(error.contains(&format!("{half} is one of 2 files, ")), "{error}");
        assert_eq!(files(dataset.path(), "#test").unwrap().len(), 2);
        assert_eq!(files(dataset.path(), &format!("/{half}")).unwrap(), [half]);
        let gap = folder(&["default/train/0000.parquet", "default/train/0002.parquet"]);
        let error = files(gap.path(), "#train").unwrap_err().to_string();
        assert!(
            error.contains("0002.parquet is one of several files, but its split has 2"),
            "{error}"
        );
        let error = files(folder(&[half]).path(), "").unwrap_err().to_string();
        assert!(error.contains(&format!("{half} is one of 2 files, ")), "{error}");
    }

    #[test]
    fn plain_question_file_is_used_directly() {
        let with_hash = folder(&["a#b.json"]);
        assert_eq!(files(with_hash.path(), "/a#b.json").unwrap(), ["a#b.json"]);
        assert_eq!(
            QuestionLocation::parse("nowhere.json").files().unwrap(),
            [PathBuf::from("nowhere.json")]
        );
        let split = QuestionLocation { path: "nq_open".into(), split: Some("rc/dev".into()) };
        assert_eq!(
            (split.name().as_str(), split.to_string().as_str()),
            ("nq_open-rc-dev", "nq_open#rc/dev")
        );
    }
}
