//! Preparation of a block, so that its suffixes are sorted as in the complete text.
//!
//! The library sorts a block as if the text ended with it. That is wrong only if a comparison reaches
//! the block's end, so no comparison may. The block's last symbol `c` becomes unique: it is ordered
//! after those `c` whose suffix is smaller than the last one, and before those whose suffix is
//! greater. The order depends on the text after each `c`, and is known from `tail.rs`. The new
//! symbols take two numbers in addition to the alphabet.

use crate::build::sort::bits::Bits;
use crate::build::sort::symbols::Symbol;

/// Number of symbols that [`isolate_last`] adds to the alphabet.
pub(super) const ROOM: u32 = 2;

/// Makes the last symbol of a block unique. A bit of `greater` is set if the suffix at that position,
/// from `begin` on, is greater than the text after the block.
pub(super) fn isolate_last<S: Symbol>(block: &mut [S], begin: u64, greater: &Bits) {
    let Some((last, rest)) = block.split_last_mut() else { return };
    let c = last.number();
    for (position, symbol) in (begin..).zip(rest) {
        let number = symbol.number();
        if number > c || number == c && greater.get(position + 1) {
            *symbol = S::new(number + 2);
        }
    }
    *last = S::new(c + 1);
}

/// Restores the symbols that [`isolate_last`] changed.
pub(super) fn restore<S: Symbol>(block: &mut [S]) {
    let Some(last) = block.last() else { return };
    let c = last.number() - 1;
    for symbol in block {
        let number = symbol.number();
        *symbol = S::new(if number > c + 2 { number - 2 } else { number.min(c) });
    }
}
