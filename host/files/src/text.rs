//! Text files of users. Spreadsheets and Windows write a byte-order mark or UTF-16, and published
//! sets come as gzip: readers see UTF-8 without a mark.

use std::fs::File;
use std::io::{BufRead, BufReader, Cursor, Error, ErrorKind, Read, Result};
use std::path::Path;

use encoding_rs_io::DecodeReaderBytesBuilder;
use flate2::read::MultiGzDecoder;

/// Longest text of settings, bytes.
pub const SETTINGS_BYTES: u64 = 1 << 20;

/// Byte-order mark of UTF-8.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();
/// First bytes of a gzip file.
const GZIP: &[u8] = &[0x1f, 0x8b];
/// First bytes of files without readable text, and the name of each format.
const OTHER_FORMATS: [(&[u8], &str); 8] = [
    (b"PK\x03\x04", "a ZIP archive, or a workbook such as .xlsx; save it as CSV or JSON"),
    (b"PAR1", "Parquet, which is read only as questions or as documents"),
    (b"ARROW1", "an Arrow file; save it as Parquet or JSON"),
    (b"\xff\xff\xff\xff", "an Arrow stream; save it as Parquet or JSON"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd; decompress it first"),
    (b"BZh", "compressed by bzip2; decompress it first"),
    (b"\xfd7zXZ\0", "compressed by xz; decompress it first"),
    (b"%PDF", "PDF; save its text"),
];

/// Returns the text without a byte-order mark at its start.
#[must_use]
pub fn strip_bom(text: &[u8]) -> &[u8] {
    text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text)
}

/// Opens a text file as UTF-8 without a byte-order mark. gzip is decompressed, and UTF-16 with a
/// mark is converted.
///
/// # Errors
/// Fails if the file cannot be read, or is of a format that has no text.
pub fn open_text(path: &Path) -> Result<Box<dyn BufRead>> {
    text_reader(File::open(path)?)
}

/// Reads a text file as [`open_text`] opens it.
///
/// # Errors
/// Fails if the file cannot be read, or is no text.
pub fn read_text(path: &Path) -> Result<String> {
    read_text_from(File::open(path)?)
}

/// Reads a text of settings, such as a prompt or a template, as [`open_text`] opens it.
///
/// # Errors
/// Fails as [`read_text`], and if the text is longer than [`SETTINGS_BYTES`].
pub fn read_settings_text(path: &Path) -> Result<String> {
    let file = File::open(path)?;
    let mut bytes = Vec::new();
    text_reader(file)?.take(SETTINGS_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > SETTINGS_BYTES {
        return Err(invalid(format!(
            "it is longer than {SETTINGS_BYTES} bytes, the limit of a text of settings"
        )));
    }
    decode(bytes)
}

/// Reads a text from a file or a pipe, as [`open_text`] opens it.
///
/// # Errors
/// Fails if the source cannot be read, or is no text.
pub fn read_text_from(source: impl Read + 'static) -> Result<String> {
    let mut bytes = Vec::new();
    text_reader(source)?.read_to_end(&mut bytes)?;
    decode(bytes)
}

fn decode(bytes: Vec<u8>) -> Result<String> {
    if let Some(index) = bytes.iter().position(|byte| *byte == 0) {
        let line = line_of(&bytes, index);
        return Err(invalid(format!(
            "line {line} has a zero byte, so this is no text, or UTF-16 without a byte-order mark; \
             save it as UTF-8"
        )));
    }
    String::from_utf8(bytes).map_err(|error| {
        let line = line_of(error.as_bytes(), error.utf8_error().valid_up_to());
        invalid(format!("line {line} is not UTF-8; save the file as UTF-8"))
    })
}

fn text_reader(mut source: impl Read + 'static) -> Result<Box<dyn BufRead>> {
    let mut start = Vec::new();
    source.by_ref().take(6).read_to_end(&mut start)?;
    for (magic, name) in OTHER_FORMATS {
        if start.starts_with(magic) {
            return Err(invalid(format!("it is {name}")));
        }
    }
    let is_gzip = start.starts_with(GZIP);
    let complete = Cursor::new(start).chain(source);
    let bytes: Box<dyn Read> =
        if is_gzip { Box::new(MultiGzDecoder::new(complete)) } else { Box::new(complete) };
    // Bytes that are UTF-8 pass unchanged, so that invalid ones are an error of the reader.
    let text = DecodeReaderBytesBuilder::new()
        .bom_override(true)
        .strip_bom(true)
        .utf8_passthru(true)
        .build(bytes);
    Ok(Box::new(BufReader::with_capacity(1 << 16, text)))
}

fn line_of(bytes: &[u8], index: usize) -> usize {
    1 + bytes[..index].iter().filter(|byte| **byte == b'\n').count()
}

fn invalid(problem: String) -> Error {
    Error::new(ErrorKind::InvalidData, problem)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn utf16(text: &str, bytes_of: fn(u16) -> [u8; 2]) -> Vec<u8> {
        text.encode_utf16().flat_map(bytes_of).collect()
    }

    /// A reader that returns one byte per call, as a slow pipe may.
    struct Slow(Cursor<Vec<u8>>);

    impl Read for Slow {
        fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
            let length = buffer.len().min(1);
            self.0.read(&mut buffer[..length])
        }
    }

    #[test]
    fn text_of_any_unicode_encoding_is_read() {
        let text = "Žižek\r\nü \u{feff}x\n𝄞";
        let marked = format!("\u{feff}{text}");
        for bytes in [
            text.as_bytes().to_vec(),
            marked.as_bytes().to_vec(),
            utf16(&marked, u16::to_le_bytes),
            utf16(&marked, u16::to_be_bytes),
            gzip(text.as_bytes()),
            gzip(marked.as_bytes()),
            [gzip("\u{feff}Žižek\r\n".as_bytes()), gzip("ü \u{feff}x\n𝄞".as_bytes())].concat(),
        ] {
            assert_eq!(read_text_from(Slow(Cursor::new(bytes.clone()))).unwrap(), text);
            assert_eq!(read_text_from(Cursor::new(bytes)).unwrap(), text);
        }
        assert_eq!(read_text_from(Cursor::new("\u{feff}")).unwrap(), "");
        assert_eq!(read_text_from(Cursor::new("")).unwrap(), "");
        assert_eq!(strip_bom(marked.as_bytes()), text.as_bytes());
    }

    #[test]
    fn long_text_of_settings_is_refused_before_it_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("prompt");
        let longest = "x".repeat(SETTINGS_BYTES as usize);
        std::fs::write(&path, &longest).unwrap();
        assert_eq!(read_settings_text(&path).unwrap(), longest);
        std::fs::write(&path, gzip("x".repeat(1 << 27).as_bytes())).unwrap();
        let error = read_settings_text(&path).unwrap_err().to_string();
        assert_eq!(error, "it is longer than 1048576 bytes, the limit of a text of settings");
        // A terabyte without content: whoever reads it all has no memory left.
        File::create(&path).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(read_settings_text(&path).unwrap_err().to_string(), error);
    }

    #[test]
    fn file_without_text_is_named() {
        for (bytes, problem) in [
            (&b"PK\x03\x04...."[..], "it is a ZIP archive"),
            (b"\x28\xb5\x2f\xfd....", "it is compressed by zstd"),
            (b"a\n\xffb", "line 2 is not UTF-8"),
            (b"[\0\"\0", "line 1 has a zero byte"),
        ] {
            let error = read_text_from(Cursor::new(bytes)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidData);
            assert!(error.to_string().starts_with(problem), "{error}");
        }
        assert!(
            read_text_from(Cursor::new(gzip(b"text")[..15].to_vec())).is_err(),
            "truncated gzip"
        );
    }
}
