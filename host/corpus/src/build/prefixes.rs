//! Writing the prefix file of a finished table.
//!
//! The suffixes of neighbouring ranks are scattered over the stream. Reading them in rank order
//! would cost a disk read for each, so they are read in stream order, as many at a time as fit into
//! memory.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rayon::slice::ParallelSliceMut;

use crate::build::memory;
use crate::build::options::{BuildOptions, Progress};
use crate::build::output::HashedFile;
use crate::build::unfinished::Unfinished;
use crate::error::{Error, Result};
use crate::files::format::Family;
use crate::files::prefix_file::{self, Level, PER_PAGE, PREFIX_BYTES};
use crate::token_width::TokenWidth;

type Prefix = [u8; PREFIX_BYTES];

/// The fewest suffixes that are looked up at once: each batch reads the whole stream.
const MIN_BATCH: usize = 1 << 16;
/// Their numbers have 32 bits.
const MAX_BATCH: usize = u32::MAX as usize;
/// Without a budget: 1.6 GB, as much as sorting 270 million tokens takes.
const DEFAULT_BATCH: usize = 1 << 26;
/// Bytes that are read at once.
const CHUNK: usize = 1 << 16;

/// Writes the prefix file of a shard that has none yet and is large enough to need one. Files are
/// read, not mapped: mapped pages would count as the build's memory.
pub(super) fn write(
    unfinished: &mut Unfinished,
    shard: usize,
    width: TokenWidth,
    options: &BuildOptions<'_>,
) -> Result<()> {
    if unfinished.is_finished(&Family::Prefixes.file_name(shard)) {
        return Ok(());
    }
    write_in_batches(unfinished, shard, width, options, batch_len(options))
}

fn write_in_batches(
    unfinished: &mut Unfinished,
    shard: usize,
    width: TokenWidth,
    options: &BuildOptions<'_>,
    batch: usize,
) -> Result<()> {
    let path = |family: Family| family.path(unfinished.path(), shard);
    let stream = path(Family::Tokenized);
    let stream_bytes = open(&stream)?.1;
    let num_tokens = stream_bytes / width.bytes() as u64;
    let levels = prefix_file::levels(num_tokens);
    let Some((finest, coarser)) = levels.split_first() else { return Ok(()) };
    let mut pointers = Pointers::open(path(Family::Table), num_tokens, stream_bytes)?;
    let mut file = unfinished.create_file(&Family::Prefixes.file_name(shard))?;
    let mut next_level = Vec::new();
    let mut written = 0;
    while written < finest.len {
        options.report(Progress::Prefixes {
            shard,
            shards: options.shards,
            prefixes: finest.len,
            written,
        });
        let count = batch.min((finest.len - written) as usize);
        let prefixes = lookup(pointers.take(finest.stride, count)?, &stream)?;
        file.write(prefixes.as_flattened())?;
        next_level.extend(
            (written..)
                .zip(&prefixes)
                .filter(|(number, _)| number % PER_PAGE == 0)
                .map(|(_, &p)| p),
        );
        written += count as u64;
    }
    for level in coarser {
        fill_to(level, &mut file)?;
        file.write(next_level.as_flattened())?;
        next_level = next_level.into_iter().step_by(PER_PAGE as usize).collect();
    }
    let file = file.finish()?;
    unfinished.update(|state| state.finished.extend([file]))
}

/// Zeros up to where a level begins.
fn fill_to(level: &Level, file: &mut HashedFile) -> Result<()> {
    let missing = level.start * PREFIX_BYTES as u64 - file.num_bytes();
    file.write(&vec![0; missing as usize])
}

/// As many suffixes as fit into memory, each with its offset, its number and its prefix.
fn batch_len(options: &BuildOptions<'_>) -> usize {
    let room =
        options.memory.map(|budget| budget.saturating_sub(memory::resident() + memory::reserve()));
    let each = size_of::<(u64, u32)>() + PREFIX_BYTES;
    room.map_or(DEFAULT_BATCH, |room| (room as usize / each).clamp(MIN_BATCH, MAX_BATCH))
}

/// The prefixes of the suffixes at some byte offsets of the stream, in the order of their numbers.
fn lookup(mut places: Vec<(u64, u32)>, path: &Path) -> Result<Vec<Prefix>> {
    places.par_sort_unstable();
    let mut prefixes = vec![Prefix::default(); places.len()];
    let (file, stream_bytes) = open(path)?;
    let mut chunk = vec![0; CHUNK];
    let mut held = 0..0;
    for (offset, number) in places {
        let end = (offset + PREFIX_BYTES as u64).min(stream_bytes);
        if end > held.end {
            held = offset..stream_bytes.min(offset + CHUNK as u64);
            let length = (held.end - held.start) as usize;
            file.read_exact_at(&mut chunk[..length], offset).map_err(Error::io("read", path))?;
        }
        let suffix = &chunk[(offset - held.start) as usize..(end - held.start) as usize];
        prefixes[number as usize] = prefix_file::prefix(suffix);
    }
    Ok(prefixes)
}

/// A finished table, read from start to end.
struct Pointers {
    reader: BufReader<File>,
    path: PathBuf,
    width: usize,
    stream_bytes: u64,
    /// The rank that comes next.
    rank: u64,
}

impl Pointers {
    fn open(path: PathBuf, num_tokens: u64, stream_bytes: u64) -> Result<Self> {
        let (file, bytes) = open(&path)?;
        let reader = BufReader::with_capacity(CHUNK, file);
        Ok(Self { reader, path, width: (bytes / num_tokens) as usize, stream_bytes, rank: 0 })
    }

    /// The pointer that comes next, and those of every `stride`th rank after it, `count` in all,
    /// with their numbers.
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

fn open(path: &Path) -> Result<(File, u64)> {
    let with_size =
        |file: File| -> io::Result<_> { file.metadata().map(|metadata| (file, metadata.len())) };
    File::open(path).and_then(with_size).map_err(Error::io("open", path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::sort;

    /// The prefix file of a stream, with so many suffixes looked up at once.
    fn prefixes(stream: &[u8], batch: usize) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let mut unfinished = Unfinished::of_stream(folder.path(), stream);
        let options = BuildOptions::default();
        sort::write_tables(&mut unfinished, TokenWidth::U16, &options).unwrap();
        write_in_batches(&mut unfinished, 0, TokenWidth::U16, &options, batch).unwrap();
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
