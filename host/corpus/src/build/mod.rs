//! Building an index, from text or from token ids.
//!
//! Everything is written into a folder beside the target and renamed at the end, the manifest last (`unfinished.rs`): an
//! interrupted build leaves nothing that looks finished, and is gone on with when it is started again. First the token
//! streams grow (`inputs.rs`, `streams.rs`), then each shard's suffixes are sorted (`sort/`).

mod inputs;
mod keys;
mod memory;
mod metadata;
mod output;
mod parquet;
mod sort;
mod streams;
mod unfinished;

use std::path::{Path, PathBuf};

pub use crate::build::memory::available as available_memory;

use crate::build::inputs::{Batch, InputFile, Inputs, Tokenisation, Tokenised};
use crate::build::streams::{Streams, encode_document};
use crate::build::unfinished::{Recipe, Totals, Unfinished};
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
    /// Name of the field or column that holds a document's text. Default: `text`.
    pub text_field: &'a str,
    /// Bytes of memory that the process may take. A shard whose suffixes cannot be sorted within it is sorted in parts, which
    /// takes longer and gives the same bytes; texts are tokenised on as many threads as it has room for, and a build refuses a
    /// budget without room for one. Lines of many megabytes, and such pages of Parquet files, come on top. Default: no bound.
    pub memory: Option<u64>,
    /// The most tokens that are sorted at once. Default: as many as the memory allows.
    pub block_tokens: Option<u64>,
    /// Bytes of text after which what was tokenised is put on disk for certain, so that an interrupted build goes on from
    /// there. Default: 256 MiB.
    pub checkpoint_bytes: u64,
    /// Whether to discard an interrupted build instead of going on with it. Default: no.
    pub restart: bool,
    /// Is told how the build goes: after every few megabytes, and at every shard.
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
            block_tokens: None,
            checkpoint_bytes: 256 << 20,
            restart: false,
            progress: None,
        }
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
        if self.checkpoint_bytes == 0 {
            return Err(Error::Option { option: "checkpoint_bytes", got: 0, expected: "at least 1" });
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
    /// An interrupted build of the same is gone on with.
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
        /// Tokens in the parts that are sorted already.
        sorted: u64,
    },
    /// The suffixes of a part are being placed among those behind it.
    Walking {
        /// Which shard, from 0.
        shard: usize,
        /// How many there are.
        shards: usize,
        /// Tokens behind the part.
        tokens: u64,
        /// Those that are done.
        walked: u64,
    },
    /// The parts of a shard are being woven together.
    Weaving {
        /// Which shard, from 0.
        shard: usize,
        /// How many there are.
        shards: usize,
        /// Tokens in the shard.
        tokens: u64,
        /// Those that are done.
        woven: u64,
    },
}

/// Builds an index of JSONL files (`.jsonl`, `.jsonl.gz`, `.jsonl.zst`; a string `text` in every line) and Parquet files
/// (`.parquet`; a column `text` of strings), taken in the order of their paths. A folder stands for the files of these kinds
/// in it.
///
/// A build that was interrupted is gone on with if it is called again with the same inputs and options, and ends with the
/// same bytes. What is on disk until then is in a folder beside the target, named as it with `.unfinished` behind.
///
/// # Errors
/// Where an input cannot be read, a line or a row is no document, a shard would be empty, the output exists already or is being
/// built, or an interrupted build of something else is there.
pub fn build(
    inputs: &[PathBuf],
    tokenizer: &Tokenizer,
    out_dir: &Path,
    options: &BuildOptions<'_>,
) -> Result<Manifest> {
    let files = inputs::list(inputs)?;
    let mut builder = Builder::new(Some(tokenizer), Some(&files), out_dir, options)?;
    if builder.unfinished.totals().is_none() {
        builder.tokenise_files(tokenizer, &files)?;
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
    let mut builder = Builder::new(Some(tokenizer), None, out_dir, options)?;
    let mut streams = builder.streams()?;
    let how = builder.tokenisation(tokenizer)?;
    let mut documents = documents.into_iter();
    let mut line = 0;
    while let Some(batch) = Batch::of_texts(&mut documents, &mut line, how.batch_bytes) {
        builder.add(&mut streams, &batch.tokenise(how)?, (0, 0))?;
    }
    streams.finish(&mut builder.unfinished)?;
    tokenizer.forget_words();
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
    let options = BuildOptions { metadata: false, token_width: Some(width), ..*options };
    let mut builder = Builder::new(None, None, out_dir, &options)?;
    let mut streams = builder.streams()?;
    for (line, ids) in documents.into_iter().enumerate() {
        streams.push(shard_of(line as u64, options.shards), &encode_document(&ids, width)?, 0)?;
    }
    streams.finish(&mut builder.unfinished)?;
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
    let options = BuildOptions { metadata: false, token_width: Some(width), shards: streams.len(), ..*options };
    let mut builder = Builder::new(None, None, out_dir, &options)?;
    let mut files = builder.streams()?;
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
            files.push(shard, &encode_document(document, width)?, 0)?;
        }
    }
    files.finish(&mut builder.unfinished)?;
    builder.finish()
}

/// The shard of a document by its line number, from 0.
fn shard_of(line: u64, shards: usize) -> usize {
    (line % LINES_PER_DEAL % shards as u64) as usize
}

/// What the four ways of building share.
struct Builder<'a> {
    unfinished: Unfinished,
    tokenizer: Option<&'a Tokenizer>,
    options: BuildOptions<'a>,
    width: TokenWidth,
}

impl<'a> Builder<'a> {
    /// `files` where the documents come from files; `options` name the width where there is no tokenizer.
    fn new(
        tokenizer: Option<&'a Tokenizer>,
        files: Option<&[InputFile]>,
        out_dir: &Path,
        options: &BuildOptions<'a>,
    ) -> Result<Self> {
        options.check()?;
        let width = options.token_width.or(tokenizer.map(Tokenizer::token_width)).unwrap_or(TokenWidth::U16);
        let recipe = Recipe {
            version: 1,
            from_files: files.is_some(),
            tokenizer: tokenizer.map(|tokenizer| tokenizer.fingerprint().to_owned()),
            text_field: options.text_field.to_owned(),
            shards: options.shards,
            metadata: options.metadata,
            token_width: width,
            pointer_width: options.pointer_width,
        };
        let unfinished = Unfinished::open(out_dir, recipe, files.unwrap_or_default(), options.restart)?;
        Ok(Self { unfinished, tokenizer, options: *options, width })
    }

    fn streams(&self) -> Result<Streams> {
        Streams::open(&self.unfinished, self.width, self.options.shards, self.options.metadata)
    }

    fn tokenisation<'t>(&self, tokenizer: &'t Tokenizer) -> Result<Tokenisation<'t>>
    where
        'a: 't,
    {
        let BuildOptions { text_field, metadata, shards, checkpoint_bytes, .. } = self.options;
        let memory::Shares { batch_bytes, threads } =
            memory::Shares::for_tokenising(self.options.memory, tokenizer.bytes_per_thread(), shards)?;
        let batch_bytes = batch_bytes.min(checkpoint_bytes) as usize;
        Ok(Tokenisation { tokenizer, width: self.width, text_field, metadata, batch_bytes, threads })
    }

    fn tokenise_files(&mut self, tokenizer: &Tokenizer, files: &[InputFile]) -> Result<()> {
        let mut streams = self.streams()?;
        let from = self.unfinished.checkpoint().map(|checkpoint| checkpoint.position).unwrap_or_default();
        let Totals { documents, tokens, mut text_bytes } = streams.totals();
        if documents > 0 {
            self.options.report(Progress::Resumed { documents, tokens });
        }
        let how = self.tokenisation(tokenizer)?;
        let mut inputs = Inputs::open(files, from, how)?;
        let mut batch = inputs.next_batch()?;
        while let Some(lines) = batch {
            // Reading and unpacking the next lines overlaps with tokenising these.
            let (documents, next) = rayon::join(|| lines.tokenise(how), || inputs.next_batch());
            self.add(&mut streams, &documents?, (lines.read_bytes, inputs.num_bytes()))?;
            let now = streams.totals().text_bytes;
            if now - text_bytes >= self.options.checkpoint_bytes {
                self.unfinished.add_checkpoint(streams.checkpoint(lines.end)?)?;
                text_bytes = now;
            }
            batch = next?;
        }
        tokenizer.forget_words();
        streams.finish(&mut self.unfinished)
    }

    fn add(&self, streams: &mut Streams, documents: &[Tokenised], (read_bytes, input_bytes): (u64, u64)) -> Result<()> {
        for document in documents {
            let shard = shard_of(document.line, self.options.shards);
            streams.push(shard, &document.encoded, document.text_bytes)?;
            if let Some(metadata) = &document.metadata {
                streams.push_metadata(shard, metadata)?;
            }
        }
        let Totals { documents, tokens, text_bytes } = streams.totals();
        self.options.report(Progress::Tokenised { documents, text_bytes, tokens, read_bytes, input_bytes });
        Ok(())
    }

    fn finish(mut self) -> Result<Manifest> {
        let mut manifest = Manifest::new(self.width, self.options.shards);
        if let Some(totals) = self.unfinished.totals() {
            manifest.documents = totals.documents;
            manifest.tokens = totals.tokens;
            manifest.text_bytes = totals.text_bytes;
        }
        sort::write_tables(&mut self.unfinished, self.width, &self.options)?;
        (0..self.options.shards).try_for_each(|shard| keys::write(&mut self.unfinished, shard, self.width))?;
        if let Some(tokenizer) = self.tokenizer {
            let mut file = self.unfinished.create_file(TOKENIZER)?;
            file.write(tokenizer.json())?;
            let file = file.finish()?;
            self.unfinished.update(|state| state.finished.extend([file]))?;
            manifest.tokenizer = Some(tokenizer.fingerprint().to_owned());
        }
        let manifest = self.unfinished.finish(manifest)?;
        tracing::info!(documents = manifest.documents, tokens = manifest.tokens, "built an index");
        Ok(manifest)
    }
}
