//! The token streams of all shards while they grow: `tokenized.K`, `offset.K`, `metadata.K`, `metaoff.K`.

use crate::build::folder::{HashedFile, UnfinishedFolder};
use crate::error::{Error, Result};
use crate::format::{Family, Manifest, TokenWidth};

pub(super) struct Streams {
    width: TokenWidth,
    shards: Vec<ShardFiles>,
    encoded: Vec<u8>,
}

struct ShardFiles {
    documents: u64,
    tokenized: HashedFile,
    offset: HashedFile,
    metadata: Option<(HashedFile, HashedFile)>,
}

impl Streams {
    pub(super) fn create(folder: &UnfinishedFolder, width: TokenWidth, shards: usize, metadata: bool) -> Result<Self> {
        let create = |shard: usize| -> Result<ShardFiles> {
            let file = |family: Family| folder.create_file(&family.file_name(shard));
            Ok(ShardFiles {
                documents: 0,
                tokenized: file(Family::Tokenized)?,
                offset: file(Family::Offset)?,
                metadata: metadata.then(|| Ok((file(Family::Metadata)?, file(Family::Metaoff)?))).transpose()?,
            })
        };
        Ok(Self { width, shards: (0..shards).map(create).collect::<Result<_>>()?, encoded: Vec::new() })
    }

    /// Appends a document: the separator, then its tokens.
    pub(super) fn push(&mut self, shard: usize, ids: &[u32]) -> Result<()> {
        let separator = self.width.separator();
        if let Some(&token) = ids.iter().find(|&&id| id >= separator) {
            return Err(Error::TokenTooLarge { token, width: self.width });
        }
        self.encoded.clear();
        self.width.append(&[separator], &mut self.encoded)?;
        self.width.append(ids, &mut self.encoded)?;
        let files = &mut self.shards[shard];
        files.offset.write(&files.tokenized.num_bytes().to_le_bytes())?;
        files.tokenized.write(&self.encoded)?;
        files.documents += 1;
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

    pub(super) fn num_documents(&self) -> u64 {
        self.shards.iter().map(|shard| shard.documents).sum()
    }

    pub(super) fn num_tokens(&self) -> u64 {
        self.shards.iter().map(|shard| shard.tokenized.num_bytes()).sum::<u64>() / self.width.bytes() as u64
    }

    /// Closes the files; returns the number of tokens per shard.
    pub(super) fn finish(self, manifest: &mut Manifest) -> Result<Vec<u64>> {
        let (shards, documents) = (self.shards.len(), self.num_documents());
        let mut sizes = Vec::with_capacity(shards);
        for (shard, files) in self.shards.into_iter().enumerate() {
            if files.documents == 0 {
                return Err(Error::EmptyShard { shard, shards, documents });
            }
            sizes.push(files.tokenized.num_bytes() / self.width.bytes() as u64);
            files.tokenized.finish(manifest)?;
            files.offset.finish(manifest)?;
            if let Some((metadata, metaoff)) = files.metadata {
                metadata.finish(manifest)?;
                metaoff.finish(manifest)?;
            }
        }
        Ok(sizes)
    }
}
