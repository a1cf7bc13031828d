//! How many suffixes from after a block fall between each two of the block's own.
//!
//! The text after the block is walked from its end to its begin; every step gives the rank of one
//! more suffix (`ranks.rs`). The walk is cut into pieces that start with a search of their own,
//! several to a thread: while one waits for memory, the others continue.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use rayon::prelude::*;

use crate::build::output::HashedFile;
use crate::build::sort::bits::{self, Bits};
use crate::build::sort::large;
use crate::build::sort::ranks::Ranks;
use crate::build::sort::symbols::SymbolFile;
use crate::error::{Error, Result};

/// Walks that a thread takes in turn.
const WALKS_PER_THREAD: usize = 8;
/// Symbols that a walk reads at once.
const CHUNK: u64 = 1 << 13;
/// No walk shorter than this, in words of 64 positions.
const MIN_WALK: usize = if cfg!(test) { 1 } else { 1 << 10 };

/// Counts by rank, most of which are small.
pub(super) struct Gaps {
    low: Vec<AtomicU8>,
    /// How often a count went over 255.
    high: Mutex<BTreeMap<usize, u64>>,
}

impl Gaps {
    fn new(num_suffixes: usize) -> Self {
        let mut low = large::with_capacity(num_suffixes + 1);
        low.resize_with(num_suffixes + 1, AtomicU8::default);
        Self { low, high: Mutex::default() }
    }

    fn add(&self, rank: u32) {
        if self.low[rank as usize].fetch_add(1, Relaxed) == u8::MAX {
            let mut high = self.high.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            *high.entry(rank as usize).or_default() += 1;
        }
    }

    /// Writes the counts, seven bits to a byte, the lowest first; a set high bit says that more
    /// follow.
    pub(super) fn write(self, file: &mut HashedFile) -> Result<()> {
        let high = self.high.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut high = high.into_iter().peekable();
        let mut chunk = Vec::with_capacity((1 << 16) + 16);
        for (rank, low) in self.low.into_iter().enumerate() {
            let wraps = high.next_if(|&(at, _)| at == rank).map_or(0, |(_, wraps)| wraps);
            let mut count = wraps << 8 | u64::from(low.into_inner());
            while count >= 0x80 {
                chunk.push(count as u8 | 0x80);
                count >>= 7;
            }
            chunk.push(count as u8);
            if chunk.len() >= 1 << 16 {
                file.write(&chunk)?;
                chunk.clear();
            }
        }
        file.write(&chunk)
    }
}

/// A sorted block: where it lies, and where its suffixes are written.
pub(super) struct SortedBlock<'b> {
    pub(super) positions: Range<u64>,
    pub(super) suffixes: &'b Path,
}

/// Counts, and changes `greater` for the positions after the block: from greater than the text
/// after the block to greater than the text from the block's begin on.
pub(super) fn count_gaps(
    file: &SymbolFile,
    block: &SortedBlock<'_>,
    ranks: &Ranks,
    greater: &mut Bits,
    report: &(dyn Fn(u64) + Sync),
) -> Result<Gaps> {
    let end = file.num_tokens();
    let words = (end - block.positions.end).div_ceil(64) as usize;
    let walk = words.div_ceil(rayon::current_num_threads() * WALKS_PER_THREAD).max(MIN_WALK);

    // The starts are searched for before any walk changes a bit.
    let begins = (block.positions.end..end).step_by(64 * walk);
    let starts = begins.map(|begin| -> Result<(u64, u64, u32, bool)> {
        let walk_end = (begin + 64 * walk as u64).min(end);
        if walk_end == end {
            return Ok((begin, walk_end, 0, false)); // after the text nothing follows, which is smaller than all
        }
        Ok((begin, walk_end, search(file, block, greater, walk_end)?, greater.get(walk_end)))
    });
    let starts = starts.collect::<Result<Vec<_>>>()?;
    let mut walks: Vec<Walk<'_>> = starts
        .into_iter()
        .zip(greater.words_from(block.positions.end).chunks_mut(walk))
        .map(|((begin, walk_end, rank, greater_than_tail), walk_words)| Walk {
            begin,
            left: walk_end - begin,
            words: walk_words,
            symbols: Vec::new(),
            rank,
            greater_than_tail,
        })
        .collect();

    let gaps = Gaps::new(ranks.len());
    let done = AtomicU64::new(0);
    walks.par_chunks_mut(WALKS_PER_THREAD).try_for_each(|own| {
        let mut active: Vec<&mut Walk<'_>> = own.iter_mut().collect();
        loop {
            active.retain(|current| current.left > 0);
            for current in &mut active {
                current.read(file)?;
            }
            let Some(steps) = active.iter().map(|current| current.symbols.len()).min() else {
                return Ok(());
            };
            for _ in 0..steps {
                for current in &mut active {
                    current.step(ranks, &gaps);
                }
            }
            let new = (steps * active.len()) as u64;
            report(done.fetch_add(new, Relaxed) + new);
        }
    })?;
    Ok(gaps)
}

/// A stretch of text, walked from its end to its begin.
struct Walk<'g> {
    begin: u64,
    /// Positions to go.
    left: u64,
    words: &'g mut [u64],
    /// The symbols of the next steps, the last one first.
    symbols: Vec<i32>,
    /// Of the suffix to the right.
    rank: u32,
    greater_than_tail: bool,
}

impl Walk<'_> {
    fn read(&mut self, file: &SymbolFile) -> Result<()> {
        if self.symbols.is_empty() {
            let end = self.begin + self.left;
            file.read(end - self.left.min(CHUNK)..end, &mut self.symbols)?;
        }
        Ok(())
    }

    fn step(&mut self, ranks: &Ranks, gaps: &Gaps) {
        let Some(symbol) = self.symbols.pop() else { return };
        self.rank = ranks.before(symbol as u32, self.rank, self.greater_than_tail);
        self.left -= 1;
        let (word, bit) = (&mut self.words[(self.left / 64) as usize], self.left % 64);
        self.greater_than_tail = *word >> bit & 1 == 1;
        bits::set(word, bit, self.rank > ranks.rank_of_begin);
        gaps.add(self.rank);
    }
}

/// The rank of the suffix at a position after the block, by binary search. What both ends of the
/// search have in common with it, everything between them has too, and is not compared again.
fn search(
    file: &SymbolFile,
    block: &SortedBlock<'_>,
    greater: &Bits,
    position: u64,
) -> Result<u32> {
    let suffixes = File::open(block.suffixes).map_err(Error::io("open", block.suffixes))?;
    let (mut low, mut high) = (0, block.positions.end - block.positions.start);
    let (mut common_low, mut common_high) = (0, 0);
    while low < high {
        let middle = low.midpoint(high);
        let mut suffix = [0; 4];
        suffixes
            .read_exact_at(&mut suffix, 4 * middle)
            .map_err(Error::io("read", block.suffixes))?;
        let suffix = block.positions.start + u64::from(u32::from_le_bytes(suffix));
        let common = u64::min(common_low, common_high);
        let (common, smaller) =
            compare(file, suffix, block.positions.end, greater, position, common)?;
        if smaller {
            (low, common_low) = (middle + 1, common);
        } else {
            (high, common_high) = (middle, common);
        }
    }
    Ok(low as u32)
}

/// How many symbols a block's suffix and one from after the block have in common before the block
/// ends, at least `common`, and whether the first is the smaller.
fn compare(
    file: &SymbolFile,
    suffix: u64,
    block_end: u64,
    greater: &Bits,
    position: u64,
    mut common: u64,
) -> Result<(u64, bool)> {
    let comparable = u64::min(block_end - suffix, file.num_tokens() - position);
    common = common.min(comparable); // what is known to be common may reach over the block's end
    let (mut ours, mut theirs) = (Vec::<i32>::new(), Vec::<i32>::new());
    let mut step = 1 << 6;
    while common < comparable {
        let next = (common + step).min(comparable);
        ours.clear();
        theirs.clear();
        file.read(suffix + common..suffix + next, &mut ours)?;
        file.read(position + common..position + next, &mut theirs)?;
        if let Some(at) = ours.iter().zip(&theirs).position(|(a, b)| a != b) {
            return Ok((common + at as u64, ours[at] < theirs[at]));
        }
        common = next;
        step = (8 * step).min(1 << 16);
    }
    // Either the text ends, and what ended is a prefix of the block's suffix; or that has come to
    // the block's end.
    let smaller = position + common < file.num_tokens() && greater.get(position + common);
    Ok((common, smaller))
}
