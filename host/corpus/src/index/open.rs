//! An open index: its shards, exact n-gram counts, and what it says about itself.

use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde::Serialize;

use crate::error::{Error, Result};
use crate::files::format::{self, Family, TOKENIZER};
use crate::files::manifest::IndexManifest;
use crate::files::shard::Shard;
use crate::suffix::position_cache::PositionCache;
use crate::suffix::search::SuffixArray;
use crate::token_width::TokenWidth;

/// How to open an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenOptions {
    /// Width of the tokens. `None`: what the manifest says, and without a manifest
    /// [`TokenWidth::U16`].
    pub token_width: Option<TokenWidth>,
    /// Memory for the sorted positions of frequent clauses, in bytes, so that later queries need
    /// not sort them again. Threads share it. With 0 nothing is kept; the answers are the same.
    pub cache_bytes: u64,
    /// Opens only these shards, by their numbers from 0. The files of the others need not exist.
    /// `None`: all.
    pub shards: Option<RangeInclusive<usize>>,
}

/// The manifest's token width, 256 MiB of positions, and all shards.
impl Default for OpenOptions {
    fn default() -> Self {
        Self { token_width: None, cache_bytes: 256 << 20, shards: None }
    }
}

impl OpenOptions {
    /// Opens an index of this token width.
    pub fn with_token_width(width: TokenWidth) -> Self {
        Self { token_width: Some(width), ..Self::default() }
    }
}

/// A memory-mapped Infini-gram v4 index, ours or the official builder's. Threads may share it.
#[derive(Debug)]
pub struct Index {
    dir: PathBuf,
    width: TokenWidth,
    manifest: Option<IndexManifest>,
    /// One per open shard, in order.
    pub(crate) suffix_arrays: Vec<SuffixArray>,
    pub(crate) positions: PositionCache,
    /// Held by the batch that is being counted by many threads.
    pub(crate) readers: Mutex<()>,
}

/// What [`Index::info`] returns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Info {
    /// The folder.
    pub path: PathBuf,
    /// Documents in all open shards.
    pub documents: u64,
    /// Tokens in all open shards, one separator per document included.
    pub tokens: u64,
    /// Bytes of text that were tokenised; `None` where the index does not say, as it does not of
    /// some of its shards.
    pub text_bytes: Option<u64>,
    /// Bytes of these shards' files: streams, tables, offsets, and metadata where it is kept.
    pub index_bytes: u64,
    /// Width of the tokens.
    pub token_width: TokenWidth,
    /// blake3 of the tokenizer that built the index; `None` in an index of another program or of
    /// token ids.
    pub tokenizer: Option<String>,
    /// The open shards, in order.
    pub shards: Vec<ShardInfo>,
}

/// One shard of [`Info`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ShardInfo {
    /// Documents in the shard.
    pub documents: u64,
    /// Tokens in the shard.
    pub tokens: u64,
    /// Bytes per suffix array entry.
    pub pointer_width: usize,
}

impl Index {
    /// Opens the index in a folder. The time it takes does not depend on the size of the index.
    ///
    /// # Errors
    /// Where a file of the shards is missing, empty, or of a size that contradicts the others, or
    /// where any file of the manifest is missing or of another size.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(dir, OpenOptions::default())
    }

    /// Opens an index with other than the default options.
    ///
    /// # Errors
    /// As [`Index::open`], but only what belongs to the shards that are opened is looked at; and
    /// where an option contradicts the manifest.
    pub fn open_with(dir: impl AsRef<Path>, options: OpenOptions) -> Result<Self> {
        let dir = dir.as_ref();
        let manifest = IndexManifest::load(dir)?;
        let width = match (options.token_width, &manifest) {
            (Some(asked), Some(manifest)) if asked != manifest.token_width => {
                return Err(Error::option(
                    "token width (bytes)",
                    asked.bytes() as u64,
                    "the manifest says otherwise; omit the option",
                ));
            }
            (Some(asked), _) => asked,
            (None, Some(manifest)) => manifest.token_width,
            (None, None) => TokenWidth::U16,
        };
        let shards = shards(dir, manifest.as_ref(), options.shards)?;
        let num_ids = manifest.as_ref().and_then(|manifest| manifest.num_ids);
        let open = |number| {
            Ok(SuffixArray::new(Shard::open(dir, number, width, manifest.as_ref())?, num_ids))
        };
        let suffix_arrays = shards.clone().map(open).collect::<Result<Vec<_>>>()?;
        if let Some(manifest) = &manifest {
            manifest.check_sizes(dir, |shard| shards.contains(&shard))?;
        }
        tracing::debug!(dir = %dir.display(), ?shards, "opened an index");
        let positions = PositionCache::new(options.cache_bytes);
        Ok(Self {
            dir: dir.to_owned(),
            width,
            manifest,
            suffix_arrays,
            positions,
            readers: Mutex::default(),
        })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Width of the tokens.
    pub fn token_width(&self) -> TokenWidth {
        self.width
    }

    /// The manifest; `None` in an index that another program made.
    pub fn manifest(&self) -> Option<&IndexManifest> {
        self.manifest.as_ref()
    }

    /// Path of the tokenizer that built the index; an index of another program has no such file.
    pub fn tokenizer_path(&self) -> PathBuf {
        self.dir.join(TOKENIZER)
    }

    /// Number of open shards.
    pub fn num_shards(&self) -> usize {
        self.suffix_arrays.len()
    }

    /// How often the n-gram occurs. Occurrences may overlap; the empty n-gram occurs at every
    /// token.
    ///
    /// # Errors
    /// Where an id does not fit the index, or the suffix array holds a pointer that leads nowhere.
    pub fn count(&self, ngram: &[u32]) -> Result<u64> {
        let ngram = self.encode(ngram)?;
        self.suffix_arrays.iter().map(|suffix_array| Ok(suffix_array.find(&ngram)?.len())).sum()
    }

    /// That every file is as long as when it was opened. What was counted since then is not to be
    /// trusted where one is not: behind the end of a file that is truncated, its last page reads as
    /// zeros. [`crate::Corpus`] calls this after every batch of queries.
    ///
    /// # Errors
    /// The file that is longer or shorter.
    pub fn check_sizes(&self) -> Result<()> {
        self.shards().try_for_each(Shard::check_sizes)
    }

    /// Tokens of one shard, for showing a passage; the range is cut at the shard's end.
    pub fn tokens(&self, shard: usize, positions: Range<u64>) -> Vec<u32> {
        let Some(shard) = self.shard(shard) else { return Vec::new() };
        positions.map_while(|position| shard.token(position)).collect()
    }

    /// Documents, tokens, bytes, widths.
    pub fn info(&self) -> Info {
        let shard_info = |shard: &Shard| ShardInfo {
            documents: shard.num_documents(),
            tokens: shard.num_tokens,
            pointer_width: shard.pointer_width,
        };
        Info {
            path: self.dir.clone(),
            documents: self.shards().map(Shard::num_documents).sum(),
            tokens: self.shards().map(|shard| shard.num_tokens).sum(),
            text_bytes: self
                .manifest
                .as_ref()
                .filter(|manifest| manifest.shards == self.num_shards())
                .map(|manifest| manifest.text_bytes),
            index_bytes: self.shards().map(Shard::num_bytes).sum(),
            token_width: self.width,
            tokenizer: self.manifest.as_ref().and_then(|manifest| manifest.tokenizer.clone()),
            shards: self.shards().map(shard_info).collect(),
        }
    }

    /// The files of every open shard, in order.
    pub(crate) fn shards(&self) -> impl Iterator<Item = &Shard> {
        self.suffix_arrays.iter().map(|suffix_array| &suffix_array.shard)
    }

    /// The files of the shard with this number; `None` where it is not open.
    pub(crate) fn shard(&self, number: usize) -> Option<&Shard> {
        self.shards().find(|shard| shard.number == number)
    }

    /// An n-gram as the bytes that it has in the stream.
    pub(crate) fn encode(&self, ngram: &[u32]) -> Result<Vec<u8>> {
        format::encode(ngram, self.width)
    }
}

/// The numbers of the shards to open. Without a manifest nothing says whether those that were asked
/// for are all there: opening them finds out.
fn shards(
    dir: &Path,
    manifest: Option<&IndexManifest>,
    asked: Option<RangeInclusive<usize>>,
) -> Result<RangeInclusive<usize>> {
    let Some(asked) = asked else {
        let count = manifest.map_or_else(|| count_shards(dir), |manifest| Ok(manifest.shards))?;
        if count == 0 {
            return Err(Error::InvalidIndex(format!(
                "{} is no Infini-gram index: it holds no tokenized.0 (give the folder that holds \
                 tokenized.K, table.K and offset.K)",
                dir.display()
            )));
        }
        return Ok(0..=count - 1);
    };
    if asked.is_empty() || manifest.is_some_and(|manifest| *asked.end() >= manifest.shards) {
        return Err(Error::InvalidArgument(format!(
            "{} has no shards {} to {}: its shards are numbered from 0, and the lower number comes \
             first",
            dir.display(),
            asked.start(),
            asked.end()
        )));
    }
    Ok(asked)
}

/// The number of the folder's `tokenized.K` files; a gap in their numbers is an error.
fn count_shards(dir: &Path) -> Result<usize> {
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(Error::io("list", dir))? {
        let name = entry.map_err(Error::io("list", dir))?.file_name();
        let number = name
            .to_str()
            .and_then(|name| name.strip_prefix("tokenized."))
            .and_then(|k| k.parse::<usize>().ok());
        numbers.extend(number);
    }
    numbers.sort_unstable();
    for (expected, &number) in numbers.iter().enumerate() {
        if number != expected {
            return Err(Error::missing(&Family::Tokenized.path(dir, expected)));
        }
    }
    Ok(numbers.len())
}
