//! Rows of a Parquet file, read with a few pages of each column in memory.

use std::fmt::Display;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Row;
use parquet::record::reader::{ReaderIter, TreeBuilder};
use parquet::schema::types::{SchemaDescPtr, SchemaDescriptor, Type, TypePtr};

use crate::error::{Error, Result};
use crate::json_value::{BinaryForm, row_value};

/// Number of rows that the library decodes in one batch. Each row holds its page in memory.
const BATCH_ROWS: usize = 16;
/// Length limit of the library's messages, characters: they may quote a complete document.
const MAX_PROBLEM_CHARS: usize = 200;

/// Reads these columns of a Parquet file as JSON objects. Columns that the file lacks are left out.
/// Lists and structs become arrays and objects, and text without a mark for UTF-8 is text.
///
/// # Errors
/// Fails if the file is not a valid Parquet file, or has none of the columns. An item fails if its
/// row cannot be read; it is the last one.
pub fn parquet_records(
    path: &Path,
    columns: &[&str],
) -> Result<impl Iterator<Item = Result<serde_json::Value>> + use<>> {
    let mut rows = Some(ParquetRows::open(path)?.select_columns(columns)?);
    Ok(std::iter::from_fn(move || {
        let rows_left = rows.as_mut()?;
        let record =
            rows_left.next(|row, types| row_value(row, types, BinaryForm::Refused)).transpose();
        if !matches!(record, Some(Ok(_))) {
            rows = None;
        }
        record
    }))
}

/// An open Parquet file, read from the first row to the last.
pub(crate) struct ParquetRows {
    path: PathBuf,
    reader: SerializedFileReader<File>,
    /// Schema of the columns that are read.
    columns: SchemaDescPtr,
    /// Index of the next row group.
    next_group: usize,
    /// Remaining rows of the current row group.
    rows: Option<ReaderIter>,
    /// Number of rows that were read or skipped.
    done: u64,
}

impl ParquetRows {
    /// Opens a file and selects all columns.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(Error::io("open", path))?;
        let reader = catch_panic(|| SerializedFileReader::new(file))
            .map_err(|message| Error::parquet(path, message))?;
        let columns = reader.metadata().file_metadata().schema_descr_ptr();
        Ok(Self { path: path.to_owned(), reader, columns, next_group: 0, rows: None, done: 0 })
    }

    /// Returns the name and type of each selected column.
    pub(crate) fn columns(&self) -> &[TypePtr] {
        self.columns.root_schema().get_fields()
    }

    /// Selects the columns with these names. The others are not decoded: they may have types that
    /// the library cannot read.
    pub(crate) fn select_columns(self, names: &[&str]) -> Result<Self> {
        let root = self.columns.root_schema();
        let mut selected = root.get_fields().to_vec();
        selected.retain(|column| names.contains(&column.name()));
        if selected.is_empty() {
            let columns: Vec<&str> = root.get_fields().iter().map(|column| column.name()).collect();
            return Err(Error::InvalidInput(format!(
                "{}: no column {:?}; its columns are {}",
                self.path.display(),
                names.first().unwrap_or(&""),
                columns.join(", ")
            )));
        }
        let schema = Type::group_type_builder(root.name())
            .with_fields(selected)
            .build()
            .map_err(|error| Error::parquet(&self.path, error))?;
        let columns = Arc::new(SchemaDescriptor::new(Arc::new(schema)));
        Ok(Self { columns, ..self })
    }

    /// Skips the first rows of the file: complete row groups without reading them, then row by row.
    pub(crate) fn skip(&mut self, rows: u64) -> Result<()> {
        for group in self.reader.metadata().row_groups() {
            let after = self.done.saturating_add(group.num_rows() as u64);
            if after > rows {
                break;
            }
            self.done = after;
            self.next_group += 1;
        }
        while self.done < rows && self.next(|_, _| Ok(()))?.is_some() {}
        Ok(())
    }

    /// Reads the next row and converts it with the types of its columns; `None` after the last row.
    pub(crate) fn next<T>(
        &mut self,
        convert: impl FnOnce(Row, &[TypePtr]) -> Result<T, String>,
    ) -> Result<Option<T>> {
        let Some(row) = self.next_row()? else { return Ok(None) };
        catch_panic(|| convert(row, self.columns()))
            .map(Some)
            .map_err(|problem| self.row_error(self.done, problem))
    }

    /// Returns the fraction of the rows that were read, from 0 to 1.
    pub(crate) fn fraction_read(&self) -> f64 {
        let rows = self.reader.metadata().file_metadata().num_rows();
        if rows > 0 { (self.done as f64 / rows as f64).min(1.0) } else { 1.0 }
    }

    fn next_row(&mut self) -> Result<Option<Row>> {
        loop {
            let Some(rows) = &mut self.rows else {
                if self.next_group == self.reader.metadata().num_row_groups() {
                    return Ok(None);
                }
                let rows = catch_panic(|| self.read_group(self.next_group));
                self.rows = Some(rows.map_err(|problem| self.row_error(self.done + 1, problem))?);
                self.next_group += 1;
                continue;
            };
            match catch_panic(|| rows.next().transpose()) {
                Ok(Some(row)) => {
                    self.done += 1;
                    return Ok(Some(row));
                }
                Ok(None) => self.rows = None,
                Err(problem) => return Err(self.row_error(self.done + 1, problem)),
            }
        }
    }

    fn read_group(&self, group: usize) -> Result<ReaderIter, ParquetError> {
        let reader = self.reader.get_row_group(group)?;
        for column in reader.metadata().columns() {
            let name = column.column_path().parts().first().map_or("", String::as_str);
            let is_selected = self.columns().iter().any(|selected| selected.name() == name);
            let compression = column.compression();
            if is_selected && matches!(compression, Compression::BROTLI(_) | Compression::LZO) {
                let codec = if compression == Compression::LZO { "LZO" } else { "Brotli" };
                return Err(ParquetError::General(format!(
                    "the column {name:?} is compressed by {codec}, which is not supported; write \
                     the file with zstd, snappy, gzip or lz4"
                )));
            }
        }
        TreeBuilder::new().with_batch_size(BATCH_ROWS).as_iter(self.columns.clone(), &*reader)
    }

    fn row_error(&self, row: u64, problem: String) -> Error {
        Error::InvalidInput(format!("{}, row {row}: {problem}", self.path.display()))
    }
}

/// Runs the Parquet library, which panics on some damaged files.
fn catch_panic<T, E: Display>(work: impl FnOnce() -> Result<T, E>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(shorten(error.to_string())),
        Err(_) => {
            Err("the Parquet library failed: the file is damaged, or a column has a type that \
                       the library lacks"
                .to_owned())
        }
    }
}

fn shorten(message: String) -> String {
    match message.char_indices().nth(MAX_PROBLEM_CHARS) {
        Some((end, _)) => format!("{}…", &message[..end]),
        None => message,
    }
}
