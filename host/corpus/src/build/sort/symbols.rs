//! The tokens of a shard as symbols: consecutive numbers in the order of the tokens' bytes on disk.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use libsais::LibsaisError;
use libsais::suffix_array::SuffixArrayConstruction;
use rustc_hash::FxHashMap;

use crate::build::sort::large;
use crate::error::{Error, Result};
use crate::token_width::TokenWidth;

/// Size of a read, bytes.
const CHUNK: usize = 1 << 16;

/// An integer type of symbols in memory, whose texts the library can sort.
pub(super) trait Symbol: Copy + Eq + Send {
    fn new(number: u32) -> Self;
    fn number(self) -> u32;

    /// Returns the suffix array of a text. The text is changed temporarily and then restored.
    fn sort(text: &mut [Self]) -> Result<Vec<i32>, LibsaisError>;
}

impl Symbol for u16 {
    fn new(number: u32) -> Self {
        number as u16
    }

    fn number(self) -> u32 {
        self.into()
    }

    fn sort(text: &mut [Self]) -> Result<Vec<i32>, LibsaisError> {
        let mut suffixes = large::zeros(text.len());
        SuffixArrayConstruction::for_text(text)
            .in_borrowed_buffer(&mut suffixes)
            .single_threaded()
            .run()?;
        Ok(suffixes)
    }
}

impl Symbol for i32 {
    fn new(number: u32) -> Self {
        number as i32
    }

    fn number(self) -> u32 {
        self as u32
    }

    fn sort(text: &mut [Self]) -> Result<Vec<i32>, LibsaisError> {
        let mut suffixes = large::zeros(text.len());
        SuffixArrayConstruction::for_text_mut(text)
            .in_borrowed_buffer(&mut suffixes)
            .single_threaded()
            .run()?;
        Ok(suffixes)
    }
}

/// A finished `tokenized.K`, read as symbols.
pub(super) struct SymbolFile {
    file: File,
    path: PathBuf,
    width: TokenWidth,
    num_tokens: u64,
    alphabet: Alphabet,
}

impl SymbolFile {
    /// Opens the file and reads it once, for its alphabet.
    pub(super) fn open(path: &Path, width: TokenWidth) -> Result<Self> {
        let file = File::open(path).map_err(Error::io("open", path))?;
        let bytes = file.metadata().map_err(Error::io("read the size of", path))?.len();
        let num_tokens = bytes / width.bytes() as u64;
        let mut symbols = Self {
            file,
            path: path.to_owned(),
            width,
            num_tokens,
            alphabet: Alphabet::empty(width),
        };
        let mut alphabet = Alphabet::empty(width);
        symbols.for_each_token(0..num_tokens, |token| alphabet.insert(token))?;
        alphabet.number_in_order(width);
        symbols.alphabet = alphabet;
        Ok(symbols)
    }

    pub(super) fn num_tokens(&self) -> u64 {
        self.num_tokens
    }

    /// Returns the number of distinct symbols.
    pub(super) fn num_symbols(&self) -> u32 {
        self.alphabet.num_symbols()
    }

    /// Appends the symbols at some positions.
    pub(super) fn read<S: Symbol>(&self, positions: Range<u64>, out: &mut Vec<S>) -> Result<()> {
        out.reserve_exact((positions.end - positions.start) as usize);
        self.for_each_token(positions, |token| out.push(S::new(self.alphabet.number(token))))
    }

    fn for_each_token(&self, positions: Range<u64>, mut visit: impl FnMut(u32)) -> Result<()> {
        let width = self.width.bytes();
        let mut buffer = [0; CHUNK];
        let mut offset = positions.start * width as u64;
        let end = positions.end * width as u64;
        while offset < end {
            let chunk = &mut buffer[..CHUNK.min((end - offset) as usize)];
            self.file.read_exact_at(chunk, offset).map_err(Error::io("read", &self.path))?;
            match self.width {
                TokenWidth::U8 => {
                    for &byte in &*chunk {
                        visit(byte.into());
                    }
                }
                TokenWidth::U16 => {
                    for &bytes in chunk.as_chunks().0 {
                        visit(u16::from_le_bytes(bytes).into());
                    }
                }
                TokenWidth::U32 => {
                    for &bytes in chunk.as_chunks().0 {
                        visit(u32::from_le_bytes(bytes));
                    }
                }
            }
            offset += chunk.len() as u64;
        }
        Ok(())
    }
}

/// A map from tokens to symbols.
enum Alphabet {
    /// Symbol of each token; [`ABSENT`] if the shard does not contain the token.
    Small(Vec<u32>),
    /// Symbols by token, for 32-bit tokens.
    Large(FxHashMap<u32, u32>),
}

const ABSENT: u32 = u32::MAX;

/// Returns a number that orders tokens by their little-endian bytes. It is its own inverse.
fn swap_bytes(token: u32, width: TokenWidth) -> u32 {
    token.swap_bytes() >> (32 - 8 * width.bytes())
}

impl Alphabet {
    fn empty(width: TokenWidth) -> Self {
        match width {
            TokenWidth::U8 | TokenWidth::U16 => {
                Self::Small(vec![ABSENT; width.separator() as usize + 1])
            }
            TokenWidth::U32 => Self::Large(FxHashMap::default()),
        }
    }

    fn insert(&mut self, token: u32) {
        match self {
            Self::Small(numbers) => numbers[token as usize] = 0,
            Self::Large(numbers) => {
                numbers.insert(token, 0);
            }
        }
    }

    fn number_in_order(&mut self, width: TokenWidth) {
        match self {
            Self::Small(numbers) => {
                let mut next = 0;
                for key in 0..=width.separator() {
                    let number = &mut numbers[swap_bytes(key, width) as usize];
                    if *number != ABSENT {
                        *number = next;
                        next += 1;
                    }
                }
            }
            Self::Large(numbers) => {
                let mut tokens: Vec<u32> = numbers.keys().copied().collect();
                tokens.sort_unstable_by_key(|&token| swap_bytes(token, width));
                *numbers = tokens.into_iter().zip(0..).collect();
            }
        }
    }

    fn num_symbols(&self) -> u32 {
        match self {
            Self::Small(numbers) => {
                numbers.iter().filter(|&&number| number != ABSENT).count() as u32
            }
            Self::Large(numbers) => numbers.len() as u32,
        }
    }

    fn number(&self, token: u32) -> u32 {
        match self {
            Self::Small(numbers) => numbers[token as usize],
            Self::Large(numbers) => numbers[&token],
        }
    }
}
