//! The mapped files of a shard. Their sizes are checked when they are opened, and every value when it
//! is read.

use std::fs;
use std::ops::Range;
use std::path::Path;

use crate::error::{Error, Result};
use crate::files::format::{FileKind, pointer_width};
use crate::files::manifest::IndexManifest;
use crate::files::mapped_file::MappedFile;
use crate::files::prefix_file::PrefixFile;
use crate::files::system::PAGE_BYTES;
use crate::token_width::TokenWidth;

/// Number of ranks above which the system is advised to fetch all their pages together.
const MANY_RANKS: u64 = 8_192;

/// An open shard: its mapped files.
#[derive(Debug)]
pub(crate) struct Shard {
    /// Number of the shard in its index, from 0.
    pub(crate) number: usize,
    pub(crate) width: TokenWidth,
    /// Length of the stream, tokens, separators included; 1 or more.
    pub(crate) num_tokens: u64,
    /// Size of a table entry, bytes, 1 to 8.
    pub(crate) pointer_width: usize,
    /// Prefix file; `None` if the shard is small or of another program.
    pub(crate) prefixes: Option<PrefixFile>,
    stream: MappedFile,
    table: MappedFile,
    offsets: MappedFile,
    /// Size of `metadata.K` and `metaoff.K`, bytes; 0 if the index has no metadata.
    metadata_bytes: u64,
}

impl Shard {
    /// Maps the files of a shard, in constant time: nothing is scanned.
    pub(crate) fn open(
        dir: &Path,
        number: usize,
        width: TokenWidth,
        manifest: Option<&IndexManifest>,
    ) -> Result<Self> {
        let stream = open_file(dir, number, FileKind::Tokenized, manifest)?;
        let table = open_file(dir, number, FileKind::Table, manifest)?;
        let offsets = open_file(dir, number, FileKind::Offset, manifest)?;
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

    /// Checks the first and last entry of every file, which detects a foreign index or another token
    /// width at little cost.
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

    /// Checks that every mapped file has the same size as when it was opened.
    pub(crate) fn check_sizes(&self) -> Result<()> {
        [&self.stream, &self.table, &self.offsets]
            .into_iter()
            .try_for_each(MappedFile::check_size)?;
        self.prefixes.as_ref().map_or(Ok(()), PrefixFile::check_size)
    }

    pub(crate) fn num_documents(&self) -> u64 {
        (self.offsets.len() / 8) as u64
    }

    /// Returns the bytes of the token stream.
    pub(crate) fn stream(&self) -> &[u8] {
        &self.stream
    }

    /// Returns the token at a position; `None` past the end.
    pub(crate) fn token(&self, position: u64) -> Option<u32> {
        self.width.read(&self.stream, position)
    }

    /// Returns the position, in tokens, of the suffix with a rank, which must be below `num_tokens`.
    pub(crate) fn position(&self, rank: u64) -> Result<u64> {
        let start = rank as usize * self.pointer_width;
        // One unaligned read of eight bytes and a mask; only the table's last few entries need the
        // padded copy.
        let bytes: [u8; 8] = match self.table.get(start..start + 8) {
            Some(eight) => eight.try_into().expect("the slice has eight bytes"),
            None => {
                let mut padded = [0; 8];
                let entry = &self.table[start..start + self.pointer_width];
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

    /// Returns the bytes of the suffix with a rank, which must be below `num_tokens`.
    pub(crate) fn suffix(&self, rank: u64) -> Result<&[u8]> {
        Ok(&self.stream[self.position(rank)? as usize * self.width.bytes()..])
    }

    /// Advises the system to fetch the positions of many ranks.
    pub(crate) fn will_read(&self, ranks: Range<u64>) {
        if ranks.end - ranks.start > MANY_RANKS {
            self.table.will_read(
                ranks.start as usize * self.pointer_width..ranks.end as usize * self.pointer_width,
            );
        }
    }

    /// Advises the system to fetch the text between two positions, which may exceed the shard.
    pub(crate) fn will_read_text(&self, positions: Range<u64>) {
        let [start, end] = [positions.start, positions.end]
            .map(|at| at.min(self.num_tokens) as usize * self.width.bytes());
        self.stream.will_read(start..end);
    }

    /// True if the token at a position, which must be below `num_tokens`, is in memory.
    pub(crate) fn text_is_in_memory(&self, position: u64) -> bool {
        self.stream.is_in_memory(position as usize * self.width.bytes())
    }

    /// Returns the number of table pages that hold the positions of `ranks` neighbouring ranks.
    pub(crate) fn pages_of_ranks(&self, ranks: u64) -> u64 {
        ranks.saturating_mul(self.pointer_width as u64).div_ceil(PAGE_BYTES as u64)
    }

    /// Returns the greatest number of pages that `tokens` consecutive tokens of the text occupy.
    pub(crate) fn pages_of_text(&self, tokens: u64) -> u64 {
        tokens.saturating_mul(self.width.bytes() as u64).div_ceil(PAGE_BYTES as u64) + 1
    }

    /// Returns the number of pages of the documents' offsets.
    pub(crate) fn pages_of_offsets(&self) -> u64 {
        (self.offsets.len() as u64).div_ceil(PAGE_BYTES as u64)
    }

    /// Returns the position, in tokens, of a document's leading separator. `document` must be below
    /// `num_documents`.
    pub(crate) fn document_start(&self, document: u64) -> Result<u64> {
        let position = self.unchecked_document_start(document)?;
        if self.token(position) != Some(self.width.separator()) {
            return Err(self.corrupt_offset(document, position * self.width.bytes() as u64));
        }
        Ok(position)
    }

    /// Returns the position of a document's start without reading the stream: in a damaged index it
    /// may not be that of a separator.
    pub(crate) fn unchecked_document_start(&self, document: u64) -> Result<u64> {
        let start = document as usize * 8;
        let offset = u64::from_le_bytes(
            self.offsets[start..start + 8].try_into().expect("the slice has eight bytes"),
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

    /// Returns the size of all files of the shard, bytes.
    pub(crate) fn num_bytes(&self) -> u64 {
        let prefixes = self.prefixes.as_ref().map_or(0, PrefixFile::num_bytes);
        (self.stream.len() + self.table.len() + self.offsets.len()) as u64
            + self.metadata_bytes
            + prefixes
    }
}

fn open_file(
    dir: &Path,
    shard: usize,
    kind: FileKind,
    manifest: Option<&IndexManifest>,
) -> Result<MappedFile> {
    let bytes = MappedFile::open(&kind.path(dir, shard))?;
    if let Some(manifest) = manifest {
        manifest.check_size(&bytes, &kind.file_name(shard))?;
    }
    Ok(bytes)
}

/// Returns the token width of a shard without a manifest: the official builder uses the narrowest
/// pointers, so the sizes of stream and table decide it. `None` if they fit no width.
pub(crate) fn width_of_sizes(dir: &Path, shard: usize) -> Result<Option<TokenWidth>> {
    let stream = file_size(&FileKind::Tokenized.path(dir, shard))?;
    let table = file_size(&FileKind::Table.path(dir, shard))?;
    let (Some(stream), Some(table)) = (stream, table) else { return Ok(None) };
    let pointer = pointer_width(stream) as u64;
    for width in [TokenWidth::U8, TokenWidth::U16, TokenWidth::U32] {
        if stream.checked_mul(pointer) == table.checked_mul(width.bytes() as u64) {
            return Ok(Some(width));
        }
    }
    Ok(None)
}

/// Returns the size of `metadata.K` and `metaoff.K`, after checking that both exist or neither, and
/// that there is an offset per document. The offsets themselves are checked when they are used.
fn metadata_bytes(dir: &Path, number: usize, num_documents: u64) -> Result<u64> {
    let offsets_path = FileKind::Metaoff.path(dir, number);
    let lines_path = FileKind::Metadata.path(dir, number);
    match (file_size(&offsets_path)?, file_size(&lines_path)?) {
        (None, None) => Ok(0),
        (None, Some(_)) => Err(Error::missing(&offsets_path)),
        (Some(_), None) => Err(Error::missing(&lines_path)),
        (Some(offsets), Some(lines)) if offsets == 8 * num_documents => Ok(offsets + lines),
        (Some(offsets), Some(_)) => {
            let expected = format!("8 for each of {num_documents} documents were expected");
            Err(Error::size(&offsets_path, offsets, expected))
        }
    }
}

/// Returns the size of a file; `None` if it does not exist.
fn file_size(path: &Path) -> Result<Option<u64>> {
    match fs::metadata(path) {
        Ok(metadata) => Ok(Some(metadata.len())),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::io("read the size of", path)(e)),
    }
}
