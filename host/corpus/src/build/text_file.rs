//! Input files of text, plain or compressed.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bzip2::bufread::MultiBzDecoder;
use corver_files::strip_bom;
use flate2::bufread::GzDecoder;

use crate::error::{Error, Result};

const BZIP2: &[u8] = b"BZh";
const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
/// End of the first four bytes of a zstd frame to skip, with which files of `pzstd` begin. The byte
/// before is 0x50 to 0x5f.
const ZSTD_SKIPPED: &[u8] = &[0x2a, 0x4d, 0x18];
/// Largest window of the format, as the power of 2: `zstd --long=31`. The library's default is 27.
const ZSTD_WINDOW_LOG: u32 = 31;
const BUFFER_BYTES: usize = 1 << 18;

/// An open text file. Its content decides how it is decompressed, and a byte order mark is removed.
pub(super) struct TextFile {
    pub(super) reader: Box<dyn BufRead + Send>,
    /// Bytes read from the file as stored.
    read_bytes: Arc<AtomicU64>,
}

impl TextFile {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(Error::io("open", path))?;
        let read_bytes = Arc::new(AtomicU64::new(0));
        let stored = CountedReader { file, read_bytes: read_bytes.clone() };
        let mut stored = BufReader::with_capacity(BUFFER_BYTES, stored);
        let head = read_head(&mut stored, ZSTD.len()).map_err(Error::io("read", path))?;
        let is_bzip2 = head.starts_with(BZIP2);
        let is_gzip = head.starts_with(GZIP);
        let is_zstd = head == ZSTD || is_skipped_frame(&head);
        let stored = Cursor::new(head).chain(stored);
        let mut text: Box<dyn BufRead + Send> = if is_gzip {
            Box::new(BufReader::with_capacity(BUFFER_BYTES, GzipReader::new(stored)))
        } else if is_zstd {
            let mut decoder =
                zstd::Decoder::with_buffer(stored).map_err(Error::io("decompress", path))?;
            decoder.window_log_max(ZSTD_WINDOW_LOG).map_err(Error::io("decompress", path))?;
            Box::new(BufReader::with_capacity(BUFFER_BYTES, decoder))
        } else if is_bzip2 {
            Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiBzDecoder::new(stored)))
        } else {
            Box::new(stored)
        };
        let start = read_head(&mut text, 3).map_err(|error| read_error(path, &error))?;
        if start.starts_with(&[0xff, 0xfe]) || start.starts_with(&[0xfe, 0xff]) {
            return Err(Error::InvalidInput(format!(
                "failed to read {}: it is UTF-16; convert it with `iconv -f UTF-16 -t UTF-8`",
                path.display()
            )));
        }
        let start_of_text = strip_bom(&start).to_vec();
        Ok(Self { reader: Box::new(Cursor::new(start_of_text).chain(text)), read_bytes })
    }

    /// True if this is the next byte of the text after white space.
    pub(super) fn begins_with(&mut self, byte: u8, path: &Path) -> Result<bool> {
        let buffer = self.reader.fill_buf().map_err(|error| read_error(path, &error))?;
        Ok(buffer.trim_ascii_start().first() == Some(&byte))
    }

    /// Returns the number of bytes read from the file as stored.
    pub(super) fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Relaxed)
    }

    /// Returns the counter of these bytes, for the owner of a reader that takes this file.
    pub(super) fn counter(&self) -> Arc<AtomicU64> {
        self.read_bytes.clone()
    }
}

impl Read for TextFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reader.read(buffer)
    }
}

/// True if a zstd file begins with a frame to skip.
fn is_skipped_frame(head: &[u8]) -> bool {
    matches!(head, [0x50..=0x5f, rest @ ..] if rest == ZSTD_SKIPPED)
}

/// Returns the error of a file that cannot be read or decompressed.
pub(super) fn read_error(path: &Path, error: &io::Error) -> Error {
    Error::InvalidInput(format!(
        "failed to read {}: {error}; the file may be incomplete or damaged: copy it again",
        path.display()
    ))
}

/// Reads up to `length` bytes.
fn read_head(reader: &mut impl Read, length: usize) -> io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(length);
    reader.take(length as u64).read_to_end(&mut head)?;
    Ok(head)
}

/// A file that counts the bytes read from it, for the progress report.
struct CountedReader {
    file: File,
    read_bytes: Arc<AtomicU64>,
}

impl Read for CountedReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.read_bytes.fetch_add(read as u64, Relaxed);
        Ok(read)
    }
}

/// A reader of all members of a gzip file. As `gzip` does, it ignores zeros after a member, with
/// which tapes and some servers pad files.
struct GzipReader<R: BufRead> {
    /// Decoder of the current member; `None` while the next member is looked for.
    member: Option<GzDecoder<R>>,
    stored: Option<R>,
}

impl<R: BufRead> GzipReader<R> {
    fn new(stored: R) -> Self {
        Self { member: Some(GzDecoder::new(stored)), stored: None }
    }

    /// Skips zeros. Returns false at the end of the file.
    fn open_next_member(&mut self) -> io::Result<bool> {
        let Some(stored) = &mut self.stored else { return Ok(false) };
        loop {
            let buffer = stored.fill_buf()?;
            if buffer.is_empty() {
                return Ok(false);
            }
            let zeros = buffer.iter().take_while(|&&byte| byte == 0).count();
            let found = zeros < buffer.len();
            stored.consume(zeros);
            if found {
                self.member = self.stored.take().map(GzDecoder::new);
                return Ok(true);
            }
        }
    }
}

impl<R: BufRead> Read for GzipReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if let Some(member) = &mut self.member {
                let read = member.read(buffer)?;
                if read > 0 {
                    return Ok(read);
                }
                self.stored = self.member.take().map(GzDecoder::into_inner);
            }
            if !self.open_next_member()? {
                return Ok(0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn gzip(text: &str) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd_long(text: &str) -> Vec<u8> {
        let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
        encoder.long_distance_matching(true).unwrap();
        encoder.window_log(31).unwrap();
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    /// A file of `pzstd`: before each frame, one with its length, which is skipped.
    fn pzstd(texts: [&str; 2]) -> Vec<u8> {
        let mut file = Vec::new();
        for text in texts {
            let frame = zstd::encode_all(text.as_bytes(), 1).unwrap();
            file.extend(*b"\x50\x2a\x4d\x18\x04\0\0\0");
            file.extend((frame.len() as u32).to_le_bytes());
            file.extend(frame);
        }
        file
    }

    fn bzip2(text: &str) -> Vec<u8> {
        let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    fn read(bytes: &[u8]) -> Result<String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::write(&path, bytes).unwrap();
        let mut file = TextFile::open(&path)?;
        let mut text = String::new();
        file.reader.read_to_string(&mut text).map_err(|error| read_error(&path, &error))?;
        assert_eq!(file.read_bytes(), bytes.len() as u64);
        Ok(text)
    }

    #[test]
    fn content_decides_decompression() {
        let text = "{}\n".repeat(200_000);
        let members = [gzip(&text), gzip(""), gzip("b")].concat();
        let padded = [members.clone(), vec![0; 300_000]].concat();
        let spaced = [gzip("a"), vec![0; 5], gzip("b"), vec![0]].concat();
        for (bytes, expected) in [
            (text.clone().into_bytes(), text.clone()),
            (members, text.clone() + "b"),
            (padded, text.clone() + "b"),
            (spaced, "ab".to_owned()),
            (zstd_long(&text), text.clone()),
            ([zstd_long("a"), zstd_long("b")].concat(), "ab".to_owned()),
            (pzstd([&text, "b"]), text.clone() + "b"),
            ([b"\x5f\x2a\x4d\x18\0\0\0\0".to_vec(), zstd_long("a")].concat(), "a".to_owned()),
            (b"P*M".to_vec(), "P*M".to_owned()),
            ([bzip2(&text), bzip2("b")].concat(), text.clone() + "b"),
            (b"\xef\xbb\xbfa".to_vec(), "a".to_owned()),
            (gzip("\u{feff}a"), "a".to_owned()),
            (b"\x1f".to_vec(), "\x1f".to_owned()),
            (Vec::new(), String::new()),
        ] {
            assert!(read(&bytes).unwrap() == expected, "{:?}", &bytes[..bytes.len().min(9)]);
        }
    }

    #[test]
    fn damaged_file_is_refused() {
        let whole = gzip(&"ab".repeat(1_000));
        for bytes in [
            whole[..whole.len() - 5].to_vec(),
            [whole.clone(), b"garbage".to_vec()].concat(),
            zstd_long("ab")[..9].to_vec(),
            bzip2("ab")[..9].to_vec(),
        ] {
            let error = read(&bytes).unwrap_err().to_string();
            assert!(error.contains("copy it again"), "{error}");
        }
        let error = read(b"\xff\xfe{\0}\0").unwrap_err().to_string();
        assert!(error.contains("iconv"), "{error}");
    }
}
