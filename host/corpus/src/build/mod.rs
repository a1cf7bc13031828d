//! Building an index, from text or from token ids.
//!
//! Everything is written into a folder beside the target and renamed at the end, the manifest last: an interrupted build
//! leaves nothing that looks finished.

mod documents;
mod folder;
mod metadata;
mod streams;
mod suffixes;

use std::path::{Path, PathBuf};

use crate::build::documents::{Batch, Inputs};
use crate::build::folder::UnfinishedFolder;
use crate::build::streams::Streams;
use crate::error::{Error, Result};
use crate::format::{Manifest, TOKENIZER, TokenWidth};
use crate::tokenizer::Tokenizer;

/// The official builder reads a file in batches of so many lines and deals the documents of each to the shards in turn,
/// beginning again with the first shard.
const LINES_PER_DEAL: u64 = 65_536;

/// How to build.
#[derive(Clone, Copy)]
pub struct BuildOptions<'a> {
    /// Number of shards. Default: 1.
    pub shards: usize,
    /// Whether to keep `metadata.K` and `metaoff.K`: each document's file, line and fields other than `text`. Default: yes.
    pub metadata: bool,
    /// Width of the tokens. Default: the narrowest that the vocabulary fits.
    pub token_width: Option<TokenWidth>,
    /// Bytes per entry of `table.K`. Default: as many as the shard needs.
    pub pointer_width: Option<usize>,
    /// Is told how the build goes: after every few megabytes of text, and at every shard.
    pub progress: Option<&'a (dyn Fn(Progress) + Sync)>,
}

impl Default for BuildOptions<'_> {
    fn default() -> Self {
        Self { shards: 1, metadata: true, token_width: None, pointer_width: None, progress: None }
    }
}

impl BuildOptions<'_> {
    /// The default with so many shards.
    pub fn with_shards(shards: usize) -> Self {
        Self { shards, ..Self::default() }
    }

    fn check(&self) -> Result<()> {
        if self.shards == 0 {
            return Err(Error::Option { option: "shards", got: 0, expected: "at least 1" });
        }
        if let Some(width @ (0 | 9..)) = self.pointer_width {
            return Err(Error::Option { option: "pointer_width", got: width as u64, expected: "1 to 8 bytes" });
        }
        Ok(())
    }

    fn report(&self, progress: Progress) {
        if let Some(tell) = self.progress {
            tell(progress);
        }
    }
}

/// How far a build is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
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
    },
}

/// Builds an index of JSONL files (`.jsonl` or `.jsonl.gz`, a string `text` in every line), taken in the order of their
/// paths. A folder stands for the files of these kinds in it.
///
/// # Errors
/// Where an input cannot be read or a line is no document, a shard would be empty, or the output exists already.
pub fn build(
    inputs: &[PathBuf],
    tokenizer: &Tokenizer,
    out_dir: &Path,
    options: &BuildOptions<'_>,
) -> Result<Manifest> {
    let mut builder =
        Builder::new(Some(tokenizer), options.token_width.unwrap_or(tokenizer.token_width()), out_dir, options)?;
    let mut inputs = Inputs::open(inputs)?;
    let mut batch = inputs.next_batch()?;
    while let Some(lines) = batch {
        // Reading and unpacking the next lines overlaps with tokenising these.
        let (documents, next) = rayon::join(|| lines.tokenise(tokenizer, options.metadata), || inputs.next_batch());
        builder.add(&documents?, (lines.read_bytes, inputs.num_bytes()))?;
        batch = next?;
    }
    builder.finish()
}

/// Builds an index of texts in memory, dealt to the shards as if they were the lines of one file.
///
/// # Errors
/// As [`build`].
pub fn build_from_documents<'t>(
    documents: impl IntoIterator<Item = &'t str>,
    tokenizer: &Tokenizer,
    out_dir: &Path,
    options: &BuildOptions<'_>,
) -> Result<Manifest> {
    let mut builder =
        Builder::new(Some(tokenizer), options.token_width.unwrap_or(tokenizer.token_width()), out_dir, options)?;
    let mut documents = documents.into_iter();
    let mut line = 0;
    while let Some(batch) = Batch::of_texts(&mut documents, &mut line) {
        builder.add(&batch.tokenise(tokenizer, options.metadata)?, (0, 0))?;
    }
    builder.finish()
}

/// Builds an index of documents that are lists of token ids, dealt to the shards as if they were the lines of one file.
/// No metadata is kept.
///
/// # Errors
/// Where an id does not fit the width or is its separator, a shard would be empty, or the output exists already.
pub fn build_from_tokens(
    documents: impl IntoIterator<Item = Vec<u32>>,
    width: TokenWidth,
    out_dir: &Path,
    options: &BuildOptions<'_>,
) -> Result<Manifest> {
    let options = BuildOptions { metadata: false, ..*options };
    let mut builder = Builder::new(None, width, out_dir, &options)?;
    for (line, ids) in documents.into_iter().enumerate() {
        builder.streams.push(shard_of(line as u64, options.shards), &ids)?;
    }
    builder.finish()
}

/// Builds an index of complete token streams, one per shard, in which the separators stand already. For taking over
/// the streams of other programs, and for tests.
///
/// # Errors
/// Where a stream is empty or does not begin with the separator, an id does not fit, or the output exists already.
pub fn build_from_streams(
    streams: &[Vec<u32>],
    width: TokenWidth,
    out_dir: &Path,
    options: &BuildOptions<'_>,
) -> Result<Manifest> {
    let options = BuildOptions { metadata: false, shards: streams.len(), ..*options };
    let mut builder = Builder::new(None, width, out_dir, &options)?;
    for (shard, stream) in streams.iter().enumerate() {
        let Some((first, rest)) = stream.split_first() else { continue }; // `finish` refuses an empty shard
        if *first != width.separator() {
            return Err(Error::Option {
                option: "first token of a stream",
                got: u64::from(*first),
                expected: "the separator of the token width",
            });
        }
        for document in rest.split(|&token| token == width.separator()) {
            builder.streams.push(shard, document)?;
        }
    }
    builder.finish()
}

/// The shard of a document by its line number, from 0.
fn shard_of(line: u64, shards: usize) -> usize {
    (line % LINES_PER_DEAL % shards as u64) as usize
}

/// What the four ways of building share.
struct Builder<'a> {
    folder: UnfinishedFolder,
    streams: Streams,
    tokenizer: Option<&'a Tokenizer>,
    options: BuildOptions<'a>,
    width: TokenWidth,
    text_bytes: u64,
}

impl<'a> Builder<'a> {
    fn new(
        tokenizer: Option<&'a Tokenizer>,
        width: TokenWidth,
        out_dir: &Path,
        options: &BuildOptions<'a>,
    ) -> Result<Self> {
        options.check()?;
        let folder = UnfinishedFolder::create(out_dir)?;
        let streams = Streams::create(&folder, width, options.shards, options.metadata)?;
        Ok(Self { folder, streams, tokenizer, options: *options, width, text_bytes: 0 })
    }

    fn add(&mut self, documents: &[documents::Tokenised], (read_bytes, input_bytes): (u64, u64)) -> Result<()> {
        for document in documents {
            let shard = shard_of(document.line, self.options.shards);
            self.streams.push(shard, &document.ids)?;
            if let Some(metadata) = &document.metadata {
                self.streams.push_metadata(shard, metadata)?;
            }
            self.text_bytes += document.text_bytes;
        }
        self.options.report(Progress::Tokenised {
            documents: self.streams.num_documents(),
            text_bytes: self.text_bytes,
            tokens: self.streams.num_tokens(),
            read_bytes,
            input_bytes,
        });
        Ok(())
    }

    fn finish(self) -> Result<Manifest> {
        let shards = self.options.shards;
        let mut manifest = Manifest::new(self.width, shards);
        manifest.documents = self.streams.num_documents();
        manifest.tokens = self.streams.num_tokens();
        manifest.text_bytes = self.text_bytes;

        let sizes = self.streams.finish(&mut manifest)?;
        for (shard, tokens) in sizes.into_iter().enumerate() {
            self.options.report(Progress::Sorting { shard, shards, tokens });
            suffixes::write_table(&self.folder, shard, self.width, self.options.pointer_width, &mut manifest)?;
        }
        if let Some(tokenizer) = self.tokenizer {
            let mut file = self.folder.create_file(TOKENIZER)?;
            file.write(tokenizer.json())?;
            file.finish(&mut manifest)?;
            manifest.tokenizer = Some(tokenizer.fingerprint().to_owned());
        }
        self.folder.finish(&manifest)?;
        tracing::info!(documents = manifest.documents, tokens = manifest.tokens, "built an index");
        Ok(manifest)
    }
}
