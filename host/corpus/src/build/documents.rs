//! Reading documents, in batches that are tokenised in parallel.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use flate2::read::MultiGzDecoder;
use rayon::prelude::*;

use crate::build::metadata;
use crate::error::{Error, Result};
use crate::tokenizer::Tokenizer;

/// Bytes of text per batch: enough to keep all cores busy, little enough to be held twice.
const BATCH_BYTES: usize = 8 << 20;

/// A document as it goes into a shard.
pub(super) struct Tokenised {
    /// Line in its file, from 0.
    pub(super) line: u64,
    pub(super) ids: Vec<u32>,
    pub(super) text_bytes: u64,
    /// Its line of `metadata.K`, line break included; `None` where metadata is not wanted.
    pub(super) metadata: Option<String>,
}

/// Some consecutive documents.
pub(super) struct Batch {
    source: Source,
    first_line: u64,
    documents: Vec<String>,
    /// Bytes read from the input files up to here.
    pub(super) read_bytes: u64,
}

/// What the strings of a batch are.
enum Source {
    /// Lines of this JSONL file.
    Lines(Arc<Path>),
    /// Texts.
    Memory,
}

impl Batch {
    pub(super) fn of_texts<'t>(texts: &mut impl Iterator<Item = &'t str>, line: &mut u64) -> Option<Self> {
        let mut batch = Self { source: Source::Memory, first_line: *line, documents: Vec::new(), read_bytes: 0 };
        let mut bytes = 0;
        while bytes < BATCH_BYTES
            && let Some(text) = texts.next()
        {
            bytes += text.len();
            batch.documents.push(text.to_owned());
        }
        *line += batch.documents.len() as u64;
        (!batch.documents.is_empty()).then_some(batch)
    }

    /// Tokenises every document, in parallel; the order stays.
    pub(super) fn tokenise(&self, tokenizer: &Tokenizer, with_metadata: bool) -> Result<Vec<Tokenised>> {
        let one = |(number, document): (usize, &String)| -> Result<Tokenised> {
            let line = self.first_line + number as u64;
            let (text, metadata) = match &self.source {
                Source::Memory => (document.into(), with_metadata.then(|| metadata::line("", line, "{}"))),
                Source::Lines(path) => {
                    let bad = |problem: String| Error::BadLine { path: path.to_path_buf(), line: line + 1, problem };
                    let parsed = metadata::parse(document).map_err(bad)?;
                    let name = path.file_name().unwrap_or_default().to_string_lossy();
                    let metadata = with_metadata.then(|| metadata::line(&name, line, &parsed.other_fields));
                    (parsed.text, metadata)
                }
            };
            let ids = tokenizer.encode_document(&text)?;
            Ok(Tokenised { line, ids, text_bytes: text.len() as u64, metadata })
        };
        self.documents.par_iter().enumerate().map(one).collect()
    }
}

/// The input files, in order.
pub(super) struct Inputs {
    files: std::vec::IntoIter<PathBuf>,
    current: Option<OpenFile>,
    num_bytes: u64,
    read_bytes: Arc<AtomicU64>,
}

struct OpenFile {
    path: Arc<Path>,
    reader: Box<dyn BufRead + Send>,
    line: u64,
}

impl Inputs {
    pub(super) fn open(inputs: &[PathBuf]) -> Result<Self> {
        let mut files = Vec::new();
        for input in inputs {
            if input.is_dir() {
                for entry in std::fs::read_dir(input).map_err(Error::io("list", input))? {
                    let path = entry.map_err(Error::io("list", input))?.path();
                    if Kind::of(&path).is_ok() {
                        files.push(path);
                    }
                }
            } else {
                files.push(input.clone());
            }
        }
        files.sort();
        let mut num_bytes = 0;
        for file in &files {
            Kind::of(file)?;
            num_bytes += std::fs::metadata(file).map_err(Error::io("open", file))?.len();
        }
        Ok(Self { files: files.into_iter(), current: None, num_bytes, read_bytes: Arc::default() })
    }

    /// Bytes of all files, compressed where they are.
    pub(super) fn num_bytes(&self) -> u64 {
        self.num_bytes
    }

    /// The next lines of one file; `None` at the end of the last.
    pub(super) fn next_batch(&mut self) -> Result<Option<Batch>> {
        loop {
            let file = match &mut self.current {
                Some(file) => file,
                None => match self.files.next() {
                    Some(path) => self.current.insert(OpenFile::open(path, &self.read_bytes)?),
                    None => return Ok(None),
                },
            };
            let (first_line, documents) = (file.line, file.read_lines()?);
            if documents.is_empty() {
                self.current = None;
                continue;
            }
            let source = Source::Lines(file.path.clone());
            return Ok(Some(Batch { source, first_line, documents, read_bytes: self.read_bytes.load(Relaxed) }));
        }
    }
}

impl OpenFile {
    fn open(path: PathBuf, read_bytes: &Arc<AtomicU64>) -> Result<Self> {
        let file = File::open(&path).map_err(Error::io("open", &path))?;
        let counted = CountedReader { file, read_bytes: read_bytes.clone() };
        let reader: Box<dyn BufRead + Send> = match Kind::of(&path)? {
            Kind::Plain => Box::new(BufReader::with_capacity(1 << 18, counted)),
            Kind::Gzip => Box::new(BufReader::with_capacity(1 << 18, MultiGzDecoder::new(counted))),
        };
        Ok(Self { path: path.into(), reader, line: 0 })
    }

    fn read_lines(&mut self) -> Result<Vec<String>> {
        let (mut lines, mut bytes) = (Vec::new(), 0);
        while bytes < BATCH_BYTES {
            let mut line = String::new();
            let read = self.reader.read_line(&mut line).map_err(|e| Error::BadLine {
                path: self.path.to_path_buf(),
                line: self.line + 1,
                problem: e.to_string(),
            })?;
            if read == 0 {
                break;
            }
            bytes += read;
            self.line += 1;
            lines.push(line);
        }
        Ok(lines)
    }
}

enum Kind {
    Plain,
    Gzip,
}

impl Kind {
    fn of(path: &Path) -> Result<Self> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.ends_with(".jsonl") {
            Ok(Self::Plain)
        } else if name.ends_with(".jsonl.gz") {
            Ok(Self::Gzip)
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
