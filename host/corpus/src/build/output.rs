//! An output file that is hashed while it is written.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::files::manifest::FileRecord;

/// A buffered file with the hash of its content.
pub(super) struct HashedFile {
    name: String,
    path: PathBuf,
    writer: BufWriter<File>,
    hasher: blake3::Hasher,
    bytes: u64,
}

impl HashedFile {
    /// Creates an empty file; an existing one is overwritten.
    pub(super) fn create(dir: &Path, name: &str) -> Result<Self> {
        let path = dir.join(name);
        let file = File::create(&path).map_err(Error::io("create", &path))?;
        Ok(Self::new(name, path, file, blake3::Hasher::new(), 0))
    }

    /// Opens a file to append to it, after cutting off what is not in `record`.
    pub(super) fn resume(dir: &Path, name: &str, record: &FileRecord) -> Result<Self> {
        let path = dir.join(name);
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .open(&path)
            .map_err(Error::io("open", &path))?;
        let bytes = file.metadata().map_err(Error::io("read the size of", &path))?.len();
        if bytes < record.bytes {
            let expected = format!("the unfinished build had written {}", record.bytes);
            return Err(Error::size(&path, bytes, expected));
        }
        file.set_len(record.bytes).map_err(Error::io("truncate", &path))?;
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(&file).map_err(Error::io("read", &path))?;
        let got = hasher.finalize().to_hex();
        if got.as_str() != record.blake3 {
            return Err(Error::checksum(&path, &got, &record.blake3));
        }
        Ok(Self::new(name, path, file, hasher, record.bytes))
    }

    fn new(name: &str, path: PathBuf, file: File, hasher: blake3::Hasher, bytes: u64) -> Self {
        Self {
            name: name.to_owned(),
            path,
            writer: BufWriter::with_capacity(1 << 18, file),
            hasher,
            bytes,
        }
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
        self.writer.write_all(bytes).map_err(Error::io("write", &self.path))
    }

    /// Returns the number of bytes written so far.
    pub(super) fn num_bytes(&self) -> u64 {
        self.bytes
    }

    /// Syncs the file to disk, and returns its name, size and checksum.
    pub(super) fn sync(&mut self) -> Result<(String, FileRecord)> {
        self.writer.flush().map_err(Error::io("write", &self.path))?;
        self.writer.get_ref().sync_all().map_err(Error::io("sync", &self.path))?;
        Ok((
            self.name.clone(),
            FileRecord { bytes: self.bytes, blake3: self.hasher.finalize().to_hex().to_string() },
        ))
    }

    /// Syncs and closes the file, and returns its name, size and checksum.
    pub(super) fn finish(mut self) -> Result<(String, FileRecord)> {
        self.sync()
    }
}
