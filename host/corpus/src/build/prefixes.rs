//! The prefix file of a finished table.
//!
//! The suffixes of neighbouring ranks are scattered over the stream. Reading them in rank order
//! would cost a disk read for each. So they are read in the order of the stream, in batches as large
//! as the memory allows.

use std::fs::File;
use std::io::{BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rayon::slice::ParallelSliceMut;

use crate::build::memory;
use crate::build::options::{BuildOptions, BuildProgress};
use crate::build::output::HashedFile;
use crate::error::{Error, Result};
use crate::files::format::FileKind;
use crate::files::manifest::FileRecord;
use crate::files::prefix_file::{self, PER_PAGE, PREFIX_BYTES, PrefixLevel};
use crate::token_width::TokenWidth;

type Prefix = [u8; PREFIX_BYTES];

/// Smallest batch, suffixes: each batch reads the complete stream.
const MIN_BATCH: usize = 1 << 16;
/// Largest batch, suffixes: their numbers have 32 bits.
const MAX_BATCH: usize = u32::MAX as usize;
/// Size of a batch without a memory budget, suffixes: 1.6 GB, as much as sorting 270 million tokens.
const DEFAULT_BATCH: usize = 1 << 26;
/// Size of a read, bytes.
const CHUNK: usize = 1 << 16;

/// Writes the prefix file of a shard in a folder, and returns its record; `None` if the shard needs
/// none. Files are read, not mapped: mapped pages would count as the build's memory.
pub(super) fn write(
    folder: &Path,
    shard: usize,
    width: TokenWidth,
    options: &BuildOptions<'_>,
) -> Result<Option<(String, FileRecord)>> {
    write_in_batches(folder, shard, width, options, batch_len(options))
}

fn write_in_batches(
    folder: &Path,
    shard: usize,
    width: TokenWidth,
    options: &BuildOptions<'_>,
    batch: usize,
) -> Result<Option<(String, FileRecord)>> {
    let stream = FileKind::Tokenized.path(folder, shard);
    let table = FileKind::Table.path(folder, shard);
    let stream_bytes = open(&stream)?.1;
    let num_tokens = stream_bytes / width.bytes() as u64;
    let levels = prefix_file::levels(num_tokens);
    let Some((finest, coarser)) = levels.split_first() else { return Ok(None) };
    let mut pointers = Pointers::open(table, num_tokens, stream_bytes)?;
    let mut file = HashedFile::create(folder, &FileKind::Prefixes.file_name(shard))?;
    let mut next_level = Vec::new();
    let mut written = 0;
    while written < finest.len {
        options.report(BuildProgress::Prefixes {
            shard,
            shards: options.shards,
            prefixes: finest.len,
            written,
        });
        let count = batch.min((finest.len - written) as usize);
        let prefixes = lookup(pointers.take(finest.stride, count)?, &stream)?;
        file.write(prefixes.as_flattened())?;
        for (number, &prefix) in (written..).zip(&prefixes) {
            if number % PER_PAGE == 0 {
                next_level.push(prefix);
            }
        }
        written += count as u64;
    }
    for level in coarser {
        pad_to(level, &mut file)?;
        file.write(next_level.as_flattened())?;
        next_level = next_level.into_iter().step_by(PER_PAGE as usize).collect();
    }
    file.finish().map(Some)
}

/// Writes zeros up to the start of a level.
fn pad_to(level: &PrefixLevel, file: &mut HashedFile) -> Result<()> {
    let padding = level.start * PREFIX_BYTES as u64 - file.num_bytes();
    file.write(&vec![0; padding as usize])
}

/// Returns the size of a batch that fits the memory budget, suffixes.
fn batch_len(options: &BuildOptions<'_>) -> usize {
    let Some(budget) = options.memory else { return DEFAULT_BATCH };
    let free = budget.saturating_sub(memory::resident() + memory::reserve());
    let bytes_per_suffix = size_of::<(u64, u32)>() + PREFIX_BYTES;
    (free as usize / bytes_per_suffix).clamp(MIN_BATCH, MAX_BATCH)
}

/// Reads the prefixes of suffixes, given by byte offset and number, in the order of their numbers.
fn lookup(mut suffixes: Vec<(u64, u32)>, path: &Path) -> Result<Vec<Prefix>> {
    suffixes.par_sort_unstable();
    let mut prefixes = vec![Prefix::default(); suffixes.len()];
    let (file, stream_bytes) = open(path)?;
    let mut chunk = vec![0; CHUNK];
    let mut chunk_range = 0..0;
    for (offset, number) in suffixes {
        let end = (offset + PREFIX_BYTES as u64).min(stream_bytes);
        if end > chunk_range.end {
            chunk_range = offset..stream_bytes.min(offset + CHUNK as u64);
            let length = (chunk_range.end - chunk_range.start) as usize;
            file.read_exact_at(&mut chunk[..length], offset).map_err(Error::io("read", path))?;
        }
        let start = (offset - chunk_range.start) as usize;
        let suffix = &chunk[start..(end - chunk_range.start) as usize];
        prefixes[number as usize] = prefix_file::prefix(suffix);
    }
    Ok(prefixes)
}

/// A reader of a finished table, from start to end.
struct Pointers {
    reader: BufReader<File>,
    path: PathBuf,
    width: usize,
    stream_bytes: u64,
    /// Rank of the next pointer.
    rank: u64,
}

impl Pointers {
    fn open(path: PathBuf, num_tokens: u64, stream_bytes: u64) -> Result<Self> {
        let (file, bytes) = open(&path)?;
        let reader = BufReader::with_capacity(CHUNK, file);
        Ok(Self { reader, path, width: (bytes / num_tokens) as usize, stream_bytes, rank: 0 })
    }

    /// Reads `count` pointers, from the next one on at every `stride`th rank, with their numbers.
    fn take(&mut self, stride: u64, count: usize) -> Result<Vec<(u64, u32)>> {
        let skipped = (stride as usize - 1) * self.width;
        let mut pointers = Vec::with_capacity(count);
        for number in 0..count as u32 {
            let mut pointer = [0; 8];
            self.reader
                .read_exact(&mut pointer[..self.width])
                .and_then(|()| self.reader.seek_relative(skipped as i64))
                .map_err(Error::io("read", &self.path))?;
            let offset = u64::from_le_bytes(pointer);
            if offset >= self.stream_bytes {
                let expected = "a pointer is the byte offset of a token inside the stream";
                return Err(Error::corrupt(&self.path, self.rank, offset, expected));
            }
            pointers.push((offset, number));
            self.rank += stride;
        }
        Ok(pointers)
    }
}

/// Opens a file, and returns it with its size.
fn open(path: &Path) -> Result<(File, u64)> {
    let file = File::open(path).map_err(Error::io("open", path))?;
    let bytes = file.metadata().map_err(Error::io("open", path))?.len();
    Ok((file, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::sort;
    use crate::build::unfinished::UnfinishedIndex;

    /// Writes the prefix file of a stream with a batch size, and returns its content.
    fn prefixes(stream: &[u8], batch: usize) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let mut unfinished = UnfinishedIndex::with_stream(folder.path(), stream);
        let options = BuildOptions::default();
        sort::write_tables(&mut unfinished, TokenWidth::U16, &options).unwrap();
        write_in_batches(unfinished.path(), 0, TokenWidth::U16, &options, batch).unwrap();
        std::fs::read(unfinished.path().join("prefixes.0")).unwrap()
    }

    #[test]
    fn prefix_levels_match_sorted_suffixes_at_any_batch() {
        let stream: Vec<u8> =
            (0..70_000_u32).flat_map(|at| ((at * at / 7 % 3_001) as u16).to_le_bytes()).collect();
        let mut suffixes: Vec<&[u8]> =
            (0..stream.len()).step_by(2).map(|start| &stream[start..]).collect();
        suffixes.sort_unstable();
        let level = |stride: usize| {
            suffixes.iter().step_by(stride).map(|suffix| prefix_file::prefix(suffix))
        };
        let mut expected: Vec<Prefix> = level(64).collect();
        expected.resize(expected.len().next_multiple_of(512), Prefix::default());
        expected.extend(level(64 * 512));
        for batch in [usize::MAX, 1_000, 64] {
            assert!(prefixes(&stream, batch) == expected.as_flattened(), "{batch}");
        }
    }
}
