//! Writing the prefix file of a finished table.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::build::unfinished::Unfinished;
use crate::error::{Error, Result};
use crate::files::format::Family;
use crate::files::prefix_file::{self, PREFIX_BYTES};
use crate::token_width::TokenWidth;

/// Writes the prefix file of a shard that has none yet and is large enough to need one. Files are read, not mapped: mapped
/// pages would count as the build's memory.
pub(super) fn write(unfinished: &mut Unfinished, shard: usize, width: TokenWidth) -> Result<()> {
    let name = Family::Prefixes.file_name(shard);
    if unfinished.is_finished(&name) {
        return Ok(());
    }
    let paths = [Family::Tokenized, Family::Table].map(|family| family.path(unfinished.path(), shard));
    let [(stream, stream_bytes), (table, table_bytes)] = [open(&paths[0])?, open(&paths[1])?];
    let num_tokens = stream_bytes / width.bytes() as u64;
    let mut ranks = prefix_file::ranks(num_tokens).peekable();
    if ranks.peek().is_none() {
        return Ok(());
    }
    let pointer_width = table_bytes / num_tokens;
    let mut file = unfinished.create_file(&name)?;
    for rank in ranks {
        let mut pointer = [0; 8];
        let entry = &mut pointer[..pointer_width as usize];
        table.read_exact_at(entry, rank * pointer_width).map_err(Error::io("read", &paths[1]))?;
        let mut suffix = [0; PREFIX_BYTES];
        let from = u64::from_le_bytes(pointer);
        let length = stream_bytes.saturating_sub(from).min(PREFIX_BYTES as u64) as usize;
        stream.read_exact_at(&mut suffix[..length], from).map_err(Error::io("read", &paths[0]))?;
        file.write(&prefix_file::prefix(&suffix[..length]))?;
    }
    let file = file.finish()?;
    unfinished.update(|state| state.finished.extend([file]))
}

fn open(path: &Path) -> Result<(File, u64)> {
    let with_size = |file: File| -> io::Result<_> { file.metadata().map(|metadata| (file, metadata.len())) };
    File::open(path).and_then(with_size).map_err(Error::io("open", path))
}
