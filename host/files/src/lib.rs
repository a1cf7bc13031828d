//! Atomic replacement of files and folders: a reader sees the old version or the new one, also after
//! a crash. Reading of users' text files: [`read_text`]; of their tables: [`QuoteCheck`].

mod quotes;
mod text;

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::{Error, ErrorKind, Result, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

pub use quotes::{QuoteCheck, QuoteProblem};
pub use text::{
    SETTINGS_BYTES, open_text, read_settings_text, read_text, read_text_from, strip_bom,
};

/// File name prefix of temporary files.
pub const TEMPORARY: &str = ".tmp";

/// Writes a file atomically; an existing file is replaced.
///
/// # Errors
/// Fails if the folder is not writable.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    write_temporary(path, bytes)?.persist(path).map_err(|error| error.error)?;
    sync_folder(parent(path))
}

/// Writes a new file atomically.
///
/// # Errors
/// Fails if the file exists or the folder is not writable.
pub fn create(path: &Path, bytes: &[u8]) -> Result<()> {
    write_temporary(path, bytes)?.persist_noclobber(path).map_err(|error| error.error)?;
    sync_folder(parent(path))
}

/// Flushes a folder's entries to disk. A renamed file survives a crash only after this call.
///
/// # Errors
/// Fails if the folder cannot be opened.
pub fn sync_folder(folder: &Path) -> Result<()> {
    File::open(folder)?.sync_all()
}

/// Creates a folder with its parents. It survives a crash.
///
/// # Errors
/// Fails if the folder cannot be created.
pub fn create_folder(path: &Path) -> Result<()> {
    fs::create_dir_all(path)?;
    sync_folder(parent(path))
}

/// Returns the folder that holds a path; `.` for a bare file name.
#[must_use]
pub fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn write_temporary(path: &Path, bytes: &[u8]) -> Result<NamedTempFile> {
    let mut file = tempfile::Builder::new()
        .prefix(TEMPORARY)
        .permissions(Permissions::from_mode(0o666)) // the umask applies; tempfile's default is 0600
        .tempfile_in(parent(path))?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    Ok(file)
}

/// A folder that is filled under a temporary name and then renamed.
#[derive(Debug)]
#[must_use = "the folder is renamed to its target only by `finish`"]
pub struct NewFolder {
    temporary: PathBuf,
    target: PathBuf,
}

impl NewFolder {
    /// Creates an empty folder `.NAME.tmp` next to the target, in place of one of a killed
    /// process.
    ///
    /// # Errors
    /// Fails if the target has no name, as `..` has none, or the folder cannot be created.
    pub fn create(target: &Path) -> Result<Self> {
        let temporary = hidden(target, ".tmp")?;
        remove_folder(&temporary)?;
        fs::create_dir_all(&temporary)?;
        Ok(Self { temporary, target: target.to_owned() })
    }

    /// Returns the folder's temporary path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.temporary
    }

    /// Renames the folder to its target. An existing folder is renamed to `.NAME.old`, and then removed.
    ///
    /// # Errors
    /// Fails if a folder cannot be renamed or removed.
    pub fn finish(self) -> Result<()> {
        let old = hidden(&self.target, ".old")?;
        remove_folder(&old)?;
        sync_folder(&self.temporary)?;
        // A folder that is not empty cannot be renamed onto, so the old one moves away first.
        if self.target.exists() {
            fs::rename(&self.target, &old)?;
        }
        fs::rename(&self.temporary, &self.target)?;
        sync_folder(parent(&self.target))?;
        remove_folder(&old)
    }
}

/// Returns `.NAME` with a suffix, next to a path. Files of users rarely have such names.
fn hidden(path: &Path, suffix: &str) -> Result<PathBuf> {
    let Some(name) = path.file_name() else {
        let problem = format!("{} names no folder that can be replaced", path.display());
        return Err(Error::new(ErrorKind::InvalidInput, problem));
    };
    let mut hidden_name = OsString::from(".");
    hidden_name.push(name);
    hidden_name.push(suffix);
    Ok(parent(path).join(hidden_name))
}

fn remove_folder(path: &Path) -> Result<()> {
    if path.exists() { fs::remove_dir_all(path) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names_in(folder: &Path) -> Vec<OsString> {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    }

    #[test]
    fn file_is_created_or_replaced_with_default_mode() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let plain = folder.path().join("plain");
        create(&path, b"1").unwrap();
        assert_eq!(create(&path, b"2").unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"1");
        replace(&path, b"3").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"3");
        fs::write(&plain, "").unwrap();
        let mode = |path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&path), mode(&plain));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "no temporary file is left");
    }

    #[test]
    fn folder_appears_only_when_complete() {
        let parent = tempfile::tempdir().unwrap();
        let target = parent.path().join("target");
        fs::create_dir(&target).unwrap();
        fs::write(target.join("old"), "").unwrap();
        let crashed = NewFolder::create(&target).unwrap();
        fs::write(crashed.path().join("half"), "").unwrap();
        drop(crashed);

        let folder = NewFolder::create(&target).unwrap();
        fs::write(folder.path().join("new"), "").unwrap();
        assert!(target.join("old").exists());
        folder.finish().unwrap();
        assert_eq!(names_in(&target), ["new"]);
        assert_eq!(
            fs::read_dir(parent.path()).unwrap().count(),
            1,
            "neither .tmp nor .old is left"
        );
    }

    #[test]
    fn neighbours_of_a_new_folder_are_not_removed() {
        let parent = tempfile::tempdir().unwrap();
        for neighbour in ["target.tmp", "target.old"] {
            fs::create_dir(parent.path().join(neighbour)).unwrap();
            fs::write(parent.path().join(neighbour).join("notes"), "").unwrap();
        }
        // With a slash at its end, the path names the same folder.
        for target in ["target", "target/"] {
            NewFolder::create(&parent.path().join(target)).unwrap().finish().unwrap();
        }
        let mut names = names_in(parent.path());
        names.sort();
        assert_eq!(names, ["target", "target.old", "target.tmp"]);
        assert!(parent.path().join("target.tmp/notes").exists());
        assert!(parent.path().join("target.old/notes").exists());
        assert_eq!(names_in(&parent.path().join("target")), [] as [&str; 0]);
        let unnamed = NewFolder::create(&parent.path().join("target/.."));
        assert_eq!(unnamed.unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}
