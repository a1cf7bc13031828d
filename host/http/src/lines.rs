//! Answers kept on disk, as JSON lines.
//!
//! The file is only ever appended to, whole lines at a time and under a lock, so that several
//! processes may share it. A line that a killed process left unfinished is no JSON object; it is
//! ignored, and the next append closes it.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Result, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// An open file of lines.
#[derive(Debug)]
pub struct Lines {
    path: PathBuf,
    file: Mutex<File>,
}

impl Lines {
    /// Opens or creates a file in a folder that exists, and gives `learn` every line that can be
    /// read.
    ///
    /// # Errors
    /// Where the file cannot be opened or read.
    pub fn open<L: DeserializeOwned>(path: &Path, mut learn: impl FnMut(L)) -> Result<Self> {
        let file = File::options().create(true).read(true).append(true).open(path)?;
        let mut unreadable = 0_u64;
        for line in BufReader::new(file.try_clone()?).split(b'\n') {
            let line = line?;
            match serde_json::from_slice(&line) {
                Ok(line) => learn(line),
                Err(_) => unreadable += u64::from(!line.is_empty()),
            }
        }
        tracing::debug!(path = %path.display(), unreadable, "opened kept answers");
        Ok(Self { path: path.to_owned(), file: Mutex::new(file) })
    }

    /// Where it lies.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends a whole line, after closing one that a killed process left open.
    ///
    /// # Errors
    /// Where the file cannot be written.
    pub fn append(&self, line: &impl Serialize) -> Result<()> {
        let mut bytes = serde_json::to_vec(line)?;
        bytes.push(b'\n');
        let mut file = self.file.lock().unwrap_or_else(|poisoned| poisoned.into_inner()); // it has no state of ours
        file.lock()?; // other processes wait
        let result = close_last_line(&mut file, &mut bytes).and_then(|()| file.write_all(&bytes));
        file.unlock()?;
        result
    }
}

fn close_last_line(file: &mut File, bytes: &mut Vec<u8>) -> Result<()> {
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

    fn open(path: &Path) -> (Lines, Vec<(String, u64)>) {
        let mut known = Vec::new();
        let lines = Lines::open(path, |line| known.push(line)).unwrap();
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
        let whole = std::fs::read(&path).unwrap();
        let first = whole.iter().position(|&byte| byte == b'\n').unwrap() + 1;
        for length in first..whole.len() - 1 {
            std::fs::write(&path, &whole[..length]).unwrap();
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
