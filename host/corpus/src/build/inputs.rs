//! Documents of the input files, read in batches of documents that are tokenised in parallel.

use std::borrow::Cow;
use std::sync::Arc;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::build::csv_file::CsvFile;
use crate::build::dump_file::DumpFile;
use crate::build::input_files::{InputFile, InputKind};
use crate::build::lines_file::LinesFile;
use crate::build::metadata::{self, ParsedDocument};
use crate::build::parquet::ParquetFile;
use crate::build::text_file::TextFile;
use crate::build::wiki_file::{WikiFile, unescape};
use crate::error::{Error, Result};
use crate::files::format::encode_document;
use crate::text::tokenizer::Tokenizer;
use crate::token_width::TokenWidth;

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
    /// Lines of JSON; true for those of WikiExtractor, which are escaped for HTML.
    Lines(Arc<InputFile>, bool),
    /// Texts from a file whose documents are parsed while they are read.
    Rows(Arc<InputFile>),
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
        let mut name = "";
        let mut other_fields = "{}";
        let text: Cow<'_, str> = match &self.source {
            BatchSource::Memory => String::from_utf8_lossy(document),
            BatchSource::Rows(file) => {
                name = &file.name;
                other_fields = &self.other_fields[number];
                String::from_utf8_lossy(document)
            }
            BatchSource::Lines(file, is_escaped) => {
                name = &file.name;
                let mut fields = metadata::parse(document, tokenisation.text_field)
                    .map_err(|problem| Error::line(&file.path, line + 1, problem))?;
                if *is_escaped {
                    fields.text = unescape(&fields.text);
                    // These fields are JSON, where a quotation mark has a backslash.
                    fields.other_fields = unescape(&fields.other_fields.replace("&quot;", "\\\""));
                }
                parsed = fields;
                other_fields = &parsed.other_fields;
                parsed.text.as_str().into()
            }
        };
        let metadata = tokenisation.metadata.then(|| metadata::line(name, line, other_fields));
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
            && let Some(input) = files.get(from.file)
        {
            let mut file = OpenFile::open(input, tokenisation)?;
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
        while let Some(input) = self.files.get(self.position.file) {
            let file = match &mut self.current {
                Some(file) => file,
                None => self.current.insert(OpenFile::open(input, self.tokenisation)?),
            };
            let mut batch = file.next_batch(self.position.line, self.tokenisation.batch_bytes)?;
            if batch.ends.is_empty() {
                if self.position.line == 0 {
                    tracing::warn!("{} holds no document", input.path.display());
                }
                self.current = None;
                self.position = InputPosition { file: self.position.file + 1, line: 0 };
                self.read_bytes += input.bytes;
                continue;
            }
            self.position.line += batch.ends.len() as u64;
            batch.end = self.position;
            batch.read_bytes = self.read_bytes + file.read_bytes(input.bytes);
            return Ok(Some(batch));
        }
        Ok(None)
    }
}

/// An open input file.
enum OpenFile {
    /// Lines of JSON; true for those of WikiExtractor.
    Lines(LinesFile, Arc<InputFile>, bool),
    Rows(RowFile, Arc<InputFile>),
}

impl OpenFile {
    fn open(input: &InputFile, tokenisation: Tokenisation<'_>) -> Result<Self> {
        let Tokenisation { text_field, metadata, .. } = tokenisation;
        let path = input.path.as_path();
        let rows = match InputKind::from_path(path) {
            Some(InputKind::Parquet) => {
                RowFile::Parquet(Box::new(ParquetFile::open(path, text_field, metadata)?))
            }
            Some(InputKind::Delimited(delimiter)) => {
                let text = TextFile::open(path)?;
                RowFile::Csv(Box::new(CsvFile::open(path, text, delimiter, text_field)?))
            }
            Some(InputKind::Dump) => {
                RowFile::Dump(Box::new(DumpFile::new(path, TextFile::open(path)?)))
            }
            kind => {
                let mut text = TextFile::open(path)?;
                let is_wiki = kind == Some(InputKind::Wiki);
                if !is_wiki || !text.begins_with(b'<', path)? {
                    let lines = LinesFile::new(path, text);
                    return Ok(Self::Lines(lines, input.clone().into(), is_wiki));
                }
                RowFile::Wiki(WikiFile::new(path, text))
            }
        };
        Ok(Self::Rows(rows, input.clone().into()))
    }

    /// Reads documents of about `bytes` in total. `first_line` is the current line of the file.
    fn next_batch(&mut self, first_line: u64, bytes: usize) -> Result<DocumentBatch> {
        match self {
            Self::Lines(file, input, is_escaped) => {
                let source = BatchSource::Lines(input.clone(), *is_escaped);
                let mut batch = DocumentBatch::new(source, first_line);
                while batch.bytes.len() < bytes
                    && file.read_line(first_line + batch.ends.len() as u64, &mut batch.bytes)?
                {
                    batch.ends.push(batch.bytes.len());
                }
                Ok(batch)
            }
            Self::Rows(file, input) => {
                let mut batch = DocumentBatch::new(BatchSource::Rows(input.clone()), first_line);
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
            Self::Lines(file, ..) => (0..documents).try_for_each(|line| file.skip_line(line)),
            Self::Rows(file, _) => file.skip(documents),
        }
    }

    /// Returns the number of bytes read of the file, whose size is `file_bytes`.
    fn read_bytes(&self, file_bytes: u64) -> u64 {
        match self {
            Self::Lines(file, ..) => file.read_bytes(),
            Self::Rows(file, _) => file.read_bytes(file_bytes),
        }
    }
}

/// A file whose documents are parsed while they are read, one after the other.
enum RowFile {
    Parquet(Box<ParquetFile>),
    Csv(Box<CsvFile>),
    Dump(Box<DumpFile>),
    Wiki(WikiFile),
}

impl RowFile {
    fn next_document(&mut self) -> Result<Option<ParsedDocument>> {
        match self {
            Self::Parquet(file) => file.next_document(),
            Self::Csv(file) => file.next_document(),
            Self::Dump(file) => file.next_document(),
            Self::Wiki(file) => file.next_document(),
        }
    }

    fn skip(&mut self, documents: u64) -> Result<()> {
        match self {
            Self::Parquet(file) => file.skip(documents),
            Self::Csv(file) => file.skip(documents),
            Self::Dump(file) => file.skip(documents),
            Self::Wiki(file) => file.skip(documents),
        }
    }

    fn read_bytes(&self, file_bytes: u64) -> u64 {
        match self {
            Self::Parquet(file) => (file.fraction_read() * file_bytes as f64) as u64,
            Self::Csv(file) => file.read_bytes(),
            Self::Dump(file) => file.read_bytes(),
            Self::Wiki(file) => file.read_bytes(),
        }
    }
}
