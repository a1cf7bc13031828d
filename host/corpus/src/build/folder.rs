//! A folder that is not there until it is finished.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::format::{FileRecord, MANIFEST, Manifest};

/// A hidden folder beside the target, removed when dropped unfinished. A killed process leaves it behind: it holds no
/// manifest, and its name says what it is.
pub(super) struct UnfinishedFolder {
    path: PathBuf,
    target: PathBuf,
    finished: bool,
}

impl UnfinishedFolder {
    pub(super) fn create(target: &Path) -> Result<Self> {
        // An empty folder may be in the way: the rename replaces it.
        let in_the_way = match fs::read_dir(target) {
            Ok(mut entries) => entries.next().is_some(),
            Err(_) => fs::symlink_metadata(target).is_ok(),
        };
        if in_the_way {
            return Err(Error::AlreadyExists { path: target.to_owned() });
        }
        let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        fs::create_dir_all(parent).map_err(Error::io("create the folder", parent))?;
        let path = parent.join(format!(".{name}.unfinished-{}", std::process::id()));
        fs::create_dir(&path).map_err(Error::io("create the folder", &path))?;
        Ok(Self { path, target: target.to_owned(), finished: false })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn create_file(&self, name: &str) -> Result<HashedFile> {
        let path = self.path.join(name);
        let file = File::create_new(&path).map_err(Error::io("create", &path))?;
        let writer = BufWriter::with_capacity(1 << 18, file);
        Ok(HashedFile { name: name.to_owned(), path, writer, hasher: blake3::Hasher::new(), bytes: 0 })
    }

    /// Writes the manifest and gives the folder its name.
    pub(super) fn finish(mut self, manifest: &Manifest) -> Result<()> {
        let path = self.path.join(MANIFEST);
        let json = serde_json::to_vec_pretty(manifest).map_err(|source| Error::Json { path: path.clone(), source })?;
        let mut file = File::create_new(&path).map_err(Error::io("create", &path))?;
        file.write_all(&json).and_then(|()| file.sync_all()).map_err(Error::io("write", &path))?;
        // The names in the folder must be on disk before the folder's own.
        let sync = |path: &Path| File::open(path).and_then(|folder| folder.sync_all());
        sync(&self.path).map_err(Error::io("sync", &self.path))?;
        fs::rename(&self.path, &self.target).map_err(Error::io("rename the finished folder to", &self.target))?;
        self.finished = true;
        Ok(())
    }
}

impl Drop for UnfinishedFolder {
    fn drop(&mut self) {
        if !self.finished
            && let Err(error) = fs::remove_dir_all(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "an unfinished index stays behind");
        }
    }
}

/// A file whose checksum is taken as it is written.
pub(super) struct HashedFile {
    name: String,
    path: PathBuf,
    writer: BufWriter<File>,
    hasher: blake3::Hasher,
    bytes: u64,
}

impl HashedFile {
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
        self.writer.write_all(bytes).map_err(Error::io("write", &self.path))
    }

    /// Bytes written.
    pub(super) fn num_bytes(&self) -> u64 {
        self.bytes
    }

    /// Puts the file on disk and into the manifest.
    pub(super) fn finish(self, manifest: &mut Manifest) -> Result<()> {
        let Self { name, path, writer, hasher, bytes } = self;
        let file = writer.into_inner().map_err(|e| Error::io("write", &path)(e.into_error()))?;
        file.sync_all().map_err(Error::io("sync", &path))?;
        manifest.files.insert(name, FileRecord { bytes, blake3: hasher.finalize().to_hex().to_string() });
        Ok(())
    }
}
