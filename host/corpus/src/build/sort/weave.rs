//! The suffix array from the sorted blocks: each block's suffixes, with as many of the later blocks' between them as were
//! counted. Everything is read and written once, from front to back.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use crate::build::sort::pointers::PointerFile;
use crate::error::{Error, Result};

/// A sorted block's pieces on disk.
pub(super) struct Piece {
    pub(super) begin: u64,
    pub(super) suffixes: PathBuf,
    /// Absent for the last block.
    pub(super) gaps: Option<PathBuf>,
}

struct Thread {
    begin: u64,
    suffixes: Input,
    gaps: Option<Input>,
    /// Suffixes of later blocks that come before the next one of this.
    before_next: u64,
}

/// `pieces` are in the order of the text.
pub(super) fn weave(pieces: &[Piece], num_tokens: u64, table: &mut PointerFile, report: &dyn Fn(u64)) -> Result<()> {
    let open = |piece: &Piece| -> Result<Thread> {
        let gaps = piece.gaps.as_deref().map(Input::open).transpose()?;
        let mut thread = Thread { begin: piece.begin, suffixes: Input::open(&piece.suffixes)?, gaps, before_next: 0 };
        thread.read_gap()?;
        Ok(thread)
    };
    let mut threads = pieces.iter().map(open).collect::<Result<Vec<_>>>()?;
    for rank in 0..num_tokens {
        let mut next = 0;
        while let Some(left) = threads[next].before_next.checked_sub(1) {
            threads[next].before_next = left;
            next += 1; // there is a next one: the last one's `before_next` is always 0
        }
        let thread = &mut threads[next];
        let position = thread.begin + thread.suffixes.number()?;
        thread.read_gap()?;
        table.push(position)?;
        if rank % (1 << 22) == 0 {
            report(rank);
        }
    }
    Ok(())
}

impl Thread {
    fn read_gap(&mut self) -> Result<()> {
        if let Some(gaps) = &mut self.gaps {
            self.before_next = gaps.count()?;
        }
        Ok(())
    }
}

struct Input {
    reader: BufReader<File>,
    path: PathBuf,
}

impl Input {
    fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(Error::io("open", path))?;
        Ok(Self { reader: BufReader::with_capacity(1 << 16, file), path: path.to_owned() })
    }

    fn read<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.reader.read_exact(&mut bytes).map_err(Error::io("read", &self.path))?;
        Ok(bytes)
    }

    fn number(&mut self) -> Result<u64> {
        Ok(u32::from_le_bytes(self.read()?).into())
    }

    /// Seven bits to a byte; see `Gaps::write`.
    fn count(&mut self) -> Result<u64> {
        let (mut count, mut shift) = (0, 0);
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
