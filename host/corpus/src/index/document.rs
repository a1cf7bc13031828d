//! Documents of an index: by number, by a position in them, and their metadata.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde_json::Value;

use crate::error::{Error, Result};
use crate::files::format::FileKind;
use crate::files::shard::Shard;
use crate::index::open::Index;
use crate::python_json;

/// A document of an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// Number of the document's shard, from 0.
    pub shard: usize,
    /// Number of the document in its shard, from 0.
    pub number: u64,
    /// Token positions of the document in its shard, without the leading separator.
    pub tokens: Range<u64>,
}

impl Index {
    /// Returns all documents of the open shards, shard by shard.
    pub fn documents(&self) -> impl Iterator<Item = Result<Document>> {
        self.shards()
            .flat_map(|shard| (0..shard.num_documents()).map(|number| self.document(shard, number)))
    }

    /// Returns the document with this number, from 0, over all open shards; `None` if there are fewer.
    ///
    /// # Errors
    /// Fails if the documents' offsets are damaged.
    pub fn document_numbered(&self, number: u64) -> Result<Option<Document>> {
        let mut remaining = number;
        for shard in self.shards() {
            if remaining < shard.num_documents() {
                return Ok(Some(self.document(shard, remaining)?));
            }
            remaining -= shard.num_documents();
        }
        Ok(None)
    }

    /// Returns a document of a shard. `number` must be below its `num_documents`.
    pub(crate) fn document(&self, shard: &Shard, number: u64) -> Result<Document> {
        let start = shard.document_start(number)?;
        let is_last = number + 1 == shard.num_documents();
        let end = if is_last { shard.num_tokens } else { shard.document_start(number + 1)? };
        if start >= end {
            return Err(misplaced(shard, number, start));
        }
        Ok(Document { shard: shard.number, number, tokens: start + 1..end })
    }

    /// Returns the document that holds a position of a shard, in logarithmic time; `None` if there
    /// is no such position.
    ///
    /// # Errors
    /// Fails if the documents' offsets are damaged.
    pub fn document_at(&self, shard: usize, position: u64) -> Result<Option<Document>> {
        let Some(shard) = self.shard(shard).filter(|shard| position < shard.num_tokens) else {
            return Ok(None);
        };
        // Binary search for the last document that starts at or before the position.
        let mut number = 0;
        let mut end = shard.num_documents();
        while end - number > 1 {
            let middle = number + (end - number) / 2;
            if shard.document_start(middle)? <= position {
                number = middle;
            } else {
                end = middle;
            }
        }
        let document = self.document(shard, number)?;
        let start = document.tokens.start - 1;
        if (start..document.tokens.end).contains(&position) {
            Ok(Some(document))
        } else {
            Err(misplaced(shard, number, start))
        }
    }

    /// Returns the metadata of a document as JSON: an object, or a string if another program wrote a
    /// line that is not JSON. `None` if the index has no metadata.
    ///
    /// # Errors
    /// Fails as [`Index::document_metadata`] does.
    pub fn parsed_metadata(&self, document: &Document) -> Result<Option<Value>> {
        let Some(line) = self.document_metadata(document)? else { return Ok(None) };
        Ok(Some(python_json::parse(&line).unwrap_or(Value::String(line))))
    }

    /// Returns the metadata of a document, a line of JSON with `path`, `linenum` (from 0) and
    /// `metadata` (the fields other than the text); `None` if the index has no metadata. Each call
    /// reads the files.
    ///
    /// # Errors
    /// Fails if the files cannot be read or their offsets are damaged.
    pub fn document_metadata(&self, document: &Document) -> Result<Option<String>> {
        let offsets_path = FileKind::Metaoff.path(self.path(), document.shard);
        let lines_path = FileKind::Metadata.path(self.path(), document.shard);
        let Some(offsets) = open(&offsets_path)? else { return Ok(None) };
        let Some(mut lines) = open(&lines_path)? else { return Ok(None) };
        let num_offsets = length(&offsets, &offsets_path)? / 8;
        let num_bytes = length(&lines, &lines_path)?;
        if document.number >= num_offsets {
            return Err(bad_metadata_offset(&offsets_path, document.number, num_offsets));
        }
        let start = read_offset(&offsets, &offsets_path, document.number)?;
        let end = match document.number + 1 {
            next if next == num_offsets => num_bytes,
            next => read_offset(&offsets, &offsets_path, next)?,
        };
        if start > end || end > num_bytes {
            return Err(bad_metadata_offset(&offsets_path, document.number, start));
        }
        let mut line = Vec::new();
        lines
            .seek(SeekFrom::Start(start))
            .and_then(|_| lines.take(end - start).read_to_end(&mut line))
            .map_err(Error::io("read", &lines_path))?;
        Ok(Some(String::from_utf8_lossy(&line).trim_end().to_owned()))
    }
}

fn length(file: &File, path: &Path) -> Result<u64> {
    Ok(file.metadata().map_err(Error::io("read the size of", path))?.len())
}

fn read_offset(file: &File, path: &Path, entry: u64) -> Result<u64> {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, entry * 8).map_err(Error::io("read", path))?;
    Ok(u64::from_le_bytes(bytes))
}

fn bad_metadata_offset(path: &Path, entry: u64, got: u64) -> Error {
    let expected = "an offset leads to a line of metadata, one for each document";
    Error::corrupt(path, entry, got, expected)
}

fn misplaced(shard: &Shard, document: u64, start: u64) -> Error {
    let expected = "documents start one after the other, the first at the start of the stream";
    Error::corrupt(shard.offsets_path(), document, start, expected)
}

/// Opens a file; `None` if it does not exist.
fn open(path: &Path) -> Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::io("open", path)(e)),
    }
}
