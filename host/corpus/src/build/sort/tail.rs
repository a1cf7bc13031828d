//! Which suffixes of a block are greater than the suffix that starts where the block ends?
//!
//! That is the one thing that sorting a block needs to know of what follows it (`block.rs`). Each
//! suffix of the block is matched against the tail from its first symbol on; the lengths of the
//! tail's own repeats (its Z-array, filled as far as matches reach) tell where a match can be
//! continued without reading a symbol twice, so the time is linear however much repeats. A match
//! that reaches the block's end continues inside the tail, where the answer is known already.

use crate::build::sort::bits::Bits;
use crate::build::sort::symbols::{Symbol, SymbolFile};
use crate::error::Result;

/// Sets the bits of the block's positions and returns how many are not set: how many of the block's
/// suffixes are smaller than the tail. `greater` holds the same for the tail's positions already.
/// `None` where a match is longer than `longest`, which bounds the memory: a symbol and four bytes
/// for each.
pub(super) fn compare_with_tail<S: Symbol>(
    block: &[S],
    begin: u64,
    longest: usize,
    file: &SymbolFile,
    greater: &mut Bits,
) -> Result<Option<u32>> {
    let end = begin + block.len() as u64;
    let mut tail = Tail {
        file,
        start: end,
        symbols: Vec::new(),
        repeats: vec![0],
        left: 0,
        right: 0,
        longest,
    };
    // `block[left..right]` is the tail's beginning.
    let (mut left, mut right) = (0, 0);
    let mut smaller = 0;
    for position in 0..block.len() {
        let mut length = match position < right {
            true => tail.repeat(position - left)?.min(right - position),
            false => 0,
        };
        if position + length >= right {
            while position + length < block.len()
                && tail.symbol(length)? == Some(block[position + length])
            {
                length += 1;
                if length > longest {
                    return Ok(None);
                }
            }
            (left, right) = (position, position + length);
        }
        let is_greater = match tail.symbol(length)? {
            None => true, // the tail is a prefix of this suffix
            Some(_) if position + length == block.len() => !greater.get(end + length as u64),
            Some(symbol) => block[position + length].number() > symbol.number(),
        };
        greater.set(begin + position as u64, is_greater);
        smaller += u32::from(!is_greater);
    }
    Ok(Some(smaller))
}

/// The text after a block, as far as it was needed.
struct Tail<'f, S> {
    file: &'f SymbolFile,
    start: u64,
    symbols: Vec<S>,
    /// `repeats[i]`: how many symbols from `i` on are those from 0 on, `i + repeats[i] <= longest`.
    repeats: Vec<u32>,
    /// `symbols[left..right]` is the tail's beginning.
    left: usize,
    right: usize,
    longest: usize,
}

impl<S: Symbol> Tail<'_, S> {
    /// `None` after the end of the text.
    fn symbol(&mut self, index: usize) -> Result<Option<S>> {
        if index >= self.symbols.len() {
            let from = self.start + self.symbols.len() as u64;
            let step = self.symbols.len().clamp(1 << 10, 1 << 16) as u64;
            self.file.read(from..(from + step).min(self.file.num_tokens()), &mut self.symbols)?;
        }
        Ok(self.symbols.get(index).copied())
    }

    fn repeat(&mut self, index: usize) -> Result<usize> {
        while self.repeats.len() <= index {
            let next = self.repeats.len();
            let mut length = match next < self.right {
                true => (self.repeats[next - self.left] as usize).min(self.right - next),
                false => 0,
            };
            if next + length >= self.right {
                while next + length < self.longest {
                    let (ahead, start) = (self.symbol(next + length)?, self.symbol(length)?);
                    if ahead.is_none() || ahead != start {
                        break;
                    }
                    length += 1;
                }
                (self.left, self.right) = (next, next + length);
            }
            if self.repeats.len() == self.repeats.capacity() {
                self.repeats.reserve_exact(next.clamp(1 << 10, 1 << 20)); // not twice as much
            }
            self.repeats.push(length as u32);
        }
        Ok(self.repeats[index] as usize)
    }
}
