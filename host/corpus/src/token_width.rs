//! The width of a token in the stream.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Bytes per token of `tokenized.K`, little-endian. The separator between documents is all ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TokenWidth {
    /// One byte: vocabularies up to 255.
    U8,
    /// Two bytes: vocabularies up to 65,535 (Llama 2, GPT-2, OLMo). The format's default.
    U16,
    /// Four bytes: larger vocabularies (Llama 3, Qwen).
    U32,
}

impl TokenWidth {
    /// Returns the narrowest width for ids below `num_ids` and a separator.
    pub fn for_vocabulary(num_ids: u32) -> Self {
        match num_ids {
            0..=0xFF => Self::U8,
            0x100..=0xFFFF => Self::U16,
            _ => Self::U32,
        }
    }

    /// Returns the size of a token, bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::U16 => 2,
            Self::U32 => 4,
        }
    }

    /// Returns the token that precedes every document.
    pub const fn separator(self) -> u32 {
        match self {
            Self::U8 => 0xFF,
            Self::U16 => 0xFFFF,
            Self::U32 => u32::MAX,
        }
    }

    /// Returns the largest id of a vocabulary's token: the separator's, minus one.
    pub const fn largest_token(self) -> u32 {
        self.separator() - 1
    }

    /// Returns the token at an index of a stream; `None` past the end.
    pub(crate) fn read(self, stream: &[u8], index: u64) -> Option<u32> {
        let start = usize::try_from(index).ok()?.checked_mul(self.bytes())?;
        let bytes = stream.get(start..start.checked_add(self.bytes())?)?;
        Some(bytes.iter().rev().fold(0, |token, &byte| token << 8 | u32::from(byte)))
    }
}

impl fmt::Display for TokenWidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "u{}", 8 * self.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_width_reserves_separator_id() {
        assert_eq!(TokenWidth::for_vocabulary(255), TokenWidth::U8);
        assert_eq!(TokenWidth::for_vocabulary(256), TokenWidth::U16);
        assert_eq!(TokenWidth::for_vocabulary(65_535), TokenWidth::U16);
        assert_eq!(TokenWidth::for_vocabulary(65_536), TokenWidth::U32);
    }
}
