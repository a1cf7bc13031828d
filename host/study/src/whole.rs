//! Files that appear whole, or not at all: written under another name first, and for others to read
//! as far as the user's mask lets them.

use std::fs::Permissions;
use std::io::{Result, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tempfile::NamedTempFile;

/// How the names of files begin that are being written.
pub(crate) const UNFINISHED: &str = ".tmp";

/// Writes a file, in place of one that is there.
///
/// # Errors
/// Where the folder cannot be written into.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    unfinished(path, bytes)?.persist(path).map(drop).map_err(|error| error.error)
}

/// Writes a new file.
///
/// # Errors
/// Where there is one already, or the folder cannot be written into.
pub fn create(path: &Path, bytes: &[u8]) -> Result<()> {
    unfinished(path, bytes)?.persist_noclobber(path).map(drop).map_err(|error| error.error)
}

fn unfinished(path: &Path, bytes: &[u8]) -> Result<NamedTempFile> {
    let folder =
        path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let readable = Permissions::from_mode(0o666);
    let mut file =
        tempfile::Builder::new().prefix(UNFINISHED).permissions(readable).tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::ErrorKind;

    use super::*;

    #[test]
    fn a_file_is_replaced_or_new_and_others_can_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let [path, plain] = ["a", "plain"].map(|name| folder.path().join(name));
        create(&path, b"1").unwrap();
        assert_eq!(create(&path, b"2").unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"1");
        write(&path, b"3").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"3");
        fs::write(&plain, "").unwrap();
        let mode = |path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&path), mode(&plain));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing unfinished is left");
    }
}
