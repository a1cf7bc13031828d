//! Files and folders that are replaced as a whole: whoever reads them sees the old one or the new
//! one, also after a crash.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::{Result, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

/// Prefix of the names of files that are being written.
pub const TEMPORARY: &str = ".tmp";

/// Writes a file, in place of one that exists.
///
/// # Errors
/// If the folder cannot be written into.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    write_temporary(path, bytes)?.persist(path).map_err(|error| error.error)?;
    sync_folder(parent(path))
}

/// Writes a new file.
///
/// # Errors
/// If the file exists, or the folder cannot be written into.
pub fn create(path: &Path, bytes: &[u8]) -> Result<()> {
    write_temporary(path, bytes)?.persist_noclobber(path).map_err(|error| error.error)?;
    sync_folder(parent(path))
}

/// Removes what a process that was killed has left of files that it was writing.
///
/// # Errors
/// If the folder cannot be listed, or a file cannot be removed.
pub fn remove_temporary_files(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().as_encoded_bytes().starts_with(TEMPORARY.as_bytes()) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Writes the names in a folder to disk.
///
/// # Errors
/// If the folder cannot be opened.
pub fn sync_folder(folder: &Path) -> Result<()> {
    File::open(folder)?.sync_all()
}

/// Returns the folder that a path is in.
#[must_use]
pub fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn write_temporary(path: &Path, bytes: &[u8]) -> Result<NamedTempFile> {
    let mut file = tempfile::Builder::new()
        .prefix(TEMPORARY)
        .permissions(Permissions::from_mode(0o666)) // the user's mask takes from it
        .tempfile_in(parent(path))?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    Ok(file)
}

/// A folder that is being filled under a temporary name.
#[derive(Debug)]
#[must_use = "a folder that is not finished never gets its name"]
pub struct NewFolder {
    temporary: PathBuf,
    target: PathBuf,
}

impl NewFolder {
    /// Creates an empty folder, `TARGET.tmp`, in place of one that a killed process has left.
    ///
    /// # Errors
    /// If the folder cannot be created.
    pub fn create(target: &Path) -> Result<Self> {
        let temporary = with_ending(target, ".tmp");
        remove_folder(&temporary)?;
        fs::create_dir_all(&temporary)?;
        Ok(Self { temporary, target: target.to_owned() })
    }

    /// Returns the folder's temporary path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.temporary
    }

    /// Renames the folder to its target. A folder that is there is replaced.
    ///
    /// # Errors
    /// If a folder cannot be renamed or removed.
    pub fn finish(self) -> Result<()> {
        let old = with_ending(&self.target, ".old");
        remove_folder(&old)?;
        sync_folder(&self.temporary)?;
        if self.target.exists() {
            fs::rename(&self.target, &old)?;
        }
        fs::rename(&self.temporary, &self.target)?;
        sync_folder(parent(&self.target))?;
        remove_folder(&old)
    }
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    PathBuf::from(name)
}

fn remove_folder(path: &Path) -> Result<()> {
    if path.exists() { fs::remove_dir_all(path) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

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
    fn temporary_files_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(".tmpabc"), "").unwrap();
        fs::write(folder.path().join("kept"), "").unwrap();
        remove_temporary_files(folder.path()).unwrap();
        let names: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["kept"]);
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
        let names: Vec<_> =
            fs::read_dir(&target).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["new"]);
        assert_eq!(
            fs::read_dir(parent.path()).unwrap().count(),
            1,
            "neither .tmp nor .old is left"
        );
    }
}
