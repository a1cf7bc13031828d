//! The suffixes that start in one block, in the order that they have in the whole text.
//!
//! The library sorts a block as if the text ended with it. That is wrong only where a comparison
//! runs over the block's end, so no comparison may: the block's last symbol `c` is made one of a
//! kind, between those `c` whose suffix is smaller than the last one and those whose suffix is
//! greater. Which is which depends on what follows each `c`, and that is known from `tail.rs`.
//! Making room for the two takes two numbers more than there are symbols.

use crate::build::sort::bits::Bits;
use crate::build::sort::symbols::Symbol;

/// Numbers that [`isolate_last`] needs besides those of the alphabet.
pub(super) const ROOM: u32 = 2;

/// Changes the symbols as described. `greater` tells for each position from `begin` on whether its
/// suffix is greater than the text after the block.
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

/// Takes [`isolate_last`] back.
pub(super) fn restore<S: Symbol>(block: &mut [S]) {
    let Some(last) = block.last() else { return };
    let c = last.number() - 1;
    for symbol in block {
        let number = symbol.number();
        *symbol = S::new(if number > c + 2 { number - 2 } else { number.min(c) });
    }
}
