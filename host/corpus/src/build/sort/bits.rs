//! A bit vector over the positions of a shard.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use crate::build::output::HashedFile;
use crate::build::sort::large;
use crate::error::{Error, Result};

/// A bit vector, on large pages.
pub(super) struct Bits {
    words: Vec<u64>,
}

impl Bits {
    pub(super) fn new(len: u64) -> Self {
        Self { words: large::zeros(len.div_ceil(64) as usize) }
    }

    pub(super) fn get(&self, position: u64) -> bool {
        self.words[(position / 64) as usize] >> (position % 64) & 1 == 1
    }

    pub(super) fn set(&mut self, position: u64, value: bool) {
        set(&mut self.words[(position / 64) as usize], position % 64, value);
    }

    /// Returns the words of the bits from a position on, which must be a multiple of 64.
    pub(super) fn words_from(&mut self, position: u64) -> &mut [u64] {
        &mut self.words[(position / 64) as usize..]
    }

    pub(super) fn write(&self, file: &mut HashedFile) -> Result<()> {
        for words in self.words.chunks(1 << 12) {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            file.write(&bytes)?;
        }
        Ok(())
    }

    pub(super) fn read(path: &Path, len: u64) -> Result<Self> {
        let mut bits = Self::new(len);
        let mut file = BufReader::new(File::open(path).map_err(Error::io("open", path))?);
        for word in &mut bits.words {
            let mut bytes = [0; 8];
            file.read_exact(&mut bytes).map_err(Error::io("read", path))?;
            *word = u64::from_le_bytes(bytes);
        }
        Ok(bits)
    }
}

/// Sets one bit of a word.
pub(super) fn set(word: &mut u64, bit: u64, value: bool) {
    *word = *word & !(1 << bit) | u64::from(value) << bit;
}
