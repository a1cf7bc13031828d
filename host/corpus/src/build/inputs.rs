//! Input files, read in batches of documents that are tokenised in parallel.

use std::borrow::Cow;
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

/// An input file, as it was when the build began. A file that was changed has another size or
/// modification time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InputFile {
    path: PathBuf,
    bytes: u64,
    /// Modification time, nanoseconds since 1970.
    modified: u64,
}

/// A position between two documents of the inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InputPosition {
    /// Index of the file, from 0.
    file: usize,
    /// Number of lines, or rows, of the file before this position.
    line: u64,
}

impl InputPosition {
    /// True if only the first `files` files were read before this position.
    pub(super) fn is_within(self, files: usize) -> bool {
        self.file < files || self.file == files && self.line == 0
    }
}

/// Returns the input files, sorted by path. A folder is replaced by the supported files in it.
pub(super) fn list(inputs: &[PathBuf]) -> Result<Vec<InputFile>> {
    let mut paths = Vec::new();
    for input in inputs {
        if input.is_dir() {
            for entry in std::fs::read_dir(input).map_err(Error::io("list", input))? {
                let path = entry.map_err(Error::io("list", input))?.path();
                if InputKind::from_path(&path).is_ok() {
                    paths.push(path);
                }
            }
        } else {
            InputKind::from_path(input)?;
            paths.push(input.clone());
        }
    }
    paths.sort();
    let mut files = Vec::new();
    for path in paths {
        let metadata = std::fs::metadata(&path).map_err(Error::io("open", &path))?;
        let time = metadata.modified().map_err(Error::io("read the time of", &path))?;
        let modified = time.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
        files.push(InputFile { path, bytes: metadata.len(), modified });
    }
    Ok(files)
}

/// A tokenised document, ready to be written to a shard.
pub(super) struct TokenisedDocument {
    /// Line or row in the file, from 0.
    pub(super) line: u64,
    /// Separator and tokens, encoded as in the stream.
    pub(super) encoded: Vec<u8>,
    /// Length of the text, bytes.
    pub(super) text_bytes: u64,
    /// Line of `metadata.K` with its line break; `None` if the build writes no metadata.
    pub(super) metadata: Option<String>,
}

/// The settings of tokenising.
#[derive(Clone, Copy)]
pub(super) struct Tokenisation<'a> {
    pub(super) tokenizer: &'a Tokenizer,
    pub(super) width: TokenWidth,
    pub(super) text_field: &'a str,
    pub(super) metadata: bool,
    /// Approximate size of a batch, bytes.
    pub(super) batch_bytes: usize,
    /// Largest number of documents that are tokenised in parallel.
    pub(super) threads: usize,
}

/// A batch of consecutive documents.
pub(super) struct DocumentBatch {
    source: BatchSource,
    first_line: u64,
    /// Concatenated documents, as in the file.
    bytes: Vec<u8>,
    /// End of each document in `bytes`.
    ends: Vec<usize>,
    /// Other fields of each row, as a JSON object; empty unless the documents are rows.
    other_fields: Vec<String>,
    /// Start of the next batch.
    pub(super) end: InputPosition,
    /// Bytes read from the input files before the next batch.
    pub(super) read_bytes: u64,
}

/// The origin of a batch.
enum BatchSource {
    /// Lines of a JSONL file.
    Lines(Arc<Path>),
    /// Texts from the rows of a Parquet file.
    Rows(Arc<Path>),
    /// Texts that the caller has in memory.
    Memory,
}

impl DocumentBatch {
    fn new(source: BatchSource, first_line: u64) -> Self {
        Self {
            source,
            first_line,
            bytes: Vec::new(),
            ends: Vec::new(),
            other_fields: Vec::new(),
            end: InputPosition::default(),
            read_bytes: 0,
        }
    }

    /// Takes the next texts, of about `bytes` in total; `None` if no texts are left.
    pub(super) fn from_texts<'t>(
        texts: &mut impl Iterator<Item = &'t str>,
        line: &mut u64,
        bytes: usize,
    ) -> Option<Self> {
        let mut batch = Self::new(BatchSource::Memory, *line);
        while batch.bytes.len() < bytes
            && let Some(text) = texts.next()
        {
            batch.bytes.extend_from_slice(text.as_bytes());
            batch.ends.push(batch.bytes.len());
        }
        *line += batch.ends.len() as u64;
        (!batch.ends.is_empty()).then_some(batch)
    }

    /// Tokenises the documents in parallel, and returns them in order.
    pub(super) fn tokenise(
        &self,
        tokenisation: Tokenisation<'_>,
    ) -> Result<Vec<TokenisedDocument>> {
        let min_len = if tokenisation.threads < rayon::current_num_threads() {
            self.ends.len().div_ceil(tokenisation.threads)
        } else {
            1
        };
        (0..self.ends.len())
            .into_par_iter()
            .with_min_len(min_len)
            .map(|number| self.tokenise_document(number, tokenisation))
            .collect()
    }

    fn tokenise_document(
        &self,
        number: usize,
        tokenisation: Tokenisation<'_>,
    ) -> Result<TokenisedDocument> {
        let start = number.checked_sub(1).map_or(0, |previous| self.ends[previous]);
        let document = &self.bytes[start..self.ends[number]];
        let line = self.first_line + number as u64;
        let parsed;
        let mut path = Path::new("");
        let mut other_fields = "{}";
        let text: Cow<'_, str> = match &self.source {
            BatchSource::Memory => String::from_utf8_lossy(document),
            BatchSource::Rows(file) => {
                path = file;
                other_fields = &self.other_fields[number];
                String::from_utf8_lossy(document)
            }
            BatchSource::Lines(file) => {
                path = file;
                parsed = metadata::parse(document, tokenisation.text_field)
                    .map_err(|problem| Error::line(path, line + 1, problem))?;
                other_fields = &parsed.other_fields;
                parsed.text.as_str().into()
            }
        };
        let metadata = tokenisation.metadata.then(|| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            metadata::line(&name, line, other_fields)
        });
        let ids = tokenisation.tokenizer.encode_document(&text)?;
        let encoded = encode_document(&ids, tokenisation.width)?;
        Ok(TokenisedDocument { line, encoded, text_bytes: text.len() as u64, metadata })
    }
}

/// A reader of the input files, in order.
pub(super) struct Inputs<'f> {
    files: &'f [InputFile],
    tokenisation: Tokenisation<'f>,
    position: InputPosition,
    current: Option<OpenFile>,
    /// Size of the files before the current one, bytes.
    read_bytes: u64,
}

impl<'f> Inputs<'f> {
    /// Opens the files at a position.
    pub(super) fn open(
        files: &'f [InputFile],
        from: InputPosition,
        tokenisation: Tokenisation<'f>,
    ) -> Result<Self> {
        let read_bytes = files.iter().take(from.file).map(|file| file.bytes).sum();
        let mut inputs = Self { files, tokenisation, position: from, current: None, read_bytes };
        if from.line > 0
            && let Some(InputFile { path, .. }) = files.get(from.file)
        {
            let mut file = OpenFile::open(path, tokenisation)?;
            file.skip(from.line)?;
            inputs.current = Some(file);
        }
        Ok(inputs)
    }

    /// Returns the size of all files as stored, bytes.
    pub(super) fn num_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Reads the next documents, all of one file; `None` at the end of the last file.
    pub(super) fn next_batch(&mut self) -> Result<Option<DocumentBatch>> {
        while let Some(InputFile { path, bytes, .. }) = self.files.get(self.position.file) {
            let file = match &mut self.current {
                Some(file) => file,
                None => self.current.insert(OpenFile::open(path, self.tokenisation)?),
            };
            let mut batch = file.next_batch(self.position.line, self.tokenisation.batch_bytes)?;
            if batch.ends.is_empty() {
                self.current = None;
                self.position = InputPosition { file: self.position.file + 1, line: 0 };
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

/// An open input file.
enum OpenFile {
    Lines(LinesFile),
    Rows(Box<ParquetFile>, Arc<Path>),
}

impl OpenFile {
    fn open(path: &Path, tokenisation: Tokenisation<'_>) -> Result<Self> {
        match InputKind::from_path(path)? {
            InputKind::Jsonl(compression) => Ok(Self::Lines(LinesFile::open(path, compression)?)),
            InputKind::Parquet => {
                let Tokenisation { text_field, metadata, .. } = tokenisation;
                let file = ParquetFile::open(path, text_field, metadata)?;
                Ok(Self::Rows(Box::new(file), path.into()))
            }
        }
    }

    /// Reads documents of about `bytes` in total. `first_line` is the current line of the file.
    fn next_batch(&mut self, first_line: u64, bytes: usize) -> Result<DocumentBatch> {
        match self {
            Self::Lines(file) => {
                let mut batch =
                    DocumentBatch::new(BatchSource::Lines(file.path.clone()), first_line);
                while batch.bytes.len() < bytes
                    && file.read_line(first_line + batch.ends.len() as u64, &mut batch.bytes)?
                {
                    batch.ends.push(batch.bytes.len());
                }
                Ok(batch)
            }
            Self::Rows(file, path) => {
                let mut batch = DocumentBatch::new(BatchSource::Rows(path.clone()), first_line);
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

    /// Returns the number of bytes read of the file, whose size is `file_bytes`.
    fn read_bytes(&self, file_bytes: u64) -> u64 {
        match self {
            Self::Lines(file) => file.read_bytes.load(Relaxed),
            Self::Rows(file, _) => (file.fraction_read() * file_bytes as f64) as u64,
        }
    }
}

struct LinesFile {
    path: Arc<Path>,
    reader: Box<dyn BufRead + Send>,
    /// Bytes read from the file as stored.
    read_bytes: Arc<AtomicU64>,
}

impl LinesFile {
    fn open(path: &Path, compression: Compression) -> Result<Self> {
        let file = File::open(path).map_err(Error::io("open", path))?;
        let read_bytes = Arc::new(AtomicU64::new(0));
        let counted = CountedReader { file, read_bytes: read_bytes.clone() };
        let reader: Box<dyn Read + Send> = match compression {
            Compression::None => Box::new(counted),
            Compression::Gzip => {
                Box::new(MultiGzDecoder::new(BufReader::with_capacity(1 << 16, counted)))
            }
            Compression::Zstd => {
                Box::new(zstd::Decoder::new(counted).map_err(Error::io("open", path))?)
            }
        };
        Ok(Self {
            path: path.into(),
            reader: Box::new(BufReader::with_capacity(1 << 18, reader)),
            read_bytes,
        })
    }

    /// Appends the next line to `bytes`. Returns false at the end of the file.
    fn read_line(&mut self, line: u64, bytes: &mut Vec<u8>) -> Result<bool> {
        self.reader
            .read_until(b'\n', bytes)
            .map(|read| read > 0)
            .map_err(|error| self.line_error(line, &error))
    }

    fn skip_line(&mut self, line: u64) -> Result<()> {
        self.reader.skip_until(b'\n').map(drop).map_err(|error| self.line_error(line, &error))
    }

    fn line_error(&self, line: u64, error: &std::io::Error) -> Error {
        Error::line(&self.path, line + 1, error)
    }
}

/// The kind of an input file, by its name.
enum InputKind {
    Jsonl(Compression),
    Parquet,
}

/// The compression of a JSONL file.
enum Compression {
    None,
    Gzip,
    Zstd,
}

impl InputKind {
    fn from_path(path: &Path) -> Result<Self> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        for (suffix, kind) in [
            (".jsonl", Self::Jsonl(Compression::None)),
            (".jsonl.gz", Self::Jsonl(Compression::Gzip)),
            (".jsonl.zst", Self::Jsonl(Compression::Zstd)),
            (".parquet", Self::Parquet),
        ] {
            if name.ends_with(suffix) {
                return Ok(kind);
            }
        }
        Err(Error::InvalidInput(format!(
            "{}: neither .jsonl nor .jsonl.gz nor .jsonl.zst nor .parquet",
            path.display()
        )))
    }
}

/// A file that counts the bytes read from it, for the progress report.
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
