//! One shard: mapped files whose sizes were checked, and readers that check every value they hand
//! out.

use std::fs;
use std::ops::Range;
use std::path::Path;

use crate::error::{Error, Result};
use crate::files::bytes::Bytes;
use crate::files::format::{Family, pointer_width};
use crate::files::manifest::IndexManifest;
use crate::files::prefix_file::PrefixFile;
use crate::files::system::PAGE_BYTES;
use crate::token_width::TokenWidth;

/// With more ranks than this, the system is told to fetch their pages together.
const MANY_RANKS: u64 = 8_192;

#[derive(Debug)]
pub(crate) struct Shard {
    /// Which shard of its index.
    pub(crate) number: usize,
    pub(crate) width: TokenWidth,
    /// Tokens in the stream, separators included. At least 1.
    pub(crate) num_tokens: u64,
    /// Bytes per entry of the table, 1–8.
    pub(crate) pointer_width: usize,
    pub(crate) prefixes: Option<PrefixFile>,
    stream: Bytes,
    table: Bytes,
    offsets: Bytes,
    /// Bytes of `metadata.K` and `metaoff.K`; 0 where there are none.
    metadata_bytes: u64,
}

impl Shard {
    /// Maps the shard's files. Takes the same time for every size of index: nothing is scanned.
    pub(crate) fn open(
        dir: &Path,
        number: usize,
        width: TokenWidth,
        manifest: Option<&IndexManifest>,
    ) -> Result<Self> {
        let open = |family: Family| -> Result<Bytes> {
            let bytes = Bytes::open(&family.path(dir, number))?;
            if let Some(manifest) = manifest {
                manifest.check_size(&bytes, &family.file_name(number))?;
            }
            Ok(bytes)
        };
        let (stream, table, offsets) =
            (open(Family::Tokenized)?, open(Family::Table)?, open(Family::Offset)?);
        stream.expect_random_reads();
        table.expect_random_reads();

        if stream.len() % width.bytes() != 0 {
            return Err(
                stream.wrong_size(format!("{width} tokens need a multiple of {}", width.bytes()))
            );
        }
        let num_tokens = stream.len() / width.bytes();
        let pointer = table.len() / num_tokens;
        if table.len() % num_tokens != 0
            || !(pointer_width(stream.len() as u64)..=8).contains(&pointer)
        {
            let expected =
                format!("{num_tokens} tokens need as many equal pointers of at most 8 bytes");
            return Err(table.wrong_size(expected));
        }
        if offsets.len() % 8 != 0 || offsets.len() / 8 > num_tokens {
            let expected =
                format!("8 bytes for each of at most {num_tokens} documents were expected");
            return Err(offsets.wrong_size(expected));
        }

        let metadata_bytes = metadata_bytes(dir, number, (offsets.len() / 8) as u64)?;

        let shard = Self {
            number,
            width,
            num_tokens: num_tokens as u64,
            pointer_width: pointer,
            prefixes: PrefixFile::open(dir, number, num_tokens as u64, manifest)?,
            stream,
            table,
            offsets,
            metadata_bytes,
        };
        shard.check_ends()?;
        Ok(shard)
    }

    /// Reads the first and the last entry of every file: a cheap test for a foreign index or
    /// another token width.
    fn check_ends(&self) -> Result<()> {
        let separator = self.width.separator();
        match self.token(0) {
            Some(token) if token == separator => {}
            token => {
                return Err(Error::corrupt(
                    self.stream.path(),
                    0,
                    u64::from(token.unwrap_or_default()),
                    "a stream starts with the separator of its token width",
                ));
            }
        }
        self.position(0)?;
        self.position(self.num_tokens - 1)?;
        self.document_start(0)?;
        self.document_start(self.num_documents() - 1)?;
        Ok(())
    }

    /// That every mapped file is as long as when it was opened.
    pub(crate) fn check_sizes(&self) -> Result<()> {
        [&self.stream, &self.table, &self.offsets].into_iter().try_for_each(Bytes::check_size)?;
        self.prefixes.as_ref().map_or(Ok(()), PrefixFile::check_size)
    }

    pub(crate) fn num_documents(&self) -> u64 {
        (self.offsets.len() / 8) as u64
    }

    /// The token stream as it lies on disk.
    pub(crate) fn stream(&self) -> &[u8] {
        &self.stream
    }

    /// The token at a position; `None` past the end.
    pub(crate) fn token(&self, position: u64) -> Option<u32> {
        self.width.read(&self.stream, position)
    }

    /// Where the suffix of a rank starts, in tokens. `rank` must be below `num_tokens`.
    pub(crate) fn position(&self, rank: u64) -> Result<u64> {
        let at = rank as usize * self.pointer_width;
        // One unaligned read of eight bytes and a mask; only the table's last few entries need the
        // padded copy.
        let bytes: [u8; 8] = match self.table.get(at..at + 8) {
            Some(eight) => eight.try_into().expect("the slice has eight bytes"),
            None => {
                let mut padded = [0; 8];
                let entry = &self.table[at..at + self.pointer_width];
                padded[..entry.len()].copy_from_slice(entry);
                padded
            }
        };
        let pointer = u64::from_le_bytes(bytes) & (u64::MAX >> (64 - 8 * self.pointer_width));
        let width = self.width.bytes() as u64; // a power of two
        if pointer >= self.stream.len() as u64 || pointer & (width - 1) != 0 {
            let expected = "a pointer is the byte offset of a token inside the stream";
            return Err(Error::corrupt(self.table.path(), rank, pointer, expected));
        }
        Ok(pointer >> width.trailing_zeros())
    }

    /// The bytes of a rank's suffix. `rank` must be below `num_tokens`.
    pub(crate) fn suffix(&self, rank: u64) -> Result<&[u8]> {
        Ok(&self.stream[self.position(rank)? as usize * self.width.bytes()..])
    }

    /// Tells the system that the positions of these ranks will be read one after the other.
    pub(crate) fn will_read(&self, ranks: Range<u64>) {
        if ranks.end - ranks.start > MANY_RANKS {
            self.table.will_read(
                ranks.start as usize * self.pointer_width..ranks.end as usize * self.pointer_width,
            );
        }
    }

    /// Tells the system that the text between these positions will be read; it is cut at the
    /// shard's end.
    pub(crate) fn will_read_text(&self, positions: Range<u64>) {
        let [start, end] = [positions.start, positions.end]
            .map(|at| at.min(self.num_tokens) as usize * self.width.bytes());
        self.stream.will_read(start..end);
    }

    /// Whether the token at a position is in memory. `position` must be below `num_tokens`.
    pub(crate) fn text_is_in_memory(&self, position: u64) -> bool {
        self.stream.is_in_memory(position as usize * self.width.bytes())
    }

    /// Pages of the table that hold the positions of as many neighbouring ranks.
    pub(crate) fn pages_of_ranks(&self, ranks: u64) -> u64 {
        ranks.saturating_mul(self.pointer_width as u64).div_ceil(PAGE_BYTES as u64)
    }

    /// Pages that as many neighbouring tokens of the text lie on, at most.
    pub(crate) fn pages_of_text(&self, tokens: u64) -> u64 {
        tokens.saturating_mul(self.width.bytes() as u64).div_ceil(PAGE_BYTES as u64) + 1
    }

    /// Pages of the documents' offsets.
    pub(crate) fn pages_of_offsets(&self) -> u64 {
        (self.offsets.len() as u64).div_ceil(PAGE_BYTES as u64)
    }

    /// Position of a document's leading separator, in tokens. `document` must be below
    /// `num_documents`.
    pub(crate) fn document_start(&self, document: u64) -> Result<u64> {
        let position = self.unchecked_document_start(document)?;
        if self.token(position) != Some(self.width.separator()) {
            return Err(self.corrupt_offset(document, position * self.width.bytes() as u64));
        }
        Ok(position)
    }

    /// The same without reading the stream: a token's position, but perhaps not a separator's.
    pub(crate) fn unchecked_document_start(&self, document: u64) -> Result<u64> {
        let at = document as usize * 8;
        let offset = u64::from_le_bytes(
            self.offsets[at..at + 8].try_into().expect("the slice has eight bytes"),
        );
        let width = self.width.bytes() as u64;
        if !offset.is_multiple_of(width) || offset >= self.stream.len() as u64 {
            return Err(self.corrupt_offset(document, offset));
        }
        Ok(offset / width)
    }

    #[cold]
    pub(crate) fn corrupt_offset(&self, document: u64, offset: u64) -> Error {
        let expected =
            "an offset is the byte offset of a separator in the stream, after the one before it";
        Error::corrupt(self.offsets.path(), document, offset, expected)
    }

    pub(crate) fn table_path(&self) -> &Path {
        self.table.path()
    }

    pub(crate) fn offsets_path(&self) -> &Path {
        self.offsets.path()
    }

    /// Bytes of all its files.
    pub(crate) fn num_bytes(&self) -> u64 {
        let prefixes = self.prefixes.as_ref().map_or(0, PrefixFile::num_bytes);
        (self.stream.len() + self.table.len() + self.offsets.len()) as u64
            + self.metadata_bytes
            + prefixes
    }
}

/// Bytes of the two files that hold a line for each document. Both are there or none, and
/// `metaoff.K` has an offset per document; what the offsets say is checked when one is used.
fn metadata_bytes(dir: &Path, number: usize, num_documents: u64) -> Result<u64> {
    let size = |family: Family| -> Result<Option<u64>> {
        let path = family.path(dir, number);
        match fs::metadata(&path) {
            Ok(metadata) => Ok(Some(metadata.len())),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::io("read the size of", &path)(e)),
        }
    };
    match (size(Family::Metaoff)?, size(Family::Metadata)?) {
        (None, None) => Ok(0),
        (None, Some(_)) => Err(Error::missing(&Family::Metaoff.path(dir, number))),
        (Some(_), None) => Err(Error::missing(&Family::Metadata.path(dir, number))),
        (Some(offsets), Some(lines)) if offsets == 8 * num_documents => Ok(offsets + lines),
        (Some(offsets), Some(_)) => {
            let expected = format!("8 for each of {num_documents} documents were expected");
            Err(Error::size(&Family::Metaoff.path(dir, number), offsets, expected))
        }
    }
}
