//! The writer of `table.K`: positions as byte offsets of a fixed width.

use crate::build::output::HashedFile;
use crate::error::{Error, Result};
use crate::files::format::pointer_width;
use crate::files::manifest::FileRecord;
use crate::token_width::TokenWidth;

/// A buffered writer of pointers.
pub(super) struct PointerFile {
    file: HashedFile,
    token_bytes: u64,
    pointer_bytes: usize,
    chunk: Vec<u8>,
}

/// Size of a write, bytes.
const CHUNK: usize = 1 << 18;

/// Returns the size of a pointer, bytes: that of the options, or the smallest that fits the shard.
///
/// # Errors
/// Fails if the size of the options is too small for the shard.
pub(super) fn pointer_bytes(
    option: Option<usize>,
    num_tokens: u64,
    width: TokenWidth,
) -> Result<usize> {
    let needed = pointer_width(num_tokens * width.bytes() as u64);
    match option {
        Some(bytes) if bytes < needed => {
            let expected = "wide enough for every byte offset of the shard";
            Err(Error::option("pointer_width", bytes as u64, expected))
        }
        Some(bytes) => Ok(bytes),
        None => Ok(needed),
    }
}

impl PointerFile {
    pub(super) fn new(file: HashedFile, width: TokenWidth, pointer_bytes: usize) -> Self {
        Self {
            file,
            token_bytes: width.bytes() as u64,
            pointer_bytes,
            chunk: Vec::with_capacity(CHUNK + 8),
        }
    }

    /// Appends the pointer to a token.
    pub(super) fn push(&mut self, position: u64) -> Result<()> {
        self.chunk
            .extend_from_slice(&(position * self.token_bytes).to_le_bytes()[..self.pointer_bytes]);
        if self.chunk.len() >= CHUNK {
            self.file.write(&self.chunk)?;
            self.chunk.clear();
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<(String, FileRecord)> {
        self.file.write(&self.chunk)?;
        self.file.finish()
    }
}
