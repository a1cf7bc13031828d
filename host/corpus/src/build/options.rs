//! Options and progress of a build.

use crate::error::{Error, Result};
use crate::token_width::TokenWidth;

/// The options of a build.
#[derive(Clone, Copy)]
pub struct BuildOptions<'a> {
    /// Number of shards; 1 or more. Default: 1.
    pub shards: usize,
    /// True to write `metadata.K` and `metaoff.K`: each document's file, line and fields other than
    /// the text. Default: true.
    pub metadata: bool,
    /// Width of the tokens; `None` for the narrowest that fits the vocabulary.
    pub token_width: Option<TokenWidth>,
    /// Size of an entry of `table.K`, bytes, 1 to 8; `None` for the smallest that fits the shard.
    pub pointer_width: Option<usize>,
    /// Name of the field or column with a document's text. Default: `text`.
    pub text_field: &'a str,
    /// Memory budget of the process, bytes; `None` sets no limit.
    ///
    /// A shard whose suffixes cannot be sorted within the budget is sorted in blocks, which takes
    /// longer and gives the same bytes. Texts are tokenised on as many threads as fit; a budget for
    /// less than one thread is refused. Lines, and pages of Parquet files, of many megabytes are not
    /// included.
    pub memory: Option<u64>,
    /// Largest block that is sorted in one piece, tokens; `None` for the largest that fits the
    /// memory.
    pub max_block_tokens: Option<u64>,
    /// Distance from one checkpoint to the next, bytes of text; 1 or more. A checkpoint syncs the
    /// tokenised text to disk; an interrupted build is resumed from it. Default: 256 MiB.
    pub checkpoint_bytes: u64,
    /// True to discard an interrupted build instead of resuming it. Default: false.
    pub restart: bool,
    /// Callback for the progress, called after every few megabytes and at every shard. `None`
    /// reports nothing.
    pub progress: Option<&'a (dyn Fn(BuildProgress) + Sync)>,
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
    /// Returns the default options with this number of shards.
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

    pub(super) fn report(&self, progress: BuildProgress) {
        if let Some(callback) = self.progress {
            callback(progress);
        }
    }
}

/// The stage of a build, and its progress within the stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildProgress {
    /// An interrupted build of the same index is resumed.
    Resumed {
        /// Number of documents in the last checkpoint.
        documents: u64,
        /// Number of tokens in the last checkpoint, separators included.
        tokens: u64,
    },
    /// Text is being read and tokenised.
    Tokenised {
        /// Number of documents so far.
        documents: u64,
        /// Length of the text so far, bytes.
        text_bytes: u64,
        /// Number of tokens so far, separators included.
        tokens: u64,
        /// Bytes read from the input files as stored, of `input_bytes`.
        read_bytes: u64,
        /// Size of all input files, bytes; 0 if the documents come from memory.
        input_bytes: u64,
    },
    /// The suffixes of a shard are being sorted.
    Sorting {
        /// Number of the shard, from 0.
        shard: usize,
        /// Number of shards in the index.
        shards: usize,
        /// Number of tokens in the shard.
        tokens: u64,
        /// Number of tokens in sorted blocks.
        sorted: u64,
    },
    /// The suffixes after a block are being ranked among those of the block.
    Ranking {
        /// Number of the shard, from 0.
        shard: usize,
        /// Number of shards in the index.
        shards: usize,
        /// Number of tokens after the block.
        tokens: u64,
        /// Number of tokens that are ranked, of `tokens`.
        ranked: u64,
    },
    /// The blocks of a shard are being merged.
    Merging {
        /// Number of the shard, from 0.
        shard: usize,
        /// Number of shards in the index.
        shards: usize,
        /// Number of tokens in the shard.
        tokens: u64,
        /// Number of tokens that are merged, of `tokens`.
        merged: u64,
    },
    /// The prefix file of a shard is being written.
    Prefixes {
        /// Number of the shard, from 0.
        shard: usize,
        /// Number of shards in the index.
        shards: usize,
        /// Number of prefixes in the finest level of the shard.
        prefixes: u64,
        /// Number of prefixes that are written, of `prefixes`.
        written: u64,
    },
}
