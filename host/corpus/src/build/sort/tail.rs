//! Comparison of a block's suffixes with the tail: the suffix that starts at the block's end.
//!
//! Sorting a block needs nothing else of the text after it (`block.rs`). Each suffix of the block is
//! matched against the tail from its first symbol on. The tail's Z-array, filled as far as matches
//! reach, gives the length of each match that is known without reading a symbol twice, so the time is
//! linear even for repetitive text. A match that reaches the block's end continues inside the tail,
//! where the order is already known.

use crate::build::sort::bits::Bits;
use crate::build::sort::symbols::{Symbol, SymbolFile};
use crate::error::Result;

/// Sets a bit of `greater` for each position of the block whose suffix is greater than the tail, and
/// returns the number of smaller ones. The bits of the tail's positions must be set already. Returns
/// `None` if a match is longer than `longest`, which bounds the memory: a symbol and four bytes for
/// each.
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
    // `block[left..right]` is a prefix of the tail.
    let mut left = 0;
    let mut right = 0;
    let mut num_smaller = 0;
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
            left = position;
            right = position + length;
        }
        let is_greater = match tail.symbol(length)? {
            None => true, // the tail is a prefix of this suffix
            Some(_) if position + length == block.len() => !greater.get(end + length as u64),
            Some(symbol) => block[position + length].number() > symbol.number(),
        };
        greater.set(begin + position as u64, is_greater);
        num_smaller += u32::from(!is_greater);
    }
    Ok(Some(num_smaller))
}

/// The text after a block, read and analysed lazily.
struct Tail<'f, S> {
    file: &'f SymbolFile,
    start: u64,
    symbols: Vec<S>,
    /// Z-array: `repeats[i]` symbols from `i` on equal those from 0 on, with
    /// `i + repeats[i] <= longest`.
    repeats: Vec<u32>,
    /// Start of the rightmost repeat: `symbols[left..right]` is a prefix of the tail.
    left: usize,
    right: usize,
    longest: usize,
}

impl<S: Symbol> Tail<'_, S> {
    /// Returns the symbol at an index; `None` after the end of the text.
    fn symbol(&mut self, index: usize) -> Result<Option<S>> {
        if index >= self.symbols.len() {
            let from = self.start + self.symbols.len() as u64;
            let step = self.symbols.len().clamp(1 << 10, 1 << 16) as u64;
            self.file.read(from..(from + step).min(self.file.num_tokens()), &mut self.symbols)?;
        }
        Ok(self.symbols.get(index).copied())
    }

    /// Returns the entry of the Z-array at an index.
    fn repeat(&mut self, index: usize) -> Result<usize> {
        while self.repeats.len() <= index {
            let next = self.repeats.len();
            let mut length = match next < self.right {
                true => (self.repeats[next - self.left] as usize).min(self.right - next),
                false => 0,
            };
            if next + length >= self.right {
                while next + length < self.longest {
                    let symbol = self.symbol(next + length)?;
                    if symbol.is_none() || symbol != self.symbol(length)? {
                        break;
                    }
                    length += 1;
                }
                self.left = next;
                self.right = next + length;
            }
            // Doubling would exceed the memory budget.
            if self.repeats.len() == self.repeats.capacity() {
                self.repeats.reserve_exact(next.clamp(1 << 10, 1 << 20));
            }
            self.repeats.push(length as u32);
        }
        Ok(self.repeats[index] as usize)
    }
}
