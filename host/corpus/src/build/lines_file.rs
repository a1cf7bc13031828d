//! Documents in the lines of a file.

use std::io::BufRead;
use std::path::{Path, PathBuf};

use crate::build::text_file::TextFile;
use crate::error::{Error, Result};

/// A file with a document in each line.
pub(super) struct LinesFile {
    path: PathBuf,
    text: TextFile,
}

impl LinesFile {
    pub(super) fn new(path: &Path, text: TextFile) -> Self {
        Self { path: path.to_owned(), text }
    }

    /// Appends the next line to `bytes`. Returns false at the end of the file.
    pub(super) fn read_line(&mut self, line: u64, bytes: &mut Vec<u8>) -> Result<bool> {
        self.text
            .reader
            .read_until(b'\n', bytes)
            .map(|read| read > 0)
            .map_err(|error| self.line_error(line, &error))
    }

    pub(super) fn skip_line(&mut self, line: u64) -> Result<()> {
        self.text.reader.skip_until(b'\n').map(drop).map_err(|error| self.line_error(line, &error))
    }

    /// Returns the number of bytes read from the file as stored.
    pub(super) fn read_bytes(&self) -> u64 {
        self.text.read_bytes()
    }

    fn line_error(&self, line: u64, error: &std::io::Error) -> Error {
        let problem = format!("{error}; the file may be incomplete or damaged: copy it again");
        Error::line(&self.path, line + 1, problem)
    }
}
