//! Merging sorted blocks into the suffix array: each block's suffixes, with the counted number of
//! later blocks' suffixes between them. All files are read and written once, sequentially.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use crate::build::sort::pointers::PointerFile;
use crate::error::{Error, Result};

/// The files of a sorted block.
pub(super) struct BlockFiles {
    pub(super) begin: u64,
    pub(super) suffixes: PathBuf,
    /// Counts of later suffixes; `None` for the last block.
    pub(super) gaps: Option<PathBuf>,
}

/// A reader of a sorted block.
struct BlockReader {
    begin: u64,
    suffixes: NumberReader,
    gaps: Option<NumberReader>,
    /// Number of later blocks' suffixes before the next suffix of this block.
    before_next: u64,
}

/// Merges blocks, which are in the order of the text, into a table.
pub(super) fn merge(
    blocks: &[BlockFiles],
    num_tokens: u64,
    table: &mut PointerFile,
    report: &dyn Fn(u64),
) -> Result<()> {
    let mut readers = blocks.iter().map(BlockReader::open).collect::<Result<Vec<_>>>()?;
    for rank in 0..num_tokens {
        let mut next = 0;
        while let Some(remaining) = readers[next].before_next.checked_sub(1) {
            readers[next].before_next = remaining;
            next += 1; // in bounds: the last reader's `before_next` is always 0
        }
        let reader = &mut readers[next];
        let position = reader.begin + reader.suffixes.read_u32()?;
        reader.read_gap()?;
        table.push(position)?;
        if rank % (1 << 22) == 0 {
            report(rank);
        }
    }
    Ok(())
}

impl BlockReader {
    fn open(block: &BlockFiles) -> Result<Self> {
        let gaps = block.gaps.as_deref().map(NumberReader::open).transpose()?;
        let suffixes = NumberReader::open(&block.suffixes)?;
        let mut reader = Self { begin: block.begin, suffixes, gaps, before_next: 0 };
        reader.read_gap()?;
        Ok(reader)
    }

    fn read_gap(&mut self) -> Result<()> {
        if let Some(gaps) = &mut self.gaps {
            self.before_next = gaps.read_varint()?;
        }
        Ok(())
    }
}

/// A buffered reader of numbers.
struct NumberReader {
    reader: BufReader<File>,
    path: PathBuf,
}

impl NumberReader {
    fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(Error::io("open", path))?;
        Ok(Self { reader: BufReader::with_capacity(1 << 16, file), path: path.to_owned() })
    }

    fn read<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.reader.read_exact(&mut bytes).map_err(Error::io("read", &self.path))?;
        Ok(bytes)
    }

    fn read_u32(&mut self) -> Result<u64> {
        Ok(u32::from_le_bytes(self.read()?).into())
    }

    /// Reads a number as `Gaps::write` writes it.
    fn read_varint(&mut self) -> Result<u64> {
        let mut count = 0;
        let mut shift = 0;
        loop {
            let [byte] = self.read()?;
            count |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 || shift == 56 {
                return Ok(count);
            }
            shift += 7;
        }
    }
}
