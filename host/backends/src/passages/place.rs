//! Where passages lie, and how a configuration says so.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use crate::passages::PassageError;

/// Added to the name of an index.
const SUFFIX: &str = ".passages";

/// An index, and the folder of its passages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    index: PathBuf,
    dir: Option<PathBuf>,
    folder: PathBuf,
}

impl Place {
    /// The passages of an index lie in `NAME.passages`: in `dir`, or beside the index.
    ///
    /// # Errors
    /// Where the index's name is not known, such as that of `..`, and cannot be found out.
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

    /// The index.
    #[must_use]
    pub fn index(&self) -> &Path {
        &self.index
    }

    /// The folder of its passages.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The folder that passages lie in, where it is not the index's own.
    #[must_use]
    pub fn dir(&self) -> Option<&Path> {
        self.dir.as_deref()
    }

    /// The command that makes them.
    pub(crate) fn remedy(&self) -> String {
        let dir =
            self.dir.as_ref().map(|dir| format!(" --dir {}", dir.display())).unwrap_or_default();
        format!("corver-host index passages --index {}{dir}", self.index.display())
    }

    pub(crate) fn damaged(&self, problem: impl Display) -> PassageError {
        PassageError::InvalidPassages(format!(
            "the passages in {} are damaged: {problem}; make them anew with `{}`",
            self.folder.display(),
            self.remedy()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passage_folder_is_beside_index_or_configured() {
        let beside = Place::new(Path::new("/data/wiki/"), None).unwrap();
        assert_eq!(beside.folder(), Path::new("/data/wiki.passages"));
        assert_eq!(beside.remedy(), "corver-host index passages --index /data/wiki/");
        let apart = Place::new(Path::new("wiki.v4"), Some(Path::new("own"))).unwrap();
        assert_eq!(apart.folder(), Path::new("own/wiki.v4.passages"));
        assert_eq!(apart.remedy(), "corver-host index passages --index wiki.v4 --dir own");
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("wiki/inside")).unwrap();
        let relative = Place::new(&folder.path().join("wiki/inside/.."), None).unwrap();
        assert_eq!(relative.folder().file_name().unwrap(), "wiki.passages");
    }
}
