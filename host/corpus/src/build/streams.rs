//! The token streams of all shards while they grow: `tokenized.K`, `offset.K`, `metadata.K`,
//! `metaoff.K`.

use crate::build::inputs::InputPosition;
use crate::build::output::HashedFile;
use crate::build::unfinished::{Checkpoint, StreamTotals, UnfinishedIndex};
use crate::error::{Error, Result};
use crate::files::format::FileKind;
use crate::token_width::TokenWidth;

/// The files of all shards that grow while documents are added.
pub(super) struct Streams {
    width: TokenWidth,
    shards: Vec<ShardFiles>,
    text_bytes: u64,
}

struct ShardFiles {
    documents: u64,
    tokenized: HashedFile,
    offset: HashedFile,
    /// `metadata.K` and `metaoff.K`; `None` if the build writes no metadata.
    metadata: Option<(HashedFile, HashedFile)>,
}

impl ShardFiles {
    /// Opens the files of a shard, empty or as of a checkpoint.
    fn open(unfinished: &UnfinishedIndex, shard: usize, has_metadata: bool) -> Result<Self> {
        let documents = unfinished
            .checkpoint()
            .and_then(|checkpoint| checkpoint.documents.get(shard).copied())
            .unwrap_or(0);
        let tokenized = open_file(unfinished, shard, FileKind::Tokenized)?;
        let offset = open_file(unfinished, shard, FileKind::Offset)?;
        let metadata = if has_metadata {
            let lines = open_file(unfinished, shard, FileKind::Metadata)?;
            Some((lines, open_file(unfinished, shard, FileKind::Metaoff)?))
        } else {
            None
        };
        Ok(Self { documents, tokenized, offset, metadata })
    }
}

fn open_file(unfinished: &UnfinishedIndex, shard: usize, kind: FileKind) -> Result<HashedFile> {
    let name = kind.file_name(shard);
    match unfinished.checkpoint().and_then(|checkpoint| checkpoint.files.get(&name)) {
        Some(record) => HashedFile::resume(unfinished.path(), &name, record),
        None => unfinished.create_file(&name),
    }
}

impl Streams {
    /// Opens the streams, empty or as of the newest checkpoint.
    pub(super) fn open(
        unfinished: &UnfinishedIndex,
        width: TokenWidth,
        shards: usize,
        metadata: bool,
    ) -> Result<Self> {
        let mut files = Vec::with_capacity(shards);
        for shard in 0..shards {
            files.push(ShardFiles::open(unfinished, shard, metadata)?);
        }
        let text_bytes = unfinished.checkpoint().map_or(0, |checkpoint| checkpoint.text_bytes);
        Ok(Self { width, shards: files, text_bytes })
    }

    /// Appends an encoded document, whose text has `text_bytes`.
    pub(super) fn push(&mut self, shard: usize, encoded: &[u8], text_bytes: u64) -> Result<()> {
        let files = &mut self.shards[shard];
        files.offset.write(&files.tokenized.num_bytes().to_le_bytes())?;
        files.tokenized.write(encoded)?;
        files.documents += 1;
        self.text_bytes += text_bytes;
        Ok(())
    }

    /// Appends a document's line of metadata.
    pub(super) fn push_metadata(&mut self, shard: usize, line: &str) -> Result<()> {
        if let Some((metadata, metaoff)) = &mut self.shards[shard].metadata {
            metaoff.write(&metadata.num_bytes().to_le_bytes())?;
            metadata.write(line.as_bytes())?;
        }
        Ok(())
    }

    pub(super) fn totals(&self) -> StreamTotals {
        let tokens = self.shards.iter().map(|shard| shard.tokenized.num_bytes()).sum::<u64>()
            / self.width.bytes() as u64;
        let documents = self.shards.iter().map(|shard| shard.documents).sum();
        StreamTotals { documents, tokens, text_bytes: self.text_bytes }
    }

    /// Syncs all files to disk.
    pub(super) fn checkpoint(&mut self, position: InputPosition) -> Result<Checkpoint> {
        let documents = self.shards.iter().map(|shard| shard.documents).collect();
        let text_bytes = self.text_bytes;
        let files = self.files().map(HashedFile::sync).collect::<Result<_>>()?;
        Ok(Checkpoint { position, documents, text_bytes, files })
    }

    /// Syncs and closes the files, and records them as finished.
    pub(super) fn finish(mut self, unfinished: &mut UnfinishedIndex) -> Result<()> {
        let totals = self.totals();
        if totals.documents == 0 {
            let problem = "failed to build an index: the inputs hold no document";
            return Err(Error::InvalidInput(problem.to_owned()));
        }
        if let Some(shard) = self.shards.iter().position(|files| files.documents == 0) {
            return Err(Error::InvalidInput(format!(
                "shard {shard} of {} would be empty: {} documents in all; use fewer shards or \
                 more text",
                self.shards.len(),
                totals.documents
            )));
        }
        let finished = self.files().map(HashedFile::sync).collect::<Result<Vec<_>>>()?;
        unfinished.update(|state| {
            state.finished.extend(finished);
            state.totals = Some(totals);
        })
    }

    fn files(&mut self) -> impl Iterator<Item = &mut HashedFile> {
        self.shards.iter_mut().flat_map(|files| {
            let metadata = files.metadata.as_mut().map(|(metadata, metaoff)| [metadata, metaoff]);
            [&mut files.tokenized, &mut files.offset]
                .into_iter()
                .chain(metadata.into_iter().flatten())
        })
    }
}
