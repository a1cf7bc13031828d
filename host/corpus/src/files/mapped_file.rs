//! Memory-mapped, read-only files.

use std::fs::File;
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};

use memmap2::{Advice, Mmap};

use crate::error::{Error, Result};
use crate::files::system;
use crate::files::truncation::MappingGuard;

/// A read-only mapped file. It is never empty: no file of the format is, and an empty file cannot
/// be mapped.
#[derive(Debug)]
pub(crate) struct MappedFile {
    path: PathBuf,
    file: File,
    // Declared before the map, so that it is dropped first: the handler must not see a stale range.
    _guard: MappingGuard,
    map: Mmap,
}

impl MappedFile {
    #[allow(unsafe_code)] // mapping a file is the point of this module
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                return Err(Error::missing(path));
            }
            Err(e) => return Err(Error::io("open", path)(e)),
        };
        let metadata = file.metadata().map_err(Error::io("read the size of", path))?;
        if !metadata.is_file() || metadata.len() == 0 {
            return Err(Error::size(path, metadata.len(), "a non-empty file was expected"));
        }
        // SAFETY: the map is read-only and only exposed as `&[u8]`, for which every bit pattern is
        // valid. Rust also requires that the file does not change while mapped, which no program
        // can enforce. Our builder never writes into a finished index (it renames a finished folder
        // to its target), and no value read from the map is used as an offset before it is checked,
        // so a changed file gives wrong counts or an error. Truncating a mapped file makes the
        // system end the process (SIGBUS), as with every mapped file; `truncation` reports the
        // file. Bytes behind the new end, within its page, are read as 0; `check_size` detects that
        // afterwards.
        let map = unsafe { Mmap::map(&file) }.map_err(Error::io("map", path))?;
        Ok(Self { _guard: MappingGuard::new(&map, path), path: path.to_owned(), file, map })
    }

    /// Advises the system not to read ahead. With read-ahead of 128 KiB, a cold query would fetch
    /// hundreds of megabytes of a large index.
    pub(crate) fn expect_random_reads(&self) {
        let _ = self.map.advise(Advice::Random); // a hint: without it, reads are only slower
    }

    /// Advises the system to fetch a range, which will be read soon.
    pub(crate) fn will_read(&self, part: Range<usize>) {
        let _ = self.map.advise_range(Advice::WillNeed, part.start, part.len());
    }

    /// True if a byte is in memory or the system does not report it.
    pub(crate) fn is_in_memory(&self, index: usize) -> bool {
        system::is_in_memory(&self.map[index])
    }

    /// Checks that the file has the same size as when it was opened.
    pub(crate) fn check_size(&self) -> Result<()> {
        let now = self.file.metadata().map_err(Error::io("read the size of", &self.path))?.len();
        if now != self.len() as u64 {
            let expected = format!("{} when it was opened", self.len());
            return Err(Error::size(&self.path, now, expected));
        }
        Ok(())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the error of a file with an unexpected size.
    pub(crate) fn wrong_size(&self, expected: String) -> Error {
        Error::size(&self.path, self.len() as u64, expected)
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map
    }
}
