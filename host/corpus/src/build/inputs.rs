//! Reading documents, in batches that are tokenised in parallel.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::UNIX_EPOCH;

use flate2::read::MultiGzDecoder;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::build::metadata;
use crate::build::parquet::ParquetFile;
use crate::error::{Error, Result};
use crate::files::format::encode_document;
use crate::text::tokenizer::Tokenizer;
use crate::token_width::TokenWidth;

/// A file to index, as it was when the build began. A file that was changed has another size or
/// another time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InputFile {
    path: PathBuf,
    bytes: u64,
    /// Nanoseconds since 1970.
    modified: u64,
}

/// A place between two documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Position {
    /// Which file, from 0.
    file: usize,
    /// Its lines, or rows, before this place.
    line: u64,
}

impl Position {
    /// Whether only the first `files` files were read to come here.
    pub(super) fn is_within(self, files: usize) -> bool {
        self.file < files || self.file == files && self.line == 0
    }
}

/// The files that the inputs stand for, in order. A folder stands for the files of the known kinds
/// in it.
pub(super) fn list(inputs: &[PathBuf]) -> Result<Vec<InputFile>> {
    let mut paths = Vec::new();
    for input in inputs {
        if input.is_dir() {
            for entry in std::fs::read_dir(input).map_err(Error::io("list", input))? {
                let path = entry.map_err(Error::io("list", input))?.path();
                if Kind::of(&path).is_ok() {
                    paths.push(path);
                }
            }
        } else {
            Kind::of(input)?;
            paths.push(input.clone());
        }
    }
    paths.sort();
    let file = |path: PathBuf| {
        let metadata = std::fs::metadata(&path).map_err(Error::io("open", &path))?;
        let modified = metadata.modified().map_err(Error::io("read the time of", &path))?;
        let modified = modified.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
        Ok(InputFile { path, bytes: metadata.len(), modified })
    };
    paths.into_iter().map(file).collect()
}

/// A document as it goes into a shard.
pub(super) struct Tokenised {
    /// Line or row in its file, from 0.
    pub(super) line: u64,
    /// Separator and tokens.
    pub(super) encoded: Vec<u8>,
    pub(super) text_bytes: u64,
    /// Its line of `metadata.K`, line break included; `None` where metadata is not wanted.
    pub(super) metadata: Option<String>,
}

/// What to make of a text.
#[derive(Clone, Copy)]
pub(super) struct Tokenisation<'a> {
    pub(super) tokenizer: &'a Tokenizer,
    pub(super) width: TokenWidth,
    pub(super) text_field: &'a str,
    pub(super) metadata: bool,
    /// Bytes of a batch, about.
    pub(super) batch_bytes: usize,
    /// How many documents are tokenised at the same time.
    pub(super) threads: usize,
}

/// Some consecutive documents.
pub(super) struct Batch {
    source: Source,
    first_line: u64,
    /// The documents, one after the other, and where each ends.
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// Of rows: what else each holds, as a JSON object.
    other_fields: Vec<String>,
    /// Where the next batch begins.
    pub(super) end: Position,
    /// Bytes read from the input files up to here.
    pub(super) read_bytes: u64,
}

/// What the documents of a batch are.
enum Source {
    /// Lines of this JSONL file.
    Lines(Arc<Path>),
    /// Texts from the rows of this Parquet file.
    Rows(Arc<Path>),
    /// Texts.
    Memory,
}

impl Batch {
    fn new(source: Source, first_line: u64) -> Self {
        Self {
            source,
            first_line,
            bytes: Vec::new(),
            ends: Vec::new(),
            other_fields: Vec::new(),
            end: Position::default(),
            read_bytes: 0,
        }
    }

    /// The next texts, of about this many bytes; `None` where there are no more.
    pub(super) fn of_texts<'t>(
        texts: &mut impl Iterator<Item = &'t str>,
        line: &mut u64,
        bytes: usize,
    ) -> Option<Self> {
        let mut batch = Self::new(Source::Memory, *line);
        while batch.bytes.len() < bytes
            && let Some(text) = texts.next()
        {
            batch.bytes.extend_from_slice(text.as_bytes());
            batch.ends.push(batch.bytes.len());
        }
        *line += batch.ends.len() as u64;
        (!batch.ends.is_empty()).then_some(batch)
    }

    /// Tokenises every document, in parallel; the order stays.
    pub(super) fn tokenise(&self, how: Tokenisation<'_>) -> Result<Vec<Tokenised>> {
        let one = |number: usize| -> Result<Tokenised> {
            let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
            let document = &self.bytes[start..self.ends[number]];
            let line = self.first_line + number as u64;
            let metadata = |path: &Path, other_fields: &str| {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                how.metadata.then(|| metadata::line(&name, line, other_fields))
            };
            let (text, metadata) = match &self.source {
                Source::Memory => {
                    (String::from_utf8_lossy(document), metadata(Path::new(""), "{}"))
                }
                Source::Rows(path) => {
                    (String::from_utf8_lossy(document), metadata(path, &self.other_fields[number]))
                }
                Source::Lines(path) => {
                    let parsed = metadata::parse(document, how.text_field)
                        .map_err(|problem| Error::line(path, line + 1, problem))?;
                    (parsed.text.into(), metadata(path, &parsed.other_fields))
                }
            };
            let encoded = encode_document(&how.tokenizer.encode_document(&text)?, how.width)?;
            Ok(Tokenised { line, encoded, text_bytes: text.len() as u64, metadata })
        };
        let at_least = if how.threads < rayon::current_num_threads() {
            self.ends.len().div_ceil(how.threads)
        } else {
            1
        };
        (0..self.ends.len()).into_par_iter().with_min_len(at_least).map(one).collect()
    }
}

/// The input files, in order.
pub(super) struct Inputs<'f> {
    files: &'f [InputFile],
    how: Tokenisation<'f>,
    position: Position,
    current: Option<OpenFile>,
    /// Of the files before the current one.
    read_bytes: u64,
}

impl<'f> Inputs<'f> {
    /// Continues from a place in the files.
    pub(super) fn open(
        files: &'f [InputFile],
        from: Position,
        how: Tokenisation<'f>,
    ) -> Result<Self> {
        let read_bytes = files.iter().take(from.file).map(|file| file.bytes).sum();
        let mut inputs = Self { files, how, position: from, current: None, read_bytes };
        if from.line > 0
            && let Some(file) = files.get(from.file)
        {
            let mut file = OpenFile::open(&file.path, how)?;
            file.skip(from.line)?;
            inputs.current = Some(file);
        }
        Ok(inputs)
    }

    /// Bytes of all files, compressed where they are.
    pub(super) fn num_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// The next documents of one file; `None` at the end of the last.
    pub(super) fn next_batch(&mut self) -> Result<Option<Batch>> {
        while let Some(InputFile { path, bytes, .. }) = self.files.get(self.position.file) {
            let file = match &mut self.current {
                Some(file) => file,
                None => self.current.insert(OpenFile::open(path, self.how)?),
            };
            let mut batch = file.next_batch(self.position.line, self.how.batch_bytes)?;
            if batch.ends.is_empty() {
                self.current = None;
                self.position = Position { file: self.position.file + 1, line: 0 };
                self.read_bytes += bytes;
                continue;
            }
            self.position.line += batch.ends.len() as u64;
            batch.end = self.position;
            batch.read_bytes = self.read_bytes + file.read_bytes(*bytes);
            return Ok(Some(batch));
        }
        Ok(None)
    }
}

/// A file whose documents are read one after the other.
enum OpenFile {
    Lines(LinesFile),
    Rows(Box<ParquetFile>, Arc<Path>),
}

impl OpenFile {
    fn open(path: &Path, how: Tokenisation<'_>) -> Result<Self> {
        Ok(match Kind::of(path)? {
            Kind::Jsonl(packing) => Self::Lines(LinesFile::open(path, packing)?),
            Kind::Parquet => Self::Rows(
                Box::new(ParquetFile::open(path, how.text_field, how.metadata)?),
                path.into(),
            ),
        })
    }

    /// The documents from `first_line` on, which is where the file stands, of about this many
    /// bytes.
    fn next_batch(&mut self, first_line: u64, bytes: usize) -> Result<Batch> {
        match self {
            Self::Lines(file) => {
                let mut batch = Batch::new(Source::Lines(file.path.clone()), first_line);
                while batch.bytes.len() < bytes
                    && file.read_line(first_line + batch.ends.len() as u64, &mut batch.bytes)?
                {
                    batch.ends.push(batch.bytes.len());
                }
                Ok(batch)
            }
            Self::Rows(file, path) => {
                let mut batch = Batch::new(Source::Rows(path.clone()), first_line);
                let mut other_bytes = 0;
                while batch.bytes.len() + other_bytes < bytes
                    && let Some(document) = file.next_document()?
                {
                    batch.bytes.extend_from_slice(document.text.as_bytes());
                    batch.ends.push(batch.bytes.len());
                    other_bytes += document.other_fields.len();
                    batch.other_fields.push(document.other_fields);
                }
                Ok(batch)
            }
        }
    }

    fn skip(&mut self, documents: u64) -> Result<()> {
        match self {
            Self::Lines(file) => (0..documents).try_for_each(|line| file.skip_line(line)),
            Self::Rows(file, _) => file.skip(documents),
        }
    }

    /// Bytes of the file that were read, of `file_bytes`.
    fn read_bytes(&self, file_bytes: u64) -> u64 {
        match self {
            Self::Lines(file) => file.read_bytes.load(Relaxed),
            Self::Rows(file, _) => (file.part_read() * file_bytes as f64) as u64,
        }
    }
}

struct LinesFile {
    path: Arc<Path>,
    reader: Box<dyn BufRead + Send>,
    /// Bytes read from the file itself, compressed where it is.
    read_bytes: Arc<AtomicU64>,
}

impl LinesFile {
    fn open(path: &Path, packing: Packing) -> Result<Self> {
        let file = File::open(path).map_err(Error::io("open", path))?;
        let read_bytes = Arc::new(AtomicU64::new(0));
        let counted = CountedReader { file, read_bytes: read_bytes.clone() };
        let reader: Box<dyn Read + Send> = match packing {
            Packing::None => Box::new(counted),
            Packing::Gzip => {
                Box::new(MultiGzDecoder::new(BufReader::with_capacity(1 << 16, counted)))
            }
            Packing::Zstd => {
                Box::new(zstd::Decoder::new(counted).map_err(Error::io("open", path))?)
            }
        };
        Ok(Self {
            path: path.into(),
            reader: Box::new(BufReader::with_capacity(1 << 18, reader)),
            read_bytes,
        })
    }

    /// Appends a line; `false` where there is none.
    fn read_line(&mut self, line: u64, bytes: &mut Vec<u8>) -> Result<bool> {
        self.reader
            .read_until(b'\n', bytes)
            .map(|read| read > 0)
            .map_err(|e| self.unreadable(line, &e))
    }

    fn skip_line(&mut self, line: u64) -> Result<()> {
        self.reader.skip_until(b'\n').map(drop).map_err(|e| self.unreadable(line, &e))
    }

    fn unreadable(&self, line: u64, error: &std::io::Error) -> Error {
        Error::line(&self.path, line + 1, error)
    }
}

/// What a file is, by its name.
enum Kind {
    Jsonl(Packing),
    Parquet,
}

/// How a JSONL file is packed.
enum Packing {
    None,
    Gzip,
    Zstd,
}

impl Kind {
    fn of(path: &Path) -> Result<Self> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let kinds = [
            (".jsonl", Self::Jsonl(Packing::None)),
            (".jsonl.gz", Self::Jsonl(Packing::Gzip)),
            (".jsonl.zst", Self::Jsonl(Packing::Zstd)),
            (".parquet", Self::Parquet),
        ];
        let kind =
            kinds.into_iter().find_map(|(ending, kind)| name.ends_with(ending).then_some(kind));
        kind.ok_or_else(|| {
            Error::InvalidInput(format!(
                "{}: neither .jsonl nor .jsonl.gz nor .jsonl.zst nor .parquet",
                path.display()
            ))
        })
    }
}

/// Counts what is read, for the progress report.
struct CountedReader {
    file: File,
    read_bytes: Arc<AtomicU64>,
}

impl Read for CountedReader {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.read_bytes.fetch_add(read as u64, Relaxed);
        Ok(read)
    }
}
