//! An append-only file of JSON lines: the on-disk cache of clients.
//!
//! Each append writes one complete line under a file lock, so several processes may share a file. A
//! process that was killed may leave a truncated last line. It is not valid JSON and is skipped; the
//! next append terminates it.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Result, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// An open file of JSON lines.
#[derive(Debug)]
pub struct JsonLines {
    path: PathBuf,
    file: Mutex<File>,
}

impl JsonLines {
    /// Opens or creates a file in an existing folder, and passes every valid line to `on_line`.
    ///
    /// # Errors
    /// Fails if the file cannot be opened or read.
    pub fn open<L: DeserializeOwned>(path: &Path, mut on_line: impl FnMut(L)) -> Result<Self> {
        let file = File::options().create(true).read(true).append(true).open(path)?;
        let mut num_skipped = 0_u64;
        for result in BufReader::new(file.try_clone()?).split(b'\n') {
            let bytes = result?;
            match serde_json::from_slice(&bytes) {
                Ok(line) => on_line(line),
                Err(_) => num_skipped += u64::from(!bytes.is_empty()),
            }
        }
        tracing::debug!(path = %path.display(), num_skipped, "opened a cache of JSON lines");
        Ok(Self { path: path.to_owned(), file: Mutex::new(file) })
    }

    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends a line, after terminating a truncated one.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn append(&self, line: &impl Serialize) -> Result<()> {
        let mut bytes = serde_json::to_vec(line)?;
        bytes.push(b'\n');
        // The mutex guards no state besides the file, so a poisoned one is usable.
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.lock()?; // excludes other processes
        let result =
            terminate_last_line(&mut file, &mut bytes).and_then(|()| file.write_all(&bytes));
        file.unlock()?;
        result
    }
}

/// Puts a line break before `bytes` if the file does not end with one.
fn terminate_last_line(file: &mut File, bytes: &mut Vec<u8>) -> Result<()> {
    if file.metadata()?.len() > 0 {
        file.seek(SeekFrom::End(-1))?;
        let mut last = [0];
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            bytes.insert(0, b'\n');
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &Path) -> (JsonLines, Vec<(String, u64)>) {
        let mut known = Vec::new();
        let lines = JsonLines::open(path, |line| known.push(line)).unwrap();
        (lines, known)
    }

    fn line(name: &str, value: u64) -> (String, u64) {
        (name.to_owned(), value)
    }

    #[test]
    fn torn_last_line_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines");
        let (lines, _) = open(&path);
        lines.append(&line("red", 1)).unwrap();
        lines.append(&line("fox", 23)).unwrap();
        let complete = std::fs::read(&path).unwrap();
        let first = complete.iter().position(|&byte| byte == b'\n').unwrap() + 1;
        for length in first..complete.len() - 1 {
            std::fs::write(&path, &complete[..length]).unwrap();
            let (torn, known) = open(&path);
            assert_eq!(known, [line("red", 1)], "{length}");
            torn.append(&line("den", 4)).unwrap();
            assert_eq!(open(&path).1, [line("red", 1), line("den", 4)], "{length}");
        }
    }

    #[test]
    fn concurrent_writers_lose_no_lines() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines");
        // Two open files are what two processes have.
        let writers = [open(&path).0, open(&path).0];
        std::thread::scope(|scope| {
            for (writer, lines) in writers.iter().enumerate() {
                for thread in 0..2 {
                    let write =
                        move |n| lines.append(&line(&format!("{writer} {thread}"), n)).unwrap();
                    scope.spawn(move || (0..200).for_each(write));
                }
            }
        });
        assert_eq!(open(&path).1.len(), 800);
    }
}
