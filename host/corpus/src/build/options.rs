//! How to build, and how a build reports its progress.

use crate::error::{Error, Result};
use crate::token_width::TokenWidth;

/// How to build.
#[derive(Clone, Copy)]
pub struct BuildOptions<'a> {
    /// Number of shards. Default: 1.
    pub shards: usize,
    /// Whether to write `metadata.K` and `metaoff.K`: each document's file, line and fields other
    /// than `text`. Default: yes.
    pub metadata: bool,
    /// Width of the tokens. Default: the narrowest that the vocabulary fits.
    pub token_width: Option<TokenWidth>,
    /// Bytes per entry of `table.K`. Default: as many as the shard needs.
    pub pointer_width: Option<usize>,
    /// Name of the field or column that holds a document's text. Default: `text`.
    pub text_field: &'a str,
    /// Bytes of memory that the process may use. A shard whose suffixes cannot be sorted within it
    /// is sorted in blocks, which takes longer and gives the same bytes. Texts are tokenised on as
    /// many threads as it has room for; a budget without room for one is refused. Lines of many
    /// megabytes, and such pages of Parquet files, come on top. Default: no limit.
    pub memory: Option<u64>,
    /// Tokens that are sorted at once, at most. Default: as many as the memory allows.
    pub max_block_tokens: Option<u64>,
    /// Bytes of text from one checkpoint to the next. At a checkpoint what was tokenised is synced
    /// to disk; an interrupted build is resumed from there. Default: 256 MiB.
    pub checkpoint_bytes: u64,
    /// Whether to discard an interrupted build instead of resuming it. Default: no.
    pub restart: bool,
    /// Is called with the build's progress: after every few megabytes, and at every shard.
    pub progress: Option<&'a (dyn Fn(Progress) + Sync)>,
}

impl Default for BuildOptions<'_> {
    fn default() -> Self {
        Self {
            shards: 1,
            metadata: true,
            token_width: None,
            pointer_width: None,
            text_field: "text",
            memory: None,
            max_block_tokens: None,
            checkpoint_bytes: 256 << 20,
            restart: false,
            progress: None,
        }
    }
}

impl BuildOptions<'_> {
    /// The default with this number of shards.
    pub fn with_shards(shards: usize) -> Self {
        Self { shards, ..Self::default() }
    }

    pub(super) fn check(&self) -> Result<()> {
        if self.shards == 0 {
            return Err(Error::option("shards", 0, "at least 1"));
        }
        if self.checkpoint_bytes == 0 {
            return Err(Error::option("checkpoint_bytes", 0, "at least 1"));
        }
        if let Some(width @ (0 | 9..)) = self.pointer_width {
            return Err(Error::option("pointer_width", width as u64, "1 to 8 bytes"));
        }
        Ok(())
    }

    pub(super) fn report(&self, progress: Progress) {
        if let Some(tell) = self.progress {
            tell(progress);
        }
    }
}

/// What a build is doing, and how far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// An interrupted build of the same index is resumed.
    Resumed {
        /// Documents that need not be tokenised again.
        documents: u64,
        /// Tokens in them, separators included.
        tokens: u64,
    },
    /// Text is being read and tokenised.
    Tokenised {
        /// Documents so far.
        documents: u64,
        /// Bytes of text so far.
        text_bytes: u64,
        /// Tokens so far, separators included.
        tokens: u64,
        /// Bytes read from the input files (compressed where they are), of `input_bytes`.
        read_bytes: u64,
        /// Bytes of all input files; 0 where documents come from memory.
        input_bytes: u64,
    },
    /// The suffixes of a shard are being sorted.
    Sorting {
        /// Which shard, from 0.
        shard: usize,
        /// How many there are.
        shards: usize,
        /// Tokens in the shard.
        tokens: u64,
        /// Tokens in the blocks that are sorted already.
        sorted: u64,
    },
    /// The suffixes after a block are being ranked among the block's own.
    Ranking {
        /// Which shard, from 0.
        shard: usize,
        /// How many there are.
        shards: usize,
        /// Tokens after the block.
        tokens: u64,
        /// How many of them are done.
        ranked: u64,
    },
    /// The blocks of a shard are being merged.
    Merging {
        /// Which shard, from 0.
        shard: usize,
        /// How many there are.
        shards: usize,
        /// Tokens in the shard.
        tokens: u64,
        /// How many of them are done.
        merged: u64,
    },
    /// The first bytes of a shard's suffixes are being looked up.
    Prefixes {
        /// Which shard, from 0.
        shard: usize,
        /// How many there are.
        shards: usize,
        /// Prefixes of the shard, those of the finest level.
        prefixes: u64,
        /// How many of them are written.
        written: u64,
    },
}
