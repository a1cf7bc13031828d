//! The rows of a Parquet file. Of each column that is read, some pages are in memory at a time.

use std::fmt::Display;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Row;
use parquet::record::reader::{ReaderIter, TreeBuilder};
use parquet::schema::types::{SchemaDescPtr, SchemaDescriptor, Type, TypePtr};

use crate::error::{Error, Result};

/// Rows that the library decodes at once. Every one keeps its page in memory.
const ROWS_AT_ONCE: usize = 16;
/// Characters that are shown of the library's message: it may quote a whole document.
const MAX_PROBLEM_CHARS: usize = 200;

/// The rows of a Parquet file as JSON objects, a field for each column. Lists and structs keep
/// their shape.
///
/// # Errors
/// Where the file is not a readable Parquet file; each item, where its row cannot be read: it is
/// then the last.
pub fn parquet_records(path: &Path) -> Result<impl Iterator<Item = Result<serde_json::Value>>> {
    let mut rows = Some(Rows::open(path)?);
    Ok(std::iter::from_fn(move || {
        let record = rows.as_mut()?.next(|row| Ok(row.to_json_value())).transpose();
        if !matches!(record, Some(Ok(_))) {
            rows = None;
        }
        record
    }))
}

/// An open file, read from the first row to the last.
pub(crate) struct Rows {
    path: PathBuf,
    reader: SerializedFileReader<File>,
    /// What is read of it.
    columns: SchemaDescPtr,
    next_group: usize,
    /// What is left of the row group before that.
    rows: Option<ReaderIter>,
    /// Rows that were read or skipped.
    done: u64,
}

impl Rows {
    /// Opens a file, to read all columns.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(Error::io("open", path))?;
        let reader = guarded(|| SerializedFileReader::new(file))
            .map_err(|message| Error::parquet(path, message))?;
        let columns = reader.metadata().file_metadata().schema_descr_ptr();
        Ok(Self { path: path.to_owned(), reader, columns, next_group: 0, rows: None, done: 0 })
    }

    /// Of each column that is read: its name and type.
    pub(crate) fn columns(&self) -> &[TypePtr] {
        self.columns.root_schema().get_fields()
    }

    /// Reads one column alone, by its number.
    pub(crate) fn only(self, column: usize) -> Result<Self> {
        let root = self.columns.root_schema();
        let only = Type::group_type_builder(root.name())
            .with_fields(vec![root.get_fields()[column].clone()]);
        let only = only.build().map_err(|error| Error::parquet(&self.path, error))?;
        let columns = Arc::new(SchemaDescriptor::new(Arc::new(only)));
        Ok(Self { columns, ..self })
    }

    /// Skips rows from the start: whole row groups unread, then one by one.
    pub(crate) fn skip(&mut self, rows: u64) -> Result<()> {
        for group in self.reader.metadata().row_groups() {
            let after = self.done.saturating_add(group.num_rows() as u64);
            if after > rows {
                break;
            }
            self.done = after;
            self.next_group += 1;
        }
        while self.done < rows && self.next(|_| Ok(()))?.is_some() {}
        Ok(())
    }

    /// What `take` makes of the next row; `None` after the last row.
    pub(crate) fn next<T>(
        &mut self,
        take: impl FnOnce(Row) -> Result<T, String>,
    ) -> Result<Option<T>> {
        let Some(row) = self.next_row()? else { return Ok(None) };
        guarded(|| take(row)).map(Some).map_err(|problem| self.bad_row(self.done, problem))
    }

    /// How much of the file was read, from 0 to 1.
    pub(crate) fn part_read(&self) -> f64 {
        let rows = self.reader.metadata().file_metadata().num_rows();
        if rows > 0 { (self.done as f64 / rows as f64).min(1.0) } else { 1.0 }
    }

    fn next_row(&mut self) -> Result<Option<Row>> {
        loop {
            let Some(rows) = &mut self.rows else {
                if self.next_group == self.reader.metadata().num_row_groups() {
                    return Ok(None);
                }
                let rows = guarded(|| self.read_group(self.next_group));
                self.rows = Some(rows.map_err(|problem| self.bad_row(self.done + 1, problem))?);
                self.next_group += 1;
                continue;
            };
            match guarded(|| rows.next().transpose()) {
                Ok(Some(row)) => {
                    self.done += 1;
                    return Ok(Some(row));
                }
                Ok(None) => self.rows = None,
                Err(problem) => return Err(self.bad_row(self.done + 1, problem)),
            }
        }
    }

    fn read_group(&self, group: usize) -> Result<ReaderIter, ParquetError> {
        let group = self.reader.get_row_group(group)?;
        TreeBuilder::new().with_batch_size(ROWS_AT_ONCE).as_iter(self.columns.clone(), &*group)
    }

    fn bad_row(&self, row: u64, problem: String) -> Error {
        Error::InvalidInput(format!("{}, row {row}: {problem}", self.path.display()))
    }
}

/// Runs the library on unchecked bytes; it panics over some damaged files.
fn guarded<T, E: Display>(work: impl FnOnce() -> Result<T, E>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result.map_err(|e| {
            let message = e.to_string();
            match message.char_indices().nth(MAX_PROBLEM_CHARS) {
                Some((end, _)) => format!("{}…", &message[..end]),
                None => message,
            }
        }),
        Err(_) => Err("the Parquet library gave up: the file is damaged".to_owned()),
    }
}
