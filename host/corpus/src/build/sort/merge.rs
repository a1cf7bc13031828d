//! Merging the sorted blocks into the suffix array: each block's suffixes, with as many suffixes of
//! later blocks between them as were counted. Everything is read and written once, from front to
//! back.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use crate::build::sort::pointers::PointerFile;
use crate::error::{Error, Result};

/// The files of a sorted block.
pub(super) struct BlockFiles {
    pub(super) begin: u64,
    pub(super) suffixes: PathBuf,
    /// Absent for the last block.
    pub(super) gaps: Option<PathBuf>,
}

struct Run {
    begin: u64,
    suffixes: Input,
    gaps: Option<Input>,
    /// Suffixes of later blocks that come before the next one of this.
    before_next: u64,
}

/// `blocks` are in the order of the text.
pub(super) fn merge(
    blocks: &[BlockFiles],
    num_tokens: u64,
    table: &mut PointerFile,
    report: &dyn Fn(u64),
) -> Result<()> {
    let open = |block: &BlockFiles| -> Result<Run> {
        let gaps = block.gaps.as_deref().map(Input::open).transpose()?;
        let mut run = Run {
            begin: block.begin,
            suffixes: Input::open(&block.suffixes)?,
            gaps,
            before_next: 0,
        };
        run.read_gap()?;
        Ok(run)
    };
    let mut runs = blocks.iter().map(open).collect::<Result<Vec<_>>>()?;
    for rank in 0..num_tokens {
        let mut next = 0;
        while let Some(left) = runs[next].before_next.checked_sub(1) {
            runs[next].before_next = left;
            next += 1; // there is a next one: the last one's `before_next` is always 0
        }
        let run = &mut runs[next];
        let position = run.begin + run.suffixes.number()?;
        run.read_gap()?;
        table.push(position)?;
        if rank % (1 << 22) == 0 {
            report(rank);
        }
    }
    Ok(())
}

impl Run {
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
