//! The suffix array of a shard, within a memory budget.
//!
//! Suffixes are ordered by their bytes on disk. That is the order of *byte-swapped* tokens, which are
//! numbered in that order (`symbols.rs`). A shard that fits the budget is sorted in one piece, in
//! linear time, by libsais. A larger one is cut into blocks, which are sorted from the last to the
//! first:
//!
//! 1. A bit for every position of a block is set if its suffix is greater than the text after the
//!    block (`tail.rs`). With these bits, the block is sorted by itself, in the order that its suffixes
//!    have in the complete text (`block.rs`).
//! 2. A walk through the text after the block counts its suffixes between each two of the block's
//!    (`ranks.rs`, `gaps.rs`), and updates the bits of that text for the next block.
//! 3. When all blocks are sorted, their suffixes are merged by the counts (`merge.rs`).
//!
//! This is the scheme of pSAscan (Kärkkäinen, Kempa and Puglisi, “Parallel External Memory Suffix
//! Sorting”, 2015), with a search in lists instead of a rank structure over the block's BWT. The
//! alternative is to merge sorted blocks by comparing their suffixes in the text. That reads the text
//! at random, so that all of it must be in memory, and compares long repeats repeatedly. Here only the
//! current block is in memory, files are read sequentially, and long repeats have no extra cost. In
//! return each block walks all text behind it, so the walks grow with tokens × blocks.
//!
//! Memory: six bytes per token of a block if there are fewer than 65,535 distinct tokens, else eight;
//! and a bit per token of the shard if there are several blocks. No file is mapped.

mod bits;
mod block;
mod gaps;
mod large;
mod merge;
mod pointers;
mod ranks;
mod symbols;
mod tail;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::Path;

use rayon::prelude::*;

use crate::build::memory;
use crate::build::options::{BuildOptions, BuildProgress};
use crate::build::output::HashedFile;
use crate::build::sort::bits::Bits;
use crate::build::sort::gaps::SortedBlock;
use crate::build::sort::merge::BlockFiles;
use crate::build::sort::pointers::PointerFile;
use crate::build::sort::ranks::Ranks;
use crate::build::sort::symbols::{Symbol, SymbolFile};
use crate::build::unfinished::{Block, UnfinishedIndex};
use crate::error::{Error, Result};
use crate::files::format::FileKind;
use crate::files::manifest::FileRecord;
use crate::token_width::TokenWidth;

/// Largest block, tokens. The library's 32-bit form needs some of the 2³¹ numbers itself.
const MAX_BLOCK_TOKENS: u64 = i32::MAX as u64 - (1 << 20);
/// Smallest block, tokens. The walks of smaller blocks would cost too much.
const MIN_BLOCK_TOKENS: u64 = 1 << 16;

/// Sorts the suffixes of every shard that has no table yet.
pub(super) fn write_tables(
    unfinished: &mut UnfinishedIndex,
    width: TokenWidth,
    options: &BuildOptions<'_>,
) -> Result<()> {
    let mut shards = Vec::new();
    for shard in 0..options.shards {
        if !unfinished.is_finished(&FileKind::Table.file_name(shard)) {
            let stream = FileKind::Tokenized.path(unfinished.path(), shard);
            shards.push((shard, SymbolFile::open(&stream, width)?));
        }
    }
    let budget = Budget::new(options);
    let mut remaining = &shards[..];
    while let Some((first, first_file)) = remaining.first() {
        let num_parallel = budget.num_parallel(remaining);
        if num_parallel == 0 {
            let block_tokens = budget.block_tokens(first_file)?;
            sort_in_blocks(unfinished, *first, first_file, block_tokens, width, options)?;
            remaining = &remaining[1..];
            continue;
        }
        let tables = remaining[..num_parallel]
            .par_iter()
            .map(|(shard, file)| write_table(unfinished, *shard, file, width, options))
            .collect::<Result<Vec<_>>>()?;
        unfinished.update(|state| state.finished.extend(tables))?;
        remaining = &remaining[num_parallel..];
    }
    Ok(())
}

/// Sorts the suffixes of a shard in one piece, and returns the table's file.
fn write_table(
    unfinished: &UnfinishedIndex,
    shard: usize,
    file: &SymbolFile,
    width: TokenWidth,
    options: &BuildOptions<'_>,
) -> Result<(String, FileRecord)> {
    let tokens = file.num_tokens();
    options.report(BuildProgress::Sorting { shard, shards: options.shards, tokens, sorted: 0 });
    let output = unfinished.create_file(&FileKind::Table.file_name(shard))?;
    let pointer_bytes = pointers::pointer_bytes(options.pointer_width, tokens, width)?;
    let table = PointerFile::new(output, width, pointer_bytes);
    match symbol_bytes(file) {
        2 => sort_in_one_piece::<u16>(file, shard, table),
        _ => sort_in_one_piece::<i32>(file, shard, table),
    }
}

/// The memory that sorting may use.
struct Budget {
    /// Memory budget of the process, bytes; `None` sets no limit.
    total: Option<u64>,
    /// Memory in other use when sorting began, bytes.
    used: u64,
    /// Largest block, tokens, if the memory suffices.
    max_block_tokens: u64,
}

impl Budget {
    fn new(options: &BuildOptions<'_>) -> Self {
        let used = memory::resident() + memory::reserve();
        let max_block_tokens =
            options.max_block_tokens.unwrap_or(u64::MAX).clamp(64, MAX_BLOCK_TOKENS);
        Self { total: options.memory, used, max_block_tokens }
    }

    fn bytes(&self) -> u64 {
        self.total.map_or(u64::MAX, |total| total.saturating_sub(self.used))
    }

    /// Returns the number of shards, from the first on, that may be sorted in one piece in parallel;
    /// 0 if the first must be sorted in blocks.
    fn num_parallel(&self, shards: &[(usize, SymbolFile)]) -> usize {
        if shards.iter().any(|(_, file)| file.num_tokens() > self.max_block_tokens) {
            return 0;
        }
        let max_parallel = shards.len().min(rayon::current_num_threads());
        let mut bytes = 0;
        for (index, (_, file)) in shards[..max_parallel].iter().enumerate() {
            bytes += sorting_bytes(file);
            if bytes > self.bytes() {
                return index;
            }
        }
        max_parallel
    }

    /// Returns the number of tokens per block if the shard is cut into equal blocks.
    fn block_tokens(&self, file: &SymbolFile) -> Result<u64> {
        let tokens = file.num_tokens();
        let per_token = symbol_bytes(file) + 4;
        let bits = tokens.div_ceil(8);
        let largest = (self.bytes().saturating_sub(bits) / per_token).min(self.max_block_tokens);
        let smallest = MIN_BLOCK_TOKENS.min(tokens).min(self.max_block_tokens);
        if largest < smallest {
            let needed = self.used + bits + smallest * per_token;
            return Err(Error::memory(self.total.unwrap_or(u64::MAX), needed));
        }
        // A multiple of 64, so that no two blocks share a word of bits.
        let equal = tokens.div_ceil(tokens.div_ceil(largest)).next_multiple_of(64);
        Ok(if equal <= largest { equal } else { largest / 64 * 64 })
    }
}

/// Returns the memory for sorting a shard in one piece, bytes.
fn sorting_bytes(file: &SymbolFile) -> u64 {
    file.num_tokens() * (symbol_bytes(file) + 4)
}

/// Returns the size of a symbol in memory, bytes.
fn symbol_bytes(file: &SymbolFile) -> u64 {
    if file.num_symbols() + block::ROOM <= 1 << 16 { 2 } else { 4 }
}

/// Sorts the suffixes of a shard with one call of the library.
fn sort_in_one_piece<S: Symbol>(
    file: &SymbolFile,
    shard: usize,
    mut table: PointerFile,
) -> Result<(String, FileRecord)> {
    let mut symbols = large::with_capacity::<S>(file.num_tokens() as usize);
    file.read(0..file.num_tokens(), &mut symbols)?;
    for position in suffix_array(&mut symbols, shard)? {
        table.push(position as u64)?;
    }
    table.finish()
}

fn suffix_array<S: Symbol>(symbols: &mut [S], shard: usize) -> Result<Vec<i32>> {
    let tokens = symbols.len() as u64;
    S::sort(symbols).map_err(|error| {
        Error::OutOfMemory(format!(
            "sorting the suffixes of shard {shard} ({tokens} tokens) failed: {error:?}"
        ))
    })
}

/// Sorts the suffixes of a shard block by block, and merges the blocks. An interrupted build resumes
/// after its last block.
fn sort_in_blocks(
    unfinished: &mut UnfinishedIndex,
    shard: usize,
    file: &SymbolFile,
    block_tokens: u64,
    width: TokenWidth,
    options: &BuildOptions<'_>,
) -> Result<()> {
    let tokens = file.num_tokens();
    let shards = options.shards;
    let pointer_bytes = pointers::pointer_bytes(options.pointer_width, tokens, width)?;
    // An interrupted build may have finished blocks of another size.
    let mut end = unfinished.blocks(shard).last().map_or(tokens, |block| block.begin);
    let mut greater = match end < tokens {
        true => Bits::read(&unfinished.path().join(bits_name(shard, end)), tokens)?,
        false => Bits::new(tokens),
    };
    while end > 0 {
        options.report(BuildProgress::Sorting { shard, shards, tokens, sorted: tokens - end });
        let begin = end.saturating_sub(block_tokens).next_multiple_of(64);
        let report_ranked = |ranked: u64| {
            options.report(BuildProgress::Ranking { shard, shards, tokens: tokens - end, ranked })
        };
        let block = match symbol_bytes(file) {
            2 => sort_block::<u16>(
                unfinished,
                shard,
                file,
                begin..end,
                &mut greater,
                &report_ranked,
            )?,
            _ => sort_block::<i32>(
                unfinished,
                shard,
                file,
                begin..end,
                &mut greater,
                &report_ranked,
            )?,
        };
        // Crash safety: the bits are synced before the state lists the block, and the old bits are
        // removed after it.
        let mut bits = unfinished.create_file(&bits_name(shard, block.begin))?;
        greater.write(&mut bits)?;
        bits.finish()?;
        let outdated = bits_name(shard, end);
        let next_end = block.begin;
        unfinished.update(|state| state.blocks.entry(shard).or_default().push(block))?;
        unfinished.remove_file(&outdated)?;
        end = next_end;
    }
    drop(greater);

    merge_blocks(unfinished, shard, tokens, pointer_bytes, width, options)
}

/// Merges the sorted blocks of a shard into its table, and removes their files.
fn merge_blocks(
    unfinished: &mut UnfinishedIndex,
    shard: usize,
    tokens: u64,
    pointer_bytes: usize,
    width: TokenWidth,
    options: &BuildOptions<'_>,
) -> Result<()> {
    let mut blocks = Vec::new();
    for block in unfinished.blocks(shard).iter().rev() {
        let is_last = block.end == tokens;
        blocks.push(BlockFiles {
            begin: block.begin,
            suffixes: unfinished.path().join(suffixes_name(shard, block.begin)),
            gaps: (!is_last).then(|| unfinished.path().join(gaps_name(shard, block.begin))),
        });
    }
    let output = unfinished.create_file(&FileKind::Table.file_name(shard))?;
    let mut table = PointerFile::new(output, width, pointer_bytes);
    let shards = options.shards;
    merge::merge(&blocks, tokens, &mut table, &|merged| {
        options.report(BuildProgress::Merging { shard, shards, tokens, merged });
    })?;
    let finished = table.finish()?;
    unfinished.update(|state| {
        state.finished.extend([finished]);
        state.blocks.remove(&shard);
    })?;
    for block in blocks {
        unfinished.remove_file(&suffixes_name(shard, block.begin))?;
        unfinished.remove_file(&gaps_name(shard, block.begin))?;
        unfinished.remove_file(&bits_name(shard, block.begin))?;
    }
    Ok(())
}

fn suffixes_name(shard: usize, begin: u64) -> String {
    format!("suffixes.{shard}.{begin}")
}

fn gaps_name(shard: usize, begin: u64) -> String {
    format!("gaps.{shard}.{begin}")
}

fn bits_name(shard: usize, begin: u64) -> String {
    format!("greater.{shard}.{begin}")
}

/// Sorts the suffixes that start in a block, or in its second half if the block repeats too much of
/// the text after it.
fn sort_block<S: Symbol>(
    unfinished: &UnfinishedIndex,
    shard: usize,
    file: &SymbolFile,
    positions: Range<u64>,
    greater: &mut Bits,
    report_ranked: &(dyn Fn(u64) + Sync),
) -> Result<Block> {
    let mut begin = positions.start;
    let end = positions.end;
    let is_last = end == file.num_tokens();
    let mut block = large::with_capacity::<S>((end - begin) as usize);
    file.read(begin..end, &mut block)?;
    let mut rank_of_tail = 0;
    if !is_last {
        let longest = if end - begin > MIN_BLOCK_TOKENS { block.len() / 2 } else { block.len() };
        rank_of_tail = match tail::compare_with_tail(&block, begin, longest, file, greater)? {
            Some(rank) => rank,
            None => {
                begin = (begin + (end - begin) / 2).next_multiple_of(64);
                block.clear();
                file.read(begin..end, &mut block)?;
                // No match can be longer than the block.
                tail::compare_with_tail(&block, begin, block.len(), file, greater)?
                    .unwrap_or_default()
            }
        };
        block::isolate_last(&mut block, begin, greater);
    }

    let suffixes = suffix_array(&mut block, shard)?;
    let path = unfinished.path().join(suffixes_name(shard, begin));
    write_suffixes(unfinished.create_file(&suffixes_name(shard, begin))?, &suffixes)?;
    let mut after_begin = false;
    for suffix in suffixes {
        greater.set(begin + suffix as u64, after_begin);
        after_begin |= suffix == 0;
    }
    if !is_last {
        block::restore(&mut block);
        let tokens = block.len() as u64;
        let ranks =
            Ranks::new(block, file.num_symbols(), read_suffixes(&path, tokens)?, rank_of_tail)?;
        let sorted = SortedBlock { positions: begin..end, suffixes: &path };
        let gaps = gaps::count_gaps(file, &sorted, &ranks, greater, report_ranked)?;
        drop(ranks);
        let mut out = unfinished.create_file(&gaps_name(shard, begin))?;
        gaps.write(&mut out)?;
        out.finish()?;
    }
    Ok(Block { begin, end })
}

/// Number of suffixes in a read or write.
const CHUNK: usize = 1 << 14;

fn write_suffixes(mut file: HashedFile, suffixes: &[i32]) -> Result<()> {
    for chunk in suffixes.chunks(CHUNK) {
        let bytes: Vec<u8> = chunk.iter().flat_map(|suffix| suffix.to_le_bytes()).collect();
        file.write(&bytes)?;
    }
    file.finish()?;
    Ok(())
}

/// Returns the suffixes of a block's file, in chunks.
fn read_suffixes(path: &Path, tokens: u64) -> Result<impl Iterator<Item = Result<Vec<u32>>>> {
    let mut file = File::open(path).map_err(Error::io("open", path))?;
    Ok((0..tokens).step_by(CHUNK).map(move |begin| {
        let mut bytes = vec![0; 4 * CHUNK.min((tokens - begin) as usize)];
        file.read_exact(&mut bytes).map_err(Error::io("read", path))?;
        Ok(bytes.as_chunks().0.iter().map(|&bytes| u32::from_le_bytes(bytes)).collect())
    }))
}
