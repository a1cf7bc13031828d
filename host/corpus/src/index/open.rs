//! Opening an index, counts of n-grams, and the sizes of an index.

use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde::Serialize;

use crate::error::{Error, Result};
use crate::files::format::{self, FileKind, TOKENIZER};
use crate::files::manifest::IndexManifest;
use crate::files::shard::{Shard, width_of_sizes};
use crate::suffix::position_cache::PositionCache;
use crate::suffix::search::SuffixArray;
use crate::token_width::TokenWidth;

/// Options for opening an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenOptions {
    /// Width of the tokens; `None` for that of the manifest. Without a manifest it is the one that
    /// fits the sizes of the files, or else [`TokenWidth::U16`].
    pub token_width: Option<TokenWidth>,
    /// Size of the cache of sorted positions of frequent clauses, bytes; 0 disables it. Threads
    /// share it. Counts do not depend on it.
    pub cache_bytes: u64,
    /// Numbers of the shards to open, from 0; `None` for all. The files of other shards need not
    /// exist.
    pub shards: Option<RangeInclusive<usize>>,
}

/// The manifest's token width, a cache of 256 MiB, and all shards.
impl Default for OpenOptions {
    fn default() -> Self {
        Self { token_width: None, cache_bytes: 256 << 20, shards: None }
    }
}

impl OpenOptions {
    /// Returns the default options with this token width.
    pub fn with_token_width(width: TokenWidth) -> Self {
        Self { token_width: Some(width), ..Self::default() }
    }
}

/// A memory-mapped Infini-gram v4 index, of this crate or the official builder. Threads may share
/// it.
#[derive(Debug)]
pub struct Index {
    dir: PathBuf,
    width: TokenWidth,
    manifest: Option<IndexManifest>,
    /// Suffix arrays of the open shards, in order.
    pub(crate) suffix_arrays: Vec<SuffixArray>,
    pub(crate) positions: PositionCache,
    /// Lock of the batch that counts with many threads.
    pub(crate) readers: Mutex<()>,
}

/// The sizes of the open shards of an index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IndexInfo {
    /// Path of the index folder.
    pub path: PathBuf,
    /// Number of documents in the shards.
    pub documents: u64,
    /// Number of tokens, one separator per document included.
    pub tokens: u64,
    /// Size of the tokenised text, bytes; `None` if it is not known or some shards are not open.
    pub text_bytes: Option<u64>,
    /// Size of the files, bytes: streams, tables, offsets, prefixes and metadata.
    pub index_bytes: u64,
    /// Width of the tokens.
    pub token_width: TokenWidth,
    /// blake3 hash of the tokenizer that built the index; `None` if another program built it, or if
    /// it was built from token ids.
    pub tokenizer: Option<String>,
    /// Sizes of each open shard, in order.
    pub shards: Vec<ShardInfo>,
}

/// The sizes of a shard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ShardInfo {
    /// Number of documents in the shard.
    pub documents: u64,
    /// Number of tokens, one separator per document included.
    pub tokens: u64,
    /// Size of a suffix array entry, bytes, 1 to 8.
    pub pointer_width: usize,
}

impl Index {
    /// Opens the index in a folder, in a time that does not depend on its size.
    ///
    /// # Errors
    /// Fails if a file of the shards is missing, empty, or of a size that contradicts the others, or
    /// if a file of the manifest is missing or of another size.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(dir, OpenOptions::default())
    }

    /// Opens an index with options.
    ///
    /// # Errors
    /// Fails as [`Index::open`] does, for the shards that are opened, or if an option contradicts
    /// the manifest.
    pub fn open_with(dir: impl AsRef<Path>, options: OpenOptions) -> Result<Self> {
        let folder = dir.as_ref();
        let manifest = IndexManifest::load(folder)?;
        if let (Some(width), Some(manifest)) = (options.token_width, &manifest)
            && width != manifest.token_width
        {
            return Err(Error::option(
                "token width (bytes)",
                width.bytes() as u64,
                "the manifest says otherwise; omit the option",
            ));
        }
        let shards = shards_to_open(folder, manifest.as_ref(), options.shards)?;
        let width = match (options.token_width, &manifest) {
            (Some(width), _) => width,
            (None, Some(manifest)) => manifest.token_width,
            (None, None) => width_of_sizes(folder, *shards.start())?.unwrap_or(TokenWidth::U16),
        };
        let num_ids = manifest.as_ref().and_then(|manifest| manifest.num_ids);
        let mut suffix_arrays = Vec::new();
        for number in shards.clone() {
            let shard = Shard::open(folder, number, width, manifest.as_ref())?;
            suffix_arrays.push(SuffixArray::new(shard, num_ids));
        }
        if let Some(manifest) = &manifest {
            manifest.check_sizes(folder, |shard| shards.contains(&shard))?;
        }
        tracing::debug!(dir = %folder.display(), ?shards, "opened an index");
        let positions = PositionCache::new(options.cache_bytes);
        Ok(Self {
            dir: folder.to_owned(),
            width,
            manifest,
            suffix_arrays,
            positions,
            readers: Mutex::default(),
        })
    }

    /// Returns the path of the index folder.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Returns the width of the tokens.
    pub fn token_width(&self) -> TokenWidth {
        self.width
    }

    /// Returns the manifest; `None` if another program built the index.
    pub fn manifest(&self) -> Option<&IndexManifest> {
        self.manifest.as_ref()
    }

    /// Returns the path of the index's tokenizer. The index of another program has no such file.
    pub fn tokenizer_path(&self) -> PathBuf {
        self.dir.join(TOKENIZER)
    }

    /// Returns the number of open shards.
    pub fn num_shards(&self) -> usize {
        self.suffix_arrays.len()
    }

    /// Counts the occurrences of an n-gram. They may overlap; the empty n-gram occurs at every
    /// token.
    ///
    /// # Errors
    /// Fails if an id does not fit the index, or the suffix array holds an invalid pointer.
    pub fn count(&self, ngram: &[u32]) -> Result<u64> {
        let encoded = self.encode(ngram)?;
        self.suffix_arrays.iter().map(|suffix_array| Ok(suffix_array.find(&encoded)?.len())).sum()
    }

    /// Checks that every file has the same size as when it was opened. If one has not, earlier
    /// counts are not reliable: the last page of a truncated file reads as zeros behind its end.
    /// [`crate::TextIndex`] calls this after every batch of queries.
    ///
    /// # Errors
    /// Fails with the first file of another size.
    pub fn check_sizes(&self) -> Result<()> {
        self.shards().try_for_each(Shard::check_sizes)
    }

    /// Returns the tokens at positions of a shard; the range is cut at the shard's end.
    pub fn tokens(&self, shard: usize, positions: Range<u64>) -> Vec<u32> {
        let Some(shard) = self.shard(shard) else { return Vec::new() };
        positions.map_while(|position| shard.token(position)).collect()
    }

    /// Returns the sizes of the open shards.
    pub fn info(&self) -> IndexInfo {
        let mut shards = Vec::new();
        for shard in self.shards() {
            shards.push(ShardInfo {
                documents: shard.num_documents(),
                tokens: shard.num_tokens,
                pointer_width: shard.pointer_width,
            });
        }
        IndexInfo {
            path: self.dir.clone(),
            documents: self.shards().map(Shard::num_documents).sum(),
            tokens: self.shards().map(|shard| shard.num_tokens).sum(),
            text_bytes: self
                .manifest
                .as_ref()
                .filter(|manifest| manifest.shards == self.num_shards())
                .map(|manifest| manifest.text_bytes)
                .filter(|&bytes| bytes > 0),
            index_bytes: self.shards().map(Shard::num_bytes).sum(),
            token_width: self.width,
            tokenizer: self.manifest.as_ref().and_then(|manifest| manifest.tokenizer.clone()),
            shards,
        }
    }

    /// Returns the files of every open shard, in order.
    pub(crate) fn shards(&self) -> impl Iterator<Item = &Shard> {
        self.suffix_arrays.iter().map(|suffix_array| &suffix_array.shard)
    }

    /// Returns the files of the shard with this number; `None` if it is not open.
    pub(crate) fn shard(&self, number: usize) -> Option<&Shard> {
        self.shards().find(|shard| shard.number == number)
    }

    /// Encodes an n-gram as in the stream.
    pub(crate) fn encode(&self, ngram: &[u32]) -> Result<Vec<u8>> {
        format::encode(ngram, self.width)
    }
}

/// Returns the numbers of the shards to open. Without a manifest, `selected` shards are not checked
/// here: opening them fails if one is missing.
fn shards_to_open(
    dir: &Path,
    manifest: Option<&IndexManifest>,
    selected: Option<RangeInclusive<usize>>,
) -> Result<RangeInclusive<usize>> {
    let Some(selected) = selected else {
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
    if selected.is_empty() || manifest.is_some_and(|manifest| *selected.end() >= manifest.shards) {
        return Err(Error::InvalidArgument(format!(
            "{} has no shards {} to {}: its shards are numbered from 0, and the lower number comes \
             first",
            dir.display(),
            selected.start(),
            selected.end()
        )));
    }
    Ok(selected)
}

/// Returns the number of `tokenized.K` files in a folder; a gap in their numbers is an error.
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
            return Err(Error::missing(&FileKind::Tokenized.path(dir, expected)));
        }
    }
    Ok(numbers.len())
}
