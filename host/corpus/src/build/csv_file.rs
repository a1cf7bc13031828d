//! Documents in the rows of a CSV or TSV file.

use std::fmt::Display;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use corver_files::QuoteCheck;
use csv::{Reader, ReaderBuilder, StringRecord};

use crate::build::metadata::ParsedDocument;
use crate::build::text_file::TextFile;
use crate::error::{Error, Result};
use crate::python_json::{PythonObject, write_string};

/// A file whose first row has the names of the columns.
pub(super) struct CsvFile {
    path: PathBuf,
    delimiter: u8,
    rows: Reader<QuotedText>,
    columns: Vec<String>,
    text_column: usize,
    /// Number of rows read, without the first.
    read_rows: u64,
}

impl CsvFile {
    /// Opens a file whose column `text_field` holds the text.
    pub(super) fn open(
        path: &Path,
        text: TextFile,
        delimiter: u8,
        text_field: &str,
    ) -> Result<Self> {
        let quotes = (delimiter == b',').then(|| QuoteCheck::new(delimiter));
        let quoted = QuotedText { text, quotes };
        let mut rows = ReaderBuilder::new().delimiter(delimiter).from_reader(quoted);
        let header = rows.headers().map_err(|error| row_error(path, 0, &error))?;
        check_line_breaks(path, delimiter, 0, header)?;
        let columns: Vec<String> = header.iter().map(str::to_owned).collect();
        check_quotes(path, 0, rows.get_ref())?;
        if columns.is_empty() {
            return Err(Error::InvalidInput(format!(
                "failed to read {}: it is empty; its first row must name the columns",
                path.display()
            )));
        }
        let Some(text_column) = columns.iter().position(|column| column == text_field) else {
            return Err(Error::InvalidInput(format!(
                "failed to read {}: its first row has no column {text_field:?}, but {}; name the \
                 column that holds the text",
                path.display(),
                columns.join(", ")
            )));
        };
        Ok(Self { path: path.to_owned(), delimiter, rows, columns, text_column, read_rows: 0 })
    }

    /// Reads the next row; `None` after the last.
    pub(super) fn next_document(&mut self) -> Result<Option<ParsedDocument>> {
        let Some(row) = self.next_row()? else { return Ok(None) };
        let mut others = PythonObject::default();
        for (index, (column, field)) in self.columns.iter().zip(&row).enumerate() {
            if index != self.text_column {
                let mut name = String::new();
                write_string(column, &mut name);
                let mut value = String::new();
                write_string(field, &mut value);
                others.insert(name, value);
            }
        }
        let mut other_fields = String::new();
        others.write(&mut other_fields);
        Ok(Some(ParsedDocument { text: row[self.text_column].to_owned(), other_fields }))
    }

    /// Skips rows.
    pub(super) fn skip(&mut self, rows: u64) -> Result<()> {
        for _ in 0..rows {
            self.next_row()?;
        }
        Ok(())
    }

    /// Returns the number of bytes read from the file as stored.
    pub(super) fn read_bytes(&self) -> u64 {
        self.rows.get_ref().text.read_bytes()
    }

    fn next_row(&mut self) -> Result<Option<StringRecord>> {
        let mut row = StringRecord::new();
        self.read_rows += 1;
        let read = self.rows.read_record(&mut row);
        // Before an error of the library, which may be a consequence.
        check_quotes(&self.path, self.read_rows, self.rows.get_ref())?;
        match read {
            Ok(true) => {
                check_line_breaks(&self.path, self.delimiter, self.read_rows, &row)?;
                Ok(Some(row))
            }
            Ok(false) => Ok(None),
            Err(error) => Err(row_error(&self.path, self.read_rows, &error)),
        }
    }
}

/// A text with the check of its quotes.
struct QuotedText {
    text: TextFile,
    /// Check of the bytes read so far; `None` for a TSV file, whose fields have no line breaks.
    quotes: Option<QuoteCheck>,
}

impl Read for QuotedText {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.text.read(buffer)?;
        if let Some(quotes) = &mut self.quotes {
            quotes.read(&buffer[..read]);
            if read == 0 {
                quotes.end();
            }
        }
        Ok(read)
    }
}

/// Checks the quotes up to a row. A problem may be in a later row: the text is read in larger parts.
fn check_quotes(path: &Path, row: u64, text: &QuotedText) -> Result<()> {
    match text.quotes.as_ref().and_then(QuoteCheck::problem) {
        Some(found) if found.row <= row => Err(row_error(path, found.row, found.problem)),
        _ => Ok(()),
    }
}

/// Checks that no field of a TSV row has a line break. Many TSV files have no quoting: a text that
/// begins with a quote would include the rows up to the next quote.
fn check_line_breaks(path: &Path, delimiter: u8, row: u64, fields: &StringRecord) -> Result<()> {
    if delimiter == b'\t' && fields.iter().any(|field| field.contains(['\n', '\r'])) {
        let problem = "a field that begins with a quote has a line break, so it may be several \
                       rows; convert the file to .csv or .jsonl";
        return Err(row_error(path, row, problem));
    }
    Ok(())
}

fn row_error(path: &Path, row: u64, problem: impl Display) -> Error {
    Error::InvalidInput(format!("{}, row {row}: {problem}", path.display()))
}
