//! The suffix array of a shard, in linear time (libsais).
//!
//! Suffixes are ordered byte by byte as they lie on disk; that is the order of *byte-swapped* tokens, which is what the
//! sorter is given. Memory: about six bytes per u16 token, ten where a shard has more than 2³¹ tokens.

use libsais::suffix_array::SuffixArrayConstruction;

use crate::build::folder::{HashedFile, UnfinishedFolder};
use crate::bytes::Bytes;
use crate::error::{Error, Result};
use crate::format::{Family, Manifest, TokenWidth, pointer_width};

/// Sorts the suffixes of a finished `tokenized.K` and writes `table.K`.
pub(super) fn write_table(
    folder: &UnfinishedFolder,
    shard: usize,
    width: TokenWidth,
    pointer: Option<usize>,
    manifest: &mut Manifest,
) -> Result<()> {
    let stream = Bytes::open(&Family::Tokenized.path(folder.path(), shard))?;
    let needed = pointer_width(stream.len() as u64);
    let pointer = match pointer {
        Some(asked) if asked < needed => {
            let expected = "wide enough for every byte offset of the shard";
            return Err(Error::Option { option: "pointer_width", got: asked as u64, expected });
        }
        Some(asked) => asked,
        None => needed,
    };

    let mut file = folder.create_file(&Family::Table.file_name(shard))?;
    let failed = |e: libsais::LibsaisError| Error::SuffixSort {
        shard,
        tokens: (stream.len() / width.bytes()) as u64,
        message: format!("{e:?}"),
    };
    let layout = Layout { token: width.bytes() as u64, pointer };
    match width {
        TokenWidth::U8 => sort_small(&stream[..], layout, &mut file, failed)?,
        TokenWidth::U16 => {
            let swapped: Vec<u16> = stream.as_chunks::<2>().0.iter().map(|&bytes| u16::from_be_bytes(bytes)).collect();
            sort_small(&swapped, layout, &mut file, failed)?;
        }
        TokenWidth::U32 => {
            let swapped: Vec<u32> = stream.as_chunks::<4>().0.iter().map(|&bytes| u32::from_be_bytes(bytes)).collect();
            sort_large(&swapped, layout, &mut file, failed)?;
        }
    }
    file.finish(manifest)
}

#[derive(Clone, Copy)]
struct Layout {
    /// Bytes per token.
    token: u64,
    /// Bytes per pointer.
    pointer: usize,
}

impl Layout {
    /// Writes token positions as byte offsets.
    fn write(self, positions: impl Iterator<Item = u64>, file: &mut HashedFile) -> Result<()> {
        const CHUNK: usize = 1 << 18;
        let mut chunk = Vec::with_capacity(CHUNK + 8);
        for position in positions {
            chunk.extend_from_slice(&(position * self.token).to_le_bytes()[..self.pointer]);
            if chunk.len() >= CHUNK {
                file.write(&chunk)?;
                chunk.clear();
            }
        }
        file.write(&chunk)
    }
}

/// Texts of u8 or u16 symbols, which the sorter takes as they are.
fn sort_small<T>(
    text: &[T],
    layout: Layout,
    file: &mut HashedFile,
    failed: impl Fn(libsais::LibsaisError) -> Error,
) -> Result<()>
where
    T: libsais::SmallAlphabet,
    i32: libsais::IsValidOutputFor<T>,
    i64: libsais::IsValidOutputFor<T>,
{
    let construction = SuffixArrayConstruction::for_text(text);
    if fits_i32(text.len()) {
        let suffixes = construction.in_owned_buffer32().single_threaded().run().map_err(failed)?;
        layout.write(suffixes.suffix_array().iter().map(|&position| position as u64), file)
    } else {
        let suffixes = construction.in_owned_buffer64().single_threaded().run().map_err(failed)?;
        layout.write(suffixes.suffix_array().iter().map(|&position| position as u64), file)
    }
}

/// Texts of u32 symbols: the sorter's memory grows with the largest symbol, so they are renumbered without gaps.
fn sort_large(
    text: &[u32],
    layout: Layout,
    file: &mut HashedFile,
    failed: impl Fn(libsais::LibsaisError) -> Error,
) -> Result<()> {
    let mut symbols = text.to_vec();
    symbols.sort_unstable();
    symbols.dedup();
    let renumbered = text.iter().map(|symbol| symbols.partition_point(|s| s < symbol));
    if fits_i32(text.len()) {
        let mut text: Vec<i32> = renumbered.map(|number| number as i32).collect();
        let construction = SuffixArrayConstruction::for_text_mut(&mut text).in_owned_buffer32().single_threaded();
        let suffixes = construction.run().map_err(failed)?;
        layout.write(suffixes.suffix_array().iter().map(|&position| position as u64), file)
    } else {
        let mut text: Vec<i64> = renumbered.map(|number| number as i64).collect();
        let construction = SuffixArrayConstruction::for_text_mut(&mut text).in_owned_buffer64().single_threaded();
        let suffixes = construction.run().map_err(failed)?;
        layout.write(suffixes.suffix_array().iter().map(|&position| position as u64), file)
    }
}

/// Whether the sorter's 32-bit form takes a text of this length, with the room that it adds for itself.
fn fits_i32(tokens: usize) -> bool {
    tokens <= i32::MAX as usize - (1 << 20)
}
