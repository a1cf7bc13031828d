//! Counts of the suffixes from after a block that fall between each two of the block's own.
//!
//! The text after the block is walked from its end to its begin; every step yields the rank of one
//! more suffix (`ranks.rs`). The walk is divided into parts, each of which starts with a search.
//! A thread takes several walks through each part of a step together, so that their reads of memory
//! overlap.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;

use crate::build::output::HashedFile;
use crate::build::sort::bits::{self, Bits};
use crate::build::sort::large;
use crate::build::sort::ranks::{NUM_LEVELS, RankSearch, Ranks};
use crate::build::sort::symbols::SymbolFile;
use crate::error::{Error, Result};
use crate::files::system;

/// Number of walks that a thread interleaves.
const WALKS_PER_THREAD: usize = 16;
/// Number of symbols in a read of a walk.
const CHUNK: u64 = 1 << 13;
/// Length of the shortest walk, words of 64 positions.
const MIN_WALK: usize = if cfg!(test) { 1 } else { 1 << 10 };

/// Counts by rank. Most are small, so their low bytes are stored densely and their high bits sparsely.
pub(super) struct Gaps {
    low: Vec<AtomicU8>,
    /// Number of overflows of each low byte.
    high: Mutex<BTreeMap<usize, u64>>,
}

impl Gaps {
    fn new(num_suffixes: usize) -> Self {
        let mut low = large::with_capacity(num_suffixes + 1);
        low.resize_with(num_suffixes + 1, AtomicU8::default);
        Self { low, high: Mutex::default() }
    }

    fn prefetch(&self, rank: u32) {
        system::prefetch(&self.low[rank as usize]);
    }

    fn add(&self, rank: u32) {
        if self.low[rank as usize].fetch_add(1, Relaxed) == u8::MAX {
            let mut high = self.high.lock().unwrap_or_else(PoisonError::into_inner);
            *high.entry(rank as usize).or_default() += 1;
        }
    }

    /// Writes the counts as LEB128: seven bits per byte, the lowest first; a set high bit means that
    /// more follow.
    pub(super) fn write(self, file: &mut HashedFile) -> Result<()> {
        let high = self.high.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut overflows = high.into_iter().peekable();
        let mut chunk = Vec::with_capacity((1 << 16) + 16);
        for (rank, low) in self.low.into_iter().enumerate() {
            let high_bits = overflows.next_if(|&(at, _)| at == rank).map_or(0, |(_, bits)| bits);
            let mut count = high_bits << 8 | u64::from(low.into_inner());
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

/// A sorted block: its positions, and the file of its suffixes.
pub(super) struct SortedBlock<'b> {
    pub(super) positions: Range<u64>,
    pub(super) suffixes: &'b Path,
}

/// Counts the suffixes after a block by rank. It also updates the bits of `greater` for the positions
/// after the block: from "greater than the text after the block" to "greater than the text from the
/// block's begin on".
pub(super) fn count_gaps(
    file: &SymbolFile,
    block: &SortedBlock<'_>,
    ranks: &Ranks,
    greater: &mut Bits,
    report: &(dyn Fn(u64) + Sync),
) -> Result<Gaps> {
    let end = file.num_tokens();
    let num_words = (end - block.positions.end).div_ceil(64) as usize;
    let num_walks = rayon::current_num_threads() * WALKS_PER_THREAD;
    let words_per_walk = num_words.div_ceil(num_walks).max(MIN_WALK);

    // The starts are searched for before any walk changes a bit.
    let mut starts = Vec::new();
    for begin in (block.positions.end..end).step_by(64 * words_per_walk) {
        let walk_end = (begin + 64 * words_per_walk as u64).min(end);
        // The empty suffix at the end of the text is smaller than all others.
        let is_last = walk_end == end;
        starts.push(WalkStart {
            positions: begin..walk_end,
            rank: if is_last { 0 } else { find_rank(file, block, greater, walk_end)? },
            greater_than_tail: !is_last && greater.get(walk_end),
        });
    }
    let mut walks = Vec::with_capacity(starts.len());
    let words = greater.words_from(block.positions.end).chunks_mut(words_per_walk);
    for (start, walk_words) in starts.into_iter().zip(words) {
        walks.push(Walk {
            begin: start.positions.start,
            remaining: start.positions.end - start.positions.start,
            words: walk_words,
            symbols: Vec::new(),
            rank: start.rank,
            greater_than_tail: start.greater_than_tail,
            search: RankSearch::default(),
        });
    }

    let gaps = Gaps::new(ranks.len());
    let num_done = AtomicU64::new(0);
    walks.par_chunks_mut(WALKS_PER_THREAD).try_for_each(|own| {
        let mut active: Vec<&mut Walk<'_>> = own.iter_mut().collect();
        loop {
            active.retain(|walk| walk.remaining > 0);
            for walk in &mut active {
                walk.read(file)?;
            }
            let Some(steps) = active.iter().map(|walk| walk.symbols.len()).min() else {
                return Ok(());
            };
            for _ in 0..steps {
                for walk in &mut active {
                    walk.start_step(ranks);
                }
                for level in 0..NUM_LEVELS {
                    for walk in &mut active {
                        ranks.search_level(level, &mut walk.search);
                    }
                }
                for walk in &mut active {
                    walk.finish_step(ranks);
                    gaps.prefetch(walk.rank);
                }
                for walk in &active {
                    gaps.add(walk.rank);
                }
            }
            let num_new = (steps * active.len()) as u64;
            report(num_done.fetch_add(num_new, Relaxed) + num_new);
        }
    })?;
    Ok(gaps)
}

/// The positions of a walk, and what is known of the suffix at their end.
struct WalkStart {
    positions: Range<u64>,
    rank: u32,
    greater_than_tail: bool,
}

/// A walk through a part of the text, from its end to its begin.
struct Walk<'g> {
    begin: u64,
    /// Number of positions that remain.
    remaining: u64,
    words: &'g mut [u64],
    /// Symbols of the next steps, the next one last.
    symbols: Vec<i32>,
    /// Rank of the suffix after the current position.
    rank: u32,
    /// True if that suffix is greater than the text after the block.
    greater_than_tail: bool,
    /// Search for the rank of the suffix at the current position.
    search: RankSearch,
}

impl Walk<'_> {
    fn read(&mut self, file: &SymbolFile) -> Result<()> {
        if self.symbols.is_empty() {
            let end = self.begin + self.remaining;
            file.read(end - self.remaining.min(CHUNK)..end, &mut self.symbols)?;
        }
        Ok(())
    }

    fn start_step(&mut self, ranks: &Ranks) {
        let Some(symbol) = self.symbols.pop() else { return };
        self.search = ranks.search(symbol as u32, self.rank, self.greater_than_tail);
    }

    fn finish_step(&mut self, ranks: &Ranks) {
        self.rank = self.search.result();
        self.remaining -= 1;
        let word = &mut self.words[(self.remaining / 64) as usize];
        let bit = self.remaining % 64;
        self.greater_than_tail = *word >> bit & 1 == 1;
        bits::set(word, bit, self.rank > ranks.rank_of_begin);
    }
}

/// Returns the rank of the suffix at a position after the block, by binary search. The prefix that
/// both ends of the search share with it is shared by all suffixes between them, and is not compared
/// again.
fn find_rank(
    file: &SymbolFile,
    block: &SortedBlock<'_>,
    greater: &Bits,
    position: u64,
) -> Result<u32> {
    let suffixes = File::open(block.suffixes).map_err(Error::io("open", block.suffixes))?;
    let mut low = 0;
    let mut high = block.positions.end - block.positions.start;
    let mut common_low = 0;
    let mut common_high = 0;
    while low < high {
        let middle = low.midpoint(high);
        let mut bytes = [0; 4];
        suffixes
            .read_exact_at(&mut bytes, 4 * middle)
            .map_err(Error::io("read", block.suffixes))?;
        let suffix = block.positions.start + u64::from(u32::from_le_bytes(bytes));
        let known_common = u64::min(common_low, common_high);
        let (common, is_smaller) =
            compare(file, suffix, block.positions.end, greater, position, known_common)?;
        if is_smaller {
            low = middle + 1;
            common_low = common;
        } else {
            high = middle;
            common_high = common;
        }
    }
    Ok(low as u32)
}

/// Compares a block's suffix with the suffix at a position after the block, whose first `common`
/// symbols are known to be equal. Returns the length of their common prefix inside the block, and true
/// if the block's suffix is the smaller.
fn compare(
    file: &SymbolFile,
    suffix: u64,
    block_end: u64,
    greater: &Bits,
    position: u64,
    mut common: u64,
) -> Result<(u64, bool)> {
    let comparable = u64::min(block_end - suffix, file.num_tokens() - position);
    common = common.min(comparable); // the known prefix may reach over the block's end
    let mut ours = Vec::<i32>::new();
    let mut theirs = Vec::<i32>::new();
    let mut step = 1 << 6;
    while common < comparable {
        let next = (common + step).min(comparable);
        ours.clear();
        theirs.clear();
        file.read(suffix + common..suffix + next, &mut ours)?;
        file.read(position + common..position + next, &mut theirs)?;
        if let Some(index) = ours.iter().zip(&theirs).position(|(a, b)| a != b) {
            return Ok((common + index as u64, ours[index] < theirs[index]));
        }
        common = next;
        step = (8 * step).min(1 << 16);
    }
    // Either the text has ended, and its suffix is a prefix of the block's; or the block has ended,
    // and `greater` has the order of the rest.
    let is_smaller = position + common < file.num_tokens() && greater.get(position + common);
    Ok((common, is_smaller))
}
