//! The token streams of all shards while they grow: `tokenized.K`, `offset.K`, `metadata.K`,
//! `metaoff.K`.

use crate::build::inputs::Position;
use crate::build::output::HashedFile;
use crate::build::unfinished::{Checkpoint, Totals, Unfinished};
use crate::error::{Error, Result};
use crate::files::format::Family;
use crate::token_width::TokenWidth;

pub(super) struct Streams {
    width: TokenWidth,
    shards: Vec<ShardFiles>,
    text_bytes: u64,
}

struct ShardFiles {
    documents: u64,
    tokenized: HashedFile,
    offset: HashedFile,
    metadata: Option<(HashedFile, HashedFile)>,
}

impl Streams {
    /// Empty streams, or those of the newest checkpoint.
    pub(super) fn open(
        unfinished: &Unfinished,
        width: TokenWidth,
        shards: usize,
        metadata: bool,
    ) -> Result<Self> {
        let checkpoint = unfinished.checkpoint();
        let open = |shard: usize| -> Result<ShardFiles> {
            let file = |family: Family| {
                let name = family.file_name(shard);
                match checkpoint.and_then(|checkpoint| checkpoint.files.get(&name)) {
                    Some(record) => HashedFile::resume(unfinished.path(), &name, record),
                    None => unfinished.create_file(&name),
                }
            };
            Ok(ShardFiles {
                documents: checkpoint
                    .and_then(|checkpoint| checkpoint.documents.get(shard).copied())
                    .unwrap_or(0),
                tokenized: file(Family::Tokenized)?,
                offset: file(Family::Offset)?,
                metadata: metadata
                    .then(|| Ok((file(Family::Metadata)?, file(Family::Metaoff)?)))
                    .transpose()?,
            })
        };
        let text_bytes = checkpoint.map_or(0, |checkpoint| checkpoint.text_bytes);
        Ok(Self { width, shards: (0..shards).map(open).collect::<Result<_>>()?, text_bytes })
    }

    /// Appends an encoded document of this many bytes of text.
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

    pub(super) fn totals(&self) -> Totals {
        let tokens = self.shards.iter().map(|shard| shard.tokenized.num_bytes()).sum::<u64>()
            / self.width.bytes() as u64;
        let documents = self.shards.iter().map(|shard| shard.documents).sum();
        Totals { documents, tokens, text_bytes: self.text_bytes }
    }

    /// Puts everything so far on disk.
    pub(super) fn checkpoint(&mut self, position: Position) -> Result<Checkpoint> {
        let documents = self.shards.iter().map(|shard| shard.documents).collect();
        let text_bytes = self.text_bytes;
        let files = self.files().map(HashedFile::sync).collect::<Result<_>>()?;
        Ok(Checkpoint { position, documents, text_bytes, files })
    }

    /// Closes the files, which are then finished.
    pub(super) fn finish(mut self, unfinished: &mut Unfinished) -> Result<()> {
        let totals = self.totals();
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
