//! A file's bytes through the page cache.

use std::fs::File;
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};

use memmap2::{Advice, Mmap};

use crate::error::{Error, Result};
use crate::files::lost::Named;
use crate::files::system;

/// A read-only mapped file. Empty files are refused: no file of the format is empty, and they
/// cannot be mapped.
#[derive(Debug)]
pub(crate) struct Bytes {
    path: PathBuf,
    file: File,
    // Dropped before the map is.
    _named: Named,
    map: Mmap,
}

impl Bytes {
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
        // SAFETY: the map is read-only, and only ever seen as `&[u8]`, for which every bit pattern
        // is valid. Rust also needs the file not to change while mapped, which no program can
        // enforce; our builder never writes into a finished index (it renames a finished folder
        // into place), and no value read from the map is used as an offset before it is checked, so
        // a changed file gives wrong counts or an error. Truncating a mapped file makes the system
        // end the process (SIGBUS), as with every mapped file; `lost` names the file. What is read
        // behind the new end, within its page, is 0: `check_size` tells afterwards.
        let map = unsafe { Mmap::map(&file) }.map_err(Error::io("map", path))?;
        Ok(Self { _named: Named::new(&map, path), path: path.to_owned(), file, map })
    }

    /// Tells the system not to read ahead. With read-ahead, 128 KiB at a time, a cold query would
    /// fetch hundreds of megabytes of a large index.
    pub(crate) fn expect_random_reads(&self) {
        let _ = self.map.advise(Advice::Random); // only a hint: a system that ignores it is slower
    }

    /// Tells the system that a part will be read soon, from its first byte to its last.
    pub(crate) fn will_read(&self, part: Range<usize>) {
        let _ = self.map.advise_range(Advice::WillNeed, part.start, part.len());
    }

    /// Whether a byte is in memory, as far as the system tells.
    pub(crate) fn is_in_memory(&self, at: usize) -> bool {
        system::is_in_memory(&self.map[at])
    }

    /// That the file is as long as when it was opened.
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

    /// An error for a file whose size is not what it should be.
    pub(crate) fn wrong_size(&self, expected: String) -> Error {
        Error::size(&self.path, self.len() as u64, expected)
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map
    }
}
