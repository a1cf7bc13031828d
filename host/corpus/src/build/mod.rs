//! Building an index, from text or from token ids.
//!
//! Everything is written into a folder beside the target and renamed at the end, the manifest last
//! (`unfinished.rs`): an interrupted build leaves nothing that looks finished, and is resumed when
//! it is started again. First the token streams are written (`inputs.rs`, `streams.rs`), then each
//! shard's suffixes are sorted (`sort/`).

mod inputs;
mod memory;
mod metadata;
mod options;
mod output;
mod parquet;
mod prefixes;
mod sort;
mod streams;
mod unfinished;

use std::path::{Path, PathBuf};

pub use crate::build::memory::available as available_memory;
pub use crate::build::options::BuildOptions;
pub use crate::build::options::Progress;

use crate::build::inputs::{Batch, InputFile, Inputs, Tokenisation, Tokenised};
use crate::build::streams::Streams;
use crate::build::unfinished::{Recipe, Totals, Unfinished};
use crate::error::{Error, Result};
use crate::files::format::{TOKENIZER, encode_document};
use crate::files::manifest::IndexManifest;
use crate::text::tokenizer::Tokenizer;
use crate::token_width::TokenWidth;

/// The official builder reads a file in batches of this many lines and deals the documents of each
/// to the shards in turn, starting again with the first shard.
const LINES_PER_DEAL: u64 = 65_536;

/// Builds an index of JSONL files (`.jsonl`, `.jsonl.gz`, `.jsonl.zst`; a string `text` in every
/// line) and Parquet files (`.parquet`; a column `text` of strings), in the order of their paths. A
/// folder stands for the files of these kinds in it.
///
/// A build that was interrupted is resumed if it is called again with the same inputs and options,
/// and ends with the same bytes. Until then everything is in a folder beside the target: its name
/// with `.unfinished` appended.
///
/// # Errors
/// Where an input cannot be read, a line or a row is no document, a shard would be empty, the
/// output exists already or is being built, or an interrupted build of something else is in the
/// way.
pub fn build(
    inputs: &[PathBuf],
    tokenizer: &Tokenizer,
    out_dir: &Path,
    options: &BuildOptions<'_>,
) -> Result<IndexManifest> {
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
) -> Result<IndexManifest> {
    let mut builder = Builder::new(Some(tokenizer), None, out_dir, options)?;
    let mut streams = builder.streams()?;
    let how = builder.tokenisation(tokenizer)?;
    let mut documents = documents.into_iter();
    let mut line = 0;
    while let Some(batch) = Batch::of_texts(&mut documents, &mut line, how.batch_bytes) {
        builder.add(&mut streams, &batch.tokenise(how)?, (0, 0))?;
    }
    streams.finish(&mut builder.unfinished)?;
    tokenizer.clear_cache();
    builder.finish()
}

/// Builds an index of documents that are lists of token ids, dealt to the shards as if they were
/// the lines of one file. No metadata is kept.
///
/// # Errors
/// Where an id does not fit the width or is its separator, a shard would be empty, or the output
/// exists already.
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

/// Builds an index of complete token streams, one per shard, separators included. For the streams
/// of other programs, and for tests.
///
/// # Errors
/// Where a stream is empty or does not begin with the separator, an id does not fit, or the output
/// exists already.
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
        let Some((first, rest)) = stream.split_first() else { continue }; // `finish` refuses an empty shard
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
    /// `files` where the documents come from files; `options` name the width where there is no
    /// tokenizer.
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
            version: 2,
            from_files: files.is_some(),
            tokenizer: tokenizer.map(|tokenizer| tokenizer.fingerprint().to_owned()),
            text_field: options.text_field.to_owned(),
            shards: options.shards,
            metadata: options.metadata,
            token_width: width,
            pointer_width: options.pointer_width,
        };
        let unfinished =
            Unfinished::open(out_dir, recipe, files.unwrap_or_default(), options.restart)?;
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
        let memory::Shares { batch_bytes, threads } = memory::Shares::for_tokenising(
            self.options.memory,
            tokenizer.bytes_per_thread(),
            shards,
        )?;
        let batch_bytes = batch_bytes.min(checkpoint_bytes) as usize;
        Ok(Tokenisation {
            tokenizer,
            width: self.width,
            text_field,
            metadata,
            batch_bytes,
            threads,
        })
    }

    fn tokenise_files(&mut self, tokenizer: &Tokenizer, files: &[InputFile]) -> Result<()> {
        let mut streams = self.streams()?;
        let from =
            self.unfinished.checkpoint().map(|checkpoint| checkpoint.position).unwrap_or_default();
        let Totals { documents, tokens, mut text_bytes } = streams.totals();
        if documents > 0 {
            self.options.report(Progress::Resumed { documents, tokens });
        }
        let how = self.tokenisation(tokenizer)?;
        let mut inputs = Inputs::open(files, from, how)?;
        let mut batch = inputs.next_batch()?;
        while let Some(lines) = batch {
            // The next lines are read and unpacked while these are tokenised.
            let (tokenised, next) = rayon::join(|| lines.tokenise(how), || inputs.next_batch());
            self.add(&mut streams, &tokenised?, (lines.read_bytes, inputs.num_bytes()))?;
            let now = streams.totals().text_bytes;
            if now - text_bytes >= self.options.checkpoint_bytes {
                self.unfinished.add_checkpoint(streams.checkpoint(lines.end)?)?;
                text_bytes = now;
            }
            batch = next?;
        }
        tokenizer.clear_cache();
        streams.finish(&mut self.unfinished)
    }

    fn add(
        &self,
        streams: &mut Streams,
        documents: &[Tokenised],
        (read_bytes, input_bytes): (u64, u64),
    ) -> Result<()> {
        for document in documents {
            let shard = shard_of(document.line, self.options.shards);
            streams.push(shard, &document.encoded, document.text_bytes)?;
            if let Some(metadata) = &document.metadata {
                streams.push_metadata(shard, metadata)?;
            }
        }
        let Totals { documents: num_documents, tokens, text_bytes } = streams.totals();
        self.options.report(Progress::Tokenised {
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
            prefixes::write(&mut self.unfinished, shard, self.width, &self.options)?;
        }
        if let Some(tokenizer) = self.tokenizer {
            let mut file = self.unfinished.create_file(TOKENIZER)?;
            file.write(tokenizer.json())?;
            let file = file.finish()?;
            self.unfinished.update(|state| state.finished.extend([file]))?;
            manifest.tokenizer = Some(tokenizer.fingerprint().to_owned());
            manifest.num_ids = Some(tokenizer.num_ids());
        }
        let manifest = self.unfinished.finish(manifest)?;
        tracing::info!(documents = manifest.documents, tokens = manifest.tokens, "built an index");
        Ok(manifest)
    }
}
