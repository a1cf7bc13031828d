//! The suffix array of a shard, within a memory budget.
//!
//! Suffixes are ordered byte by byte as they lie on disk; that is the order of *byte-swapped*
//! tokens, which are numbered in that order (`symbols.rs`). A shard that fits the budget is sorted
//! at once, in linear time, by libsais. A larger one is cut into blocks, and sorted from the last
//! to the first:
//!
//! 1. A bit for every position of a block tells whether its suffix is greater than the text after
//!    the block (`tail.rs`); with these, the block is sorted by itself, in the order that its
//!    suffixes have in the whole text (`block.rs`).
//! 2. A walk through the text after the block counts how many of its suffixes fall between each two
//!    of the block's (`ranks.rs`, `gaps.rs`), and turns the bits of that text into what the next
//!    block needs.
//! 3. When all blocks are done, their suffixes are merged by the counts (`merge.rs`).
//!
//! This is the scheme of pSAscan (Kärkkäinen, Kempa and Puglisi, “Parallel External Memory Suffix
//! Sorting”, 2015), with a search in lists in place of a rank structure over the block's BWT. The
//! alternative, to merge sorted blocks by comparing their suffixes in the text, reads the text at
//! random places, so that all of it must be in memory to be fast, and compares long repeats again
//! and again. Here only the current block is in memory, files are read from end to end, and long
//! repeats cost nothing. In return each block walks all of the text behind it, so the walks grow
//! with tokens × blocks.
//!
//! Memory: six bytes per token of a block where there are fewer than 65,535 different tokens, else
//! eight; and a bit per token of the shard if there are several blocks. No file is mapped.

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
use std::io::{BufReader, Read};
use std::ops::Range;
use std::path::Path;

use rayon::prelude::*;

use crate::build::memory;
use crate::build::options::{BuildOptions, Progress};
use crate::build::output::HashedFile;
use crate::build::sort::bits::Bits;
use crate::build::sort::gaps::SortedBlock;
use crate::build::sort::merge::BlockFiles;
use crate::build::sort::pointers::PointerFile;
use crate::build::sort::ranks::Ranks;
use crate::build::sort::symbols::{Symbol, SymbolFile};
use crate::build::unfinished::{Block, Unfinished};
use crate::error::{Error, Result};
use crate::files::format::Family;
use crate::files::manifest::FileRecord;
use crate::token_width::TokenWidth;

/// The library's 32-bit form takes a little less than 2³¹ tokens: it needs some room of its own.
const MAX_BLOCK_TOKENS: u64 = i32::MAX as u64 - (1 << 20);
/// Smaller blocks are not worth their walks.
const MIN_BLOCK_TOKENS: u64 = 1 << 16;

/// Sorts the suffixes of every shard that has no table yet.
pub(super) fn write_tables(
    unfinished: &mut Unfinished,
    width: TokenWidth,
    options: &BuildOptions<'_>,
) -> Result<()> {
    let shards = options.shards;
    let mut todo = Vec::new();
    for shard in 0..shards {
        if !unfinished.is_finished(&Family::Table.file_name(shard)) {
            todo.push((
                shard,
                SymbolFile::open(&Family::Tokenized.path(unfinished.path(), shard), width)?,
            ));
        }
    }
    let budget = Budget::new(options);
    // As many at a time as there are threads and the budget has room for.
    let mut todo = &todo[..];
    while !todo.is_empty() {
        let at_once = (1..=todo.len().min(rayon::current_num_threads()))
            .rev()
            .find(|&n| {
                todo[..n].iter().map(|(_, file)| bytes_at_once(file)).sum::<u64>() <= budget.bytes()
            })
            .filter(|_| todo.iter().all(|(_, file)| file.num_tokens() <= budget.max_block_tokens));
        let (now, later) = todo.split_at(at_once.unwrap_or(1));
        todo = later;
        if at_once.is_none() {
            let (shard, file) = &now[0];
            sort_in_blocks(unfinished, *shard, file, budget.block_tokens(file)?, width, options)?;
            continue;
        }
        let tables = now.par_iter().map(|(shard, file)| {
            options.report(Progress::Sorting {
                shard: *shard,
                shards,
                tokens: file.num_tokens(),
                sorted: 0,
            });
            let table = unfinished.create_file(&Family::Table.file_name(*shard))?;
            let bytes = pointers::pointer_bytes(options.pointer_width, file.num_tokens(), width)?;
            let table = PointerFile::new(table, width, bytes);
            match symbol_bytes(file) {
                2 => sort_at_once::<u16>(file, *shard, table),
                _ => sort_at_once::<i32>(file, *shard, table),
            }
        });
        let tables = tables.collect::<Result<Vec<_>>>()?;
        unfinished.update(|state| state.finished.extend(tables))?;
    }
    Ok(())
}

/// The memory that sorting may use.
struct Budget {
    /// For the whole process; `None` for no limit.
    asked: Option<u64>,
    /// In use for other things when sorting began.
    taken: u64,
    /// A limit whatever the memory.
    max_block_tokens: u64,
}

impl Budget {
    fn new(options: &BuildOptions<'_>) -> Self {
        let taken = memory::resident() + memory::reserve();
        let max_block_tokens =
            options.max_block_tokens.unwrap_or(u64::MAX).clamp(64, MAX_BLOCK_TOKENS);
        Self { asked: options.memory, taken, max_block_tokens }
    }

    fn bytes(&self) -> u64 {
        self.asked.map_or(u64::MAX, |asked| asked.saturating_sub(self.taken))
    }

    /// Tokens per block, where the shard is cut into equal ones.
    fn block_tokens(&self, file: &SymbolFile) -> Result<u64> {
        let tokens = file.num_tokens();
        let per_token = symbol_bytes(file) + 4;
        let bits = tokens.div_ceil(8);
        let largest = (self.bytes().saturating_sub(bits) / per_token).min(self.max_block_tokens);
        let smallest = MIN_BLOCK_TOKENS.min(tokens).min(self.max_block_tokens);
        if largest < smallest {
            let needed = self.taken + bits + smallest * per_token;
            return Err(Error::memory(self.asked.unwrap_or(u64::MAX), needed));
        }
        // A multiple of 64, so that no two blocks share a word of bits.
        let equal = tokens.div_ceil(tokens.div_ceil(largest)).next_multiple_of(64);
        Ok(if equal <= largest { equal } else { largest / 64 * 64 })
    }
}

/// Bytes that sorting a shard in one go takes.
fn bytes_at_once(file: &SymbolFile) -> u64 {
    file.num_tokens() * (symbol_bytes(file) + 4)
}

fn symbol_bytes(file: &SymbolFile) -> u64 {
    if file.num_symbols() + block::ROOM <= 1 << 16 { 2 } else { 4 }
}

fn sort_at_once<S: Symbol>(
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

fn sort_in_blocks(
    unfinished: &mut Unfinished,
    shard: usize,
    file: &SymbolFile,
    block_tokens: u64,
    width: TokenWidth,
    options: &BuildOptions<'_>,
) -> Result<()> {
    let (tokens, shards) = (file.num_tokens(), options.shards);
    let pointer_bytes = pointers::pointer_bytes(options.pointer_width, tokens, width)?;
    let report = |sorted: u64| options.report(Progress::Sorting { shard, shards, tokens, sorted });
    // Blocks that an interrupted build has finished, whatever their size was.
    let mut end = unfinished.blocks(shard).last().map_or(tokens, |block| block.begin);
    let mut greater = match end < tokens {
        true => Bits::read(&unfinished.path().join(bits_name(shard, end)), tokens)?,
        false => Bits::new(tokens),
    };
    while end > 0 {
        report(tokens - end);
        let begin = end.saturating_sub(block_tokens).next_multiple_of(64);
        let report_ranked = |ranked: u64| {
            options.report(Progress::Ranking { shard, shards, tokens: tokens - end, ranked })
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

    let files = |block: &Block| BlockFiles {
        begin: block.begin,
        suffixes: unfinished.path().join(suffixes_name(shard, block.begin)),
        gaps: (block.end < tokens).then(|| unfinished.path().join(gaps_name(shard, block.begin))),
    };
    let blocks: Vec<BlockFiles> = unfinished.blocks(shard).iter().rev().map(files).collect();
    let table = unfinished.create_file(&Family::Table.file_name(shard))?;
    let mut table = PointerFile::new(table, width, pointer_bytes);
    let report_merged =
        |merged: u64| options.report(Progress::Merging { shard, shards, tokens, merged });
    merge::merge(&blocks, tokens, &mut table, &report_merged)?;
    let table = table.finish()?;
    let begins: Vec<u64> = blocks.iter().map(|block| block.begin).collect();
    unfinished.update(|state| {
        state.finished.extend([table]);
        state.blocks.remove(&shard);
    })?;
    for begin in begins {
        unfinished.remove_file(&suffixes_name(shard, begin))?;
        unfinished.remove_file(&gaps_name(shard, begin))?;
        unfinished.remove_file(&bits_name(shard, begin))?;
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

/// Sorts the suffixes that start in a block, or in its second half where it repeats too much of
/// what follows.
fn sort_block<S: Symbol>(
    unfinished: &Unfinished,
    shard: usize,
    file: &SymbolFile,
    positions: Range<u64>,
    greater: &mut Bits,
    report_ranked: &(dyn Fn(u64) + Sync),
) -> Result<Block> {
    let (mut begin, end) = (positions.start, positions.end);
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

fn write_suffixes(mut file: HashedFile, suffixes: &[i32]) -> Result<()> {
    for chunk in suffixes.chunks(1 << 14) {
        let bytes: Vec<u8> = chunk.iter().flat_map(|suffix| suffix.to_le_bytes()).collect();
        file.write(&bytes)?;
    }
    file.finish()?;
    Ok(())
}

fn read_suffixes(path: &Path, tokens: u64) -> Result<impl Iterator<Item = Result<u32>>> {
    let mut file =
        BufReader::with_capacity(1 << 18, File::open(path).map_err(Error::io("open", path))?);
    Ok((0..tokens).map(move |_| {
        let mut bytes = [0; 4];
        file.read_exact(&mut bytes).map_err(Error::io("read", path))?;
        Ok(u32::from_le_bytes(bytes))
    }))
}
