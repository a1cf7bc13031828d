//! Documents: by number, by a token that they hold; their metadata.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;

use crate::error::{Error, Result};
use crate::files::format::Family;
use crate::files::shard::Shard;
use crate::index::open::Index;

/// A document of an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// The shard that holds it.
    pub shard: usize,
    /// Its number in that shard, from 0.
    pub number: u64,
    /// Its tokens' positions in that shard, without the separator before them.
    pub tokens: Range<u64>,
}

impl Index {
    /// Every document of the open shards, shard by shard.
    pub fn documents(&self) -> impl Iterator<Item = Result<Document>> {
        self.shards()
            .flat_map(|shard| (0..shard.num_documents()).map(|number| self.document(shard, number)))
    }

    /// A document of a shard. `number` must be below its `num_documents`.
    fn document(&self, shard: &Shard, number: u64) -> Result<Document> {
        let start = shard.document_start(number)?;
        let is_last = number + 1 == shard.num_documents();
        let end = if is_last { shard.num_tokens } else { shard.document_start(number + 1)? };
        if start >= end {
            return Err(misplaced(shard, number, start));
        }
        Ok(Document { shard: shard.number, number, tokens: start + 1..end })
    }

    /// The document that holds a token of a shard, found in logarithmic time; `None` where there is
    /// no such token.
    ///
    /// # Errors
    /// Where the documents' offsets are damaged.
    pub fn document_at(&self, shard: usize, position: u64) -> Result<Option<Document>> {
        let Some(shard) = self.shard(shard).filter(|shard| position < shard.num_tokens) else {
            return Ok(None);
        };
        let (mut document, mut after) = (0, shard.num_documents());
        while after - document > 1 {
            let middle = document + (after - document) / 2;
            if shard.document_start(middle)? <= position {
                document = middle;
            } else {
                after = middle;
            }
        }
        let found = self.document(shard, document)?;
        let start = found.tokens.start - 1;
        if (start..found.tokens.end).contains(&position) {
            Ok(Some(found))
        } else {
            Err(misplaced(shard, document, start))
        }
    }

    /// The line of JSON that the index keeps about a document (`path`, `linenum` from 0, and its
    /// fields other than the text in `metadata`); `None` in an index without metadata. The files
    /// are read at every call.
    ///
    /// # Errors
    /// Where they cannot be read, or the place of the line is not in them.
    pub fn document_metadata(&self, document: &Document) -> Result<Option<String>> {
        let offsets_path = Family::Metaoff.path(self.path(), document.shard);
        let lines_path = Family::Metadata.path(self.path(), document.shard);
        let (Some(mut offsets), Some(mut lines)) = (open(&offsets_path)?, open(&lines_path)?)
        else {
            return Ok(None);
        };
        let length = |file: &File, path: &Path| {
            Ok(file.metadata().map_err(Error::io("read the size of", path))?.len())
        };
        let (num_offsets, num_bytes) =
            (length(&offsets, &offsets_path)? / 8, length(&lines, &lines_path)?);
        let damaged = |entry: u64, got: u64| {
            let expected = "an offset leads to a line of metadata, one for each document";
            Error::corrupt(&offsets_path, entry, got, expected)
        };

        let mut offset_of = |entry: u64| -> Result<u64> {
            if entry == num_offsets {
                return Ok(num_bytes);
            }
            let mut bytes = [0; 8];
            offsets
                .seek(SeekFrom::Start(entry * 8))
                .and_then(|_| offsets.read_exact(&mut bytes))
                .map_err(Error::io("read", &offsets_path))?;
            Ok(u64::from_le_bytes(bytes))
        };
        if document.number >= num_offsets {
            return Err(damaged(document.number, num_offsets));
        }
        let (start, end) = (offset_of(document.number)?, offset_of(document.number + 1)?);
        if start > end || end > num_bytes {
            return Err(damaged(document.number, start));
        }
        let mut line = Vec::new();
        lines
            .seek(SeekFrom::Start(start))
            .and_then(|_| lines.take(end - start).read_to_end(&mut line))
            .map_err(Error::io("read", &lines_path))?;
        Ok(Some(String::from_utf8_lossy(&line).trim_end().to_owned()))
    }
}

fn misplaced(shard: &Shard, document: u64, start: u64) -> Error {
    let expected = "documents start one after the other, the first at the start of the stream";
    Error::corrupt(shard.offsets_path(), document, start, expected)
}

/// `None` where there is no such file.
fn open(path: &Path) -> Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::io("open", path)(e)),
    }
}
