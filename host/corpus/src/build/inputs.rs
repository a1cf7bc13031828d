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
use crate::build::streams::encode_document;
use crate::error::{Error, Result};
use crate::format::TokenWidth;
use crate::tokenizer::Tokenizer;

/// A file to index, as it was when the build began. A file that was changed has another size or another time.
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
    /// Its lines before this place.
    line: u64,
}

impl Position {
    /// Whether only the first so many files were read to come here.
    pub(super) fn is_within(self, files: usize) -> bool {
        self.file < files || self.file == files && self.line == 0
    }
}

/// The files that the inputs stand for, in order. A folder stands for the files of the known kinds in it.
pub(super) fn list(inputs: &[PathBuf]) -> Result<Vec<InputFile>> {
    let mut paths = Vec::new();
    for input in inputs {
        if input.is_dir() {
            for entry in std::fs::read_dir(input).map_err(Error::io("list", input))? {
                let path = entry.map_err(Error::io("list", input))?.path();
                if Packing::of(&path).is_ok() {
                    paths.push(path);
                }
            }
        } else {
            Packing::of(input)?;
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
    /// Line in its file, from 0.
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
}

/// Some consecutive documents.
pub(super) struct Batch {
    source: Source,
    first_line: u64,
    /// The documents, one behind the other, and where each ends.
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// Where the next batch begins.
    pub(super) end: Position,
    /// Bytes read from the input files up to here.
    pub(super) read_bytes: u64,
}

/// What the documents of a batch are.
enum Source {
    /// Lines of this JSONL file.
    Lines(Arc<Path>),
    /// Texts.
    Memory,
}

impl Batch {
    fn new(source: Source, first_line: u64) -> Self {
        Self { source, first_line, bytes: Vec::new(), ends: Vec::new(), end: Position::default(), read_bytes: 0 }
    }

    /// The next texts, of about so many bytes; `None` where there are no more.
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
            let (text, metadata) = match &self.source {
                Source::Memory => {
                    (String::from_utf8_lossy(document), how.metadata.then(|| metadata::line("", line, "{}")))
                }
                Source::Lines(path) => {
                    let bad = |problem: String| Error::BadLine { path: path.to_path_buf(), line: line + 1, problem };
                    let parsed = metadata::parse(document, how.text_field).map_err(bad)?;
                    let name = path.file_name().unwrap_or_default().to_string_lossy();
                    let metadata = how.metadata.then(|| metadata::line(&name, line, &parsed.other_fields));
                    (parsed.text.into(), metadata)
                }
            };
            let encoded = encode_document(&how.tokenizer.encode_document(&text)?, how.width)?;
            Ok(Tokenised { line, encoded, text_bytes: text.len() as u64, metadata })
        };
        (0..self.ends.len()).into_par_iter().map(one).collect()
    }
}

/// The input files, in order.
pub(super) struct Inputs<'f> {
    files: &'f [InputFile],
    position: Position,
    current: Option<OpenFile>,
    batch_bytes: usize,
    read_bytes: Arc<AtomicU64>,
}

struct OpenFile {
    path: Arc<Path>,
    reader: Box<dyn BufRead + Send>,
}

impl<'f> Inputs<'f> {
    /// Goes on from a place in the files, in batches of about so many bytes.
    pub(super) fn open(files: &'f [InputFile], from: Position, batch_bytes: usize) -> Result<Self> {
        let read_bytes = Arc::new(AtomicU64::new(files.iter().take(from.file).map(|file| file.bytes).sum()));
        let mut inputs = Self { files, position: from, current: None, batch_bytes, read_bytes };
        if from.line > 0
            && let Some(file) = files.get(from.file)
        {
            let mut file = OpenFile::open(&file.path, &inputs.read_bytes)?;
            for line in 0..from.line {
                file.skip_line(line)?;
            }
            inputs.current = Some(file);
        }
        Ok(inputs)
    }

    /// Bytes of all files, compressed where they are.
    pub(super) fn num_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// The next lines of one file; `None` at the end of the last.
    pub(super) fn next_batch(&mut self) -> Result<Option<Batch>> {
        loop {
            let file = match &mut self.current {
                Some(file) => file,
                None => match self.files.get(self.position.file) {
                    Some(file) => self.current.insert(OpenFile::open(&file.path, &self.read_bytes)?),
                    None => return Ok(None),
                },
            };
            let mut batch = Batch::new(Source::Lines(file.path.clone()), self.position.line);
            file.read_lines(&mut batch, self.batch_bytes)?;
            if batch.ends.is_empty() {
                self.current = None;
                self.position = Position { file: self.position.file + 1, line: 0 };
                continue;
            }
            self.position.line += batch.ends.len() as u64;
            batch.end = self.position;
            batch.read_bytes = self.read_bytes.load(Relaxed);
            return Ok(Some(batch));
        }
    }
}

impl OpenFile {
    fn open(path: &Path, read_bytes: &Arc<AtomicU64>) -> Result<Self> {
        let file = File::open(path).map_err(Error::io("open", path))?;
        let counted = CountedReader { file, read_bytes: read_bytes.clone() };
        let reader: Box<dyn Read + Send> = match Packing::of(path)? {
            Packing::None => Box::new(counted),
            Packing::Gzip => Box::new(MultiGzDecoder::new(BufReader::with_capacity(1 << 16, counted))),
            Packing::Zstd => Box::new(zstd::Decoder::new(counted).map_err(Error::io("open", path))?),
        };
        Ok(Self { path: path.into(), reader: Box::new(BufReader::with_capacity(1 << 18, reader)) })
    }

    fn read_lines(&mut self, batch: &mut Batch, bytes: usize) -> Result<()> {
        while batch.bytes.len() < bytes {
            let line = batch.first_line + batch.ends.len() as u64;
            if self.reader.read_until(b'\n', &mut batch.bytes).map_err(|e| self.unreadable(line, &e))? == 0 {
                break;
            }
            batch.ends.push(batch.bytes.len());
        }
        Ok(())
    }

    fn skip_line(&mut self, line: u64) -> Result<()> {
        self.reader.skip_until(b'\n').map(drop).map_err(|e| self.unreadable(line, &e))
    }

    fn unreadable(&self, line: u64, error: &std::io::Error) -> Error {
        Error::BadLine { path: self.path.to_path_buf(), line: line + 1, problem: error.to_string() }
    }
}

/// How a JSONL file is packed, by its name.
enum Packing {
    None,
    Gzip,
    Zstd,
}

impl Packing {
    fn of(path: &Path) -> Result<Self> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.ends_with(".jsonl") {
            Ok(Self::None)
        } else if name.ends_with(".jsonl.gz") {
            Ok(Self::Gzip)
        } else if name.ends_with(".jsonl.zst") {
            Ok(Self::Zstd)
        } else {
            Err(Error::InputKind { path: path.to_owned() })
        }
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
