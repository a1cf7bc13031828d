//! The folder of an index's passages.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use crate::passages::PassageError;

/// Suffix of the folder's name, after the name of the index.
const SUFFIX: &str = ".passages";

/// The path of an index, and of the folder of its passages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassageLocation {
    index: PathBuf,
    dir: Option<PathBuf>,
    folder: PathBuf,
}

impl PassageLocation {
    /// Returns the location `NAME.passages` in `dir`, by default the folder that contains the index
    /// `NAME`.
    ///
    /// # Errors
    /// Fails if the path does not end in a name, as `..` does not, and cannot be resolved.
    pub fn new(index: &Path, dir: Option<&Path>) -> Result<Self, PassageError> {
        let named = match index.file_name() {
            Some(_) => index.to_owned(),
            None => index.canonicalize().map_err(PassageError::io("find", index))?,
        };
        let mut name = named.file_name().unwrap_or_default().to_owned();
        name.push(SUFFIX);
        let folder = match dir {
            Some(dir) => dir.join(name),
            None => named.with_file_name(name),
        };
        Ok(Self { index: index.to_owned(), dir: dir.map(Path::to_owned), folder })
    }

    /// Returns the path of the index.
    #[must_use]
    pub fn index(&self) -> &Path {
        &self.index
    }

    /// Returns the folder of the passages.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the configured parent folder. `None`: the one that contains the index.
    #[must_use]
    pub fn dir(&self) -> Option<&Path> {
        self.dir.as_deref()
    }

    /// Returns the command that builds the passages.
    pub(crate) fn build_command(&self) -> String {
        let dir =
            self.dir.as_ref().map(|dir| format!(" --dir {}", dir.display())).unwrap_or_default();
        format!("corver-host index passages --index {}{dir}", self.index.display())
    }

    pub(crate) fn damaged(&self, problem: impl Display) -> PassageError {
        PassageError::InvalidPassages(format!(
            "the passages in {} are damaged: {problem}; make them again with `{}`",
            self.folder.display(),
            self.build_command()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passage_folder_is_next_to_index_or_configured() {
        let sibling = PassageLocation::new(Path::new("/data/wiki/"), None).unwrap();
        assert_eq!(sibling.folder(), Path::new("/data/wiki.passages"));
        assert_eq!(sibling.build_command(), "corver-host index passages --index /data/wiki/");
        let configured =
            PassageLocation::new(Path::new("wiki.v4"), Some(Path::new("own"))).unwrap();
        assert_eq!(configured.folder(), Path::new("own/wiki.v4.passages"));
        assert_eq!(
            configured.build_command(),
            "corver-host index passages --index wiki.v4 --dir own"
        );
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("wiki/inside")).unwrap();
        let relative = PassageLocation::new(&folder.path().join("wiki/inside/.."), None).unwrap();
        assert_eq!(relative.folder().file_name().unwrap(), "wiki.passages");
    }
}
