//! Building an index, from text or from token ids.
//!
//! All files are written into a folder next to the target, which is renamed at the end
//! (`unfinished.rs`). The manifest is written last, so that an interrupted build does not look
//! finished; it is resumed when it is started again. First the token streams are written
//! (`inputs.rs`, `streams.rs`), then each shard's suffixes are sorted (`sort/`).

mod adopt;
mod csv_file;
mod dump_file;
mod input_files;
mod inputs;
mod lines_file;
mod memory;
mod metadata;
mod options;
mod output;
mod parquet;
mod prefixes;
mod sort;
mod streams;
mod text_file;
mod unfinished;
mod wiki_file;

use std::path::{Path, PathBuf};

pub use crate::build::adopt::Adoption;
pub use crate::build::adopt::adopt;
pub use crate::build::memory::available as available_memory;
pub use crate::build::options::BuildOptions;
pub use crate::build::options::BuildProgress;

use crate::build::input_files::InputFile;
use crate::build::inputs::{DocumentBatch, Inputs, Tokenisation, TokenisedDocument};
use crate::build::streams::Streams;
use crate::build::unfinished::{Recipe, StreamTotals, UnfinishedIndex};
use crate::error::{Error, Result};
use crate::files::format::{FileKind, TOKENIZER, encode_document};
use crate::files::manifest::IndexManifest;
use crate::text::tokenizer::Tokenizer;
use crate::token_width::TokenWidth;

/// Number of lines in a batch of the official builder. It deals the documents of each batch to the
/// shards in turn, beginning with the first shard.
const LINES_PER_DEAL: u64 = 65_536;

/// Builds an index of files of JSON lines (`.jsonl`, `.ndjson`, `.json`; a string `text` in every
/// line), tables (`.csv`, `.tsv`, `.parquet`; a column `text` of strings), outputs of WikiExtractor
/// (`wiki_00`) and dumps of MediaWiki (`.xml`), in the order of their paths. Text files may be
/// compressed (`.bz2`, `.gz`, `.zst`). A folder is replaced by the files of these kinds in it and in
/// its sub-folders. A file is read once, however often it is named.
///
/// An interrupted build is resumed by a call with the same inputs and options, and ends with the
/// same bytes. Until it is finished, its files are in a folder next to the target, whose name ends
/// with `.unfinished`.
///
/// # Errors
/// Fails if an input cannot be read, a line or row is not a document, a folder lacks a file of a
/// numbered set, a shard would be empty, the output exists or is being built, or there is an
/// interrupted build of another index.
pub fn build(
    inputs: &[PathBuf],
    tokenizer: &Tokenizer,
    out_dir: &Path,
    options: &BuildOptions<'_>,
) -> Result<IndexManifest> {
    let files = input_files::list(inputs)?;
    let mut builder = Builder::new(Some(tokenizer), Some(&files), out_dir, options)?;
    if builder.unfinished.totals().is_none() {
        builder.tokenise_files(tokenizer, &files)?;
    }
    builder.finish()
}

/// Builds an index of texts in memory. They are assigned to shards as the lines of one file are.
///
/// # Errors
/// Fails as [`build`] does.
pub fn build_from_documents<'t>(
    documents: impl IntoIterator<Item = &'t str>,
    tokenizer: &Tokenizer,
    out_dir: &Path,
    options: &BuildOptions<'_>,
) -> Result<IndexManifest> {
    let mut builder = Builder::new(Some(tokenizer), None, out_dir, options)?;
    let mut streams = builder.streams()?;
    let tokenisation = builder.tokenisation(tokenizer)?;
    let mut texts = documents.into_iter();
    let mut line = 0;
    while let Some(batch) =
        DocumentBatch::from_texts(&mut texts, &mut line, tokenisation.batch_bytes)
    {
        builder.add(&mut streams, &batch.tokenise(tokenisation)?, 0, 0)?;
    }
    streams.finish(&mut builder.unfinished)?;
    tokenizer.clear_cache();
    builder.finish()
}

/// Builds an index of documents that are lists of token ids, without metadata. They are assigned to
/// shards as the lines of one file are.
///
/// # Errors
/// Fails if an id does not fit the width or is its separator, a shard would be empty, or the output
/// exists.
pub fn build_from_tokens(
    documents: impl IntoIterator<Item = Vec<u32>>,
    width: TokenWidth,
    out_dir: &Path,
    options: &BuildOptions<'_>,
) -> Result<IndexManifest> {
    let options = BuildOptions { metadata: false, token_width: Some(width), ..*options };
    let mut builder = Builder::new(None, None, out_dir, &options)?;
    let mut streams = builder.streams()?;
    for (line, ids) in documents.into_iter().enumerate() {
        streams.push(shard_of(line as u64, options.shards), &encode_document(&ids, width)?, 0)?;
    }
    streams.finish(&mut builder.unfinished)?;
    builder.finish()
}

/// Builds an index of complete token streams, one per shard, separators included. It serves tests
/// and the streams of other programs.
///
/// # Errors
/// Fails if a stream is empty or does not begin with the separator, an id does not fit the width, or
/// the output exists.
pub fn build_from_streams(
    streams: &[Vec<u32>],
    width: TokenWidth,
    out_dir: &Path,
    options: &BuildOptions<'_>,
) -> Result<IndexManifest> {
    let options = BuildOptions {
        metadata: false,
        token_width: Some(width),
        shards: streams.len(),
        ..*options
    };
    let mut builder = Builder::new(None, None, out_dir, &options)?;
    let mut files = builder.streams()?;
    for (shard, stream) in streams.iter().enumerate() {
        // `finish` fails if a shard is empty.
        let Some((first, rest)) = stream.split_first() else { continue };
        if *first != width.separator() {
            return Err(Error::option(
                "first token of a stream",
                u64::from(*first),
                "the separator of the token width",
            ));
        }
        for document in rest.split(|&token| token == width.separator()) {
            files.push(shard, &encode_document(document, width)?, 0)?;
        }
    }
    files.finish(&mut builder.unfinished)?;
    builder.finish()
}

/// Returns the shard of a document, by its line number from 0.
fn shard_of(line: u64, shards: usize) -> usize {
    (line % LINES_PER_DEAL % shards as u64) as usize
}

/// A build in progress.
struct Builder<'a> {
    unfinished: UnfinishedIndex,
    tokenizer: Option<&'a Tokenizer>,
    options: BuildOptions<'a>,
    width: TokenWidth,
}

impl<'a> Builder<'a> {
    /// Opens a build, new or resumed. `files` is `None` if the documents come from memory. Without a
    /// tokenizer, `options` must have a token width.
    fn new(
        tokenizer: Option<&'a Tokenizer>,
        files: Option<&[InputFile]>,
        out_dir: &Path,
        options: &BuildOptions<'a>,
    ) -> Result<Self> {
        options.check()?;
        let width = options
            .token_width
            .or(tokenizer.map(Tokenizer::token_width))
            .unwrap_or(TokenWidth::U16);
        let recipe = Recipe {
            version: 4,
            from_files: files.is_some(),
            tokenizer: tokenizer.map(|tokenizer| tokenizer.fingerprint().to_owned()),
            text_field: options.text_field.to_owned(),
            shards: options.shards,
            metadata: options.metadata,
            token_width: width,
            pointer_width: options.pointer_width,
        };
        let unfinished =
            UnfinishedIndex::open(out_dir, recipe, files.unwrap_or_default(), options.restart)?;
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
        let shares = memory::Shares::for_tokenising(
            self.options.memory,
            tokenizer.bytes_per_thread(),
            shards,
        )?;
        Ok(Tokenisation {
            tokenizer,
            width: self.width,
            text_field,
            metadata,
            batch_bytes: shares.batch_bytes.min(checkpoint_bytes) as usize,
            threads: shares.threads,
        })
    }

    fn tokenise_files(&mut self, tokenizer: &Tokenizer, files: &[InputFile]) -> Result<()> {
        let mut streams = self.streams()?;
        let from =
            self.unfinished.checkpoint().map(|checkpoint| checkpoint.position).unwrap_or_default();
        let StreamTotals { documents, tokens, text_bytes } = streams.totals();
        if documents > 0 {
            self.options.report(BuildProgress::Resumed { documents, tokens });
        }
        let tokenisation = self.tokenisation(tokenizer)?;
        let mut inputs = Inputs::open(files, from, tokenisation)?;
        let mut checkpoint_at = text_bytes;
        let mut next_batch = inputs.next_batch()?;
        while let Some(batch) = next_batch {
            // The next batch is read and decompressed while this one is tokenised.
            let (tokenised, read) =
                rayon::join(|| batch.tokenise(tokenisation), || inputs.next_batch());
            self.add(&mut streams, &tokenised?, batch.read_bytes, inputs.num_bytes())?;
            let bytes_so_far = streams.totals().text_bytes;
            if bytes_so_far - checkpoint_at >= self.options.checkpoint_bytes {
                self.unfinished.add_checkpoint(streams.checkpoint(batch.end)?)?;
                checkpoint_at = bytes_so_far;
            }
            next_batch = read?;
        }
        tokenizer.clear_cache();
        streams.finish(&mut self.unfinished)
    }

    fn add(
        &self,
        streams: &mut Streams,
        documents: &[TokenisedDocument],
        read_bytes: u64,
        input_bytes: u64,
    ) -> Result<()> {
        for document in documents {
            let shard = shard_of(document.line, self.options.shards);
            streams.push(shard, &document.encoded, document.text_bytes)?;
            if let Some(metadata) = &document.metadata {
                streams.push_metadata(shard, metadata)?;
            }
        }
        let StreamTotals { documents: num_documents, tokens, text_bytes } = streams.totals();
        self.options.report(BuildProgress::Tokenised {
            documents: num_documents,
            text_bytes,
            tokens,
            read_bytes,
            input_bytes,
        });
        Ok(())
    }

    fn finish(mut self) -> Result<IndexManifest> {
        let mut manifest = IndexManifest::new(self.width, self.options.shards);
        if let Some(totals) = self.unfinished.totals() {
            manifest.documents = totals.documents;
            manifest.tokens = totals.tokens;
            manifest.text_bytes = totals.text_bytes;
        }
        sort::write_tables(&mut self.unfinished, self.width, &self.options)?;
        for shard in 0..self.options.shards {
            if !self.unfinished.is_finished(&FileKind::Prefixes.file_name(shard))
                && let Some(finished) =
                    prefixes::write(self.unfinished.path(), shard, self.width, &self.options)?
            {
                self.unfinished.update(|state| state.finished.extend([finished]))?;
            }
        }
        if let Some(tokenizer) = self.tokenizer {
            let mut file = self.unfinished.create_file(TOKENIZER)?;
            file.write(tokenizer.json())?;
            let finished = file.finish()?;
            self.unfinished.update(|state| state.finished.extend([finished]))?;
            manifest.tokenizer = Some(tokenizer.fingerprint().to_owned());
            manifest.num_ids = Some(tokenizer.num_ids());
        }
        let manifest = self.unfinished.finish(manifest)?;
        tracing::info!(documents = manifest.documents, tokens = manifest.tokens, "built an index");
        Ok(manifest)
    }
}
