//! Documents from the rows of a Parquet file. Of each column that is read, some pages are in memory at a time.

use std::fmt::Display;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::{ConvertedType, Repetition, Type as PhysicalType};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::reader::{ReaderIter, TreeBuilder};
use parquet::record::{Field, Row};
use parquet::schema::types::{SchemaDescPtr, SchemaDescriptor, Type};

use crate::build::metadata::{self, Parsed};
use crate::error::{Error, Result};

/// Rows that the library decodes at once. Every one keeps its page in memory.
const ROWS_AT_ONCE: usize = 16;
/// Characters that are shown of the library's message: it may quote a whole document.
const MAX_PROBLEM_CHARS: usize = 200;

pub(super) struct ParquetFile {
    path: PathBuf,
    reader: SerializedFileReader<File>,
    /// What is read: all columns, or the text alone.
    columns: SchemaDescPtr,
    text_column: usize,
    next_group: usize,
    /// What is left of the row group before that.
    rows: Option<ReaderIter>,
    /// Rows that were read or skipped.
    rows_done: u64,
}

impl ParquetFile {
    /// Opens a file whose column `text_field` holds a string in every row. The other columns are read where they are wanted.
    pub(super) fn open(path: &Path, text_field: &str, other_columns: bool) -> Result<Self> {
        let unreadable = |message| Error::Parquet { path: path.to_owned(), message };
        let file = File::open(path).map_err(Error::io("open", path))?;
        let reader = guarded(|| SerializedFileReader::new(file)).map_err(unreadable)?;
        let schema = reader.metadata().file_metadata().schema_descr_ptr();
        let fields = schema.root_schema().get_fields();
        let Some(text_column) = fields.iter().position(|field| field.name() == text_field) else {
            let columns = fields.iter().map(|field| field.name().to_owned()).collect();
            return Err(Error::NoColumn { path: path.to_owned(), column: text_field.to_owned(), columns });
        };
        let text = &fields[text_column];
        if !holds_strings(text) {
            let column = text_field.to_owned();
            return Err(Error::ColumnType { path: path.to_owned(), column, got: type_name(text) });
        }
        let (columns, text_column) = if other_columns {
            (schema.clone(), text_column)
        } else {
            let only = Type::group_type_builder(schema.root_schema().name()).with_fields(vec![text.clone()]);
            let only = only.build().map_err(|e| unreadable(e.to_string()))?;
            (Arc::new(SchemaDescriptor::new(Arc::new(only))), 0)
        };
        Ok(Self { path: path.to_owned(), reader, columns, text_column, next_group: 0, rows: None, rows_done: 0 })
    }

    /// Skips rows from the start: whole row groups unread, then one by one.
    pub(super) fn skip(&mut self, rows: u64) -> Result<()> {
        for group in self.reader.metadata().row_groups() {
            let after = self.rows_done.saturating_add(group.num_rows() as u64);
            if after > rows {
                break;
            }
            self.rows_done = after;
            self.next_group += 1;
        }
        while self.rows_done < rows && self.next_row()?.is_some() {}
        Ok(())
    }

    /// The next row's text and other fields; `None` after the last row.
    pub(super) fn next_document(&mut self) -> Result<Option<Parsed>> {
        let Some(row) = self.next_row()? else { return Ok(None) };
        let document = guarded(|| document(row, self.text_column));
        document.map(Some).map_err(|problem| self.bad_row(self.rows_done, problem))
    }

    /// How much of the file was read, from 0 to 1.
    pub(super) fn part_read(&self) -> f64 {
        let rows = self.reader.metadata().file_metadata().num_rows();
        if rows > 0 { (self.rows_done as f64 / rows as f64).min(1.0) } else { 1.0 }
    }

    fn next_row(&mut self) -> Result<Option<Row>> {
        loop {
            let Some(rows) = &mut self.rows else {
                if self.next_group == self.reader.metadata().num_row_groups() {
                    return Ok(None);
                }
                let rows = guarded(|| self.read_group(self.next_group));
                self.rows = Some(rows.map_err(|problem| self.bad_row(self.rows_done + 1, problem))?);
                self.next_group += 1;
                continue;
            };
            match guarded(|| rows.next().transpose()) {
                Ok(Some(row)) => {
                    self.rows_done += 1;
                    return Ok(Some(row));
                }
                Ok(None) => self.rows = None,
                Err(problem) => return Err(self.bad_row(self.rows_done + 1, problem)),
            }
        }
    }

    fn read_group(&self, group: usize) -> Result<ReaderIter, ParquetError> {
        let group = self.reader.get_row_group(group)?;
        TreeBuilder::new().with_batch_size(ROWS_AT_ONCE).as_iter(self.columns.clone(), &*group)
    }

    fn bad_row(&self, row: u64, problem: String) -> Error {
        Error::BadRow { path: self.path.clone(), row, problem }
    }
}

/// Whether a column has one string in a row, or none.
fn holds_strings(column: &Type) -> bool {
    let info = column.get_basic_info();
    column.is_primitive()
        && info.repetition() != Repetition::REPEATED
        && column.get_physical_type() == PhysicalType::BYTE_ARRAY
        && matches!(
            info.converted_type(),
            ConvertedType::NONE | ConvertedType::UTF8 | ConvertedType::ENUM | ConvertedType::JSON
        )
}

fn type_name(column: &Type) -> String {
    let info = column.get_basic_info();
    match info.converted_type() {
        _ if info.repetition() == Repetition::REPEATED => "a list".to_owned(),
        ConvertedType::NONE if column.is_group() => "a struct".to_owned(),
        ConvertedType::NONE => column.get_physical_type().to_string(),
        converted => converted.to_string(),
    }
}

/// A row as a document.
fn document(row: Row, text_column: usize) -> Result<Parsed, String> {
    let mut text = String::new();
    let mut others = Vec::new();
    for (number, (name, field)) in row.into_columns().into_iter().enumerate() {
        if number == text_column {
            text = match field {
                Field::Str(text) => text,
                Field::Bytes(bytes) => String::from_utf8(bytes.data().to_vec())
                    .map_err(|e| format!("the text is no UTF-8: {}", e.utf8_error()))?,
                _ => return Err("the text is null".to_owned()),
            };
        } else {
            others.push((name, field.to_json_value()));
        }
    }
    let other_fields = metadata::object(others).map_err(|e| e.to_string())?;
    Ok(Parsed { text, other_fields })
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

#[cfg(test)]
mod tests {
    use std::fs;

    use parquet::data_type::{ByteArray, ByteArrayType, Int32Type};
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    use super::*;

    /// Two row groups with strings and dates, the first in several pages.
    fn write(path: &Path) {
        let schema = "message m { optional binary text (UTF8); required int32 day (DATE); }";
        let schema = Arc::new(parse_message_type(schema).unwrap());
        let properties = WriterProperties::builder().set_data_page_row_count_limit(10).set_write_batch_size(5).build();
        let mut file = SerializedFileWriter::new(File::create(path).unwrap(), schema, properties.into()).unwrap();
        for rows in [20, 3] {
            let mut group = file.next_row_group().unwrap();
            let texts: Vec<ByteArray> = (0..rows).map(|row| ["red fox", "den"][row % 2].into()).collect();
            let mut column = group.next_column().unwrap().unwrap();
            column.typed::<ByteArrayType>().write_batch(&texts, Some(&vec![1; rows]), None).unwrap();
            column.close().unwrap();
            let days: Vec<i32> = (0..rows as i32).map(|row| row * 1_000).collect();
            let mut column = group.next_column().unwrap().unwrap();
            column.typed::<Int32Type>().write_batch(&days, None, None).unwrap();
            column.close().unwrap();
            group.close().unwrap();
        }
        file.close().unwrap();
    }

    fn read(path: &Path, skipped: u64) -> Result<Vec<String>> {
        let mut file = ParquetFile::open(path, "text", true)?;
        file.skip(skipped)?;
        let mut texts = Vec::new();
        while let Some(document) = file.next_document()? {
            texts.push(document.text);
        }
        assert_eq!(file.part_read(), 1.0);
        Ok(texts)
    }

    #[test]
    fn reading_resumes_at_any_row() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        write(&path);
        let all = read(&path, 0).unwrap();
        assert_eq!(all.len(), 23);
        for skipped in 0..=23 {
            assert_eq!(read(&path, skipped).unwrap(), all[skipped as usize..], "{skipped}");
        }
    }

    /// Every byte of a file, changed in three ways: documents or a typed error.
    #[test]
    fn damage_is_an_error_or_another_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        write(&path);
        let whole = fs::read(&path).unwrap();
        let (mut read_all, mut refused) = (0, 0);
        for at in 0..whole.len() {
            for flip in [0x01, 0x80, 0xFF] {
                let mut damaged = whole.clone();
                damaged[at] ^= flip;
                fs::write(&path, &damaged).unwrap();
                match read(&path, 0) {
                    Ok(_) => read_all += 1,
                    Err(
                        Error::Parquet { .. }
                        | Error::BadRow { .. }
                        | Error::NoColumn { .. }
                        | Error::ColumnType { .. },
                    ) => refused += 1,
                    Err(error) => panic!("byte {at} ^ {flip}: {error}"),
                }
            }
        }
        assert!(read_all > 100 && refused > 100, "{read_all} {refused}");
    }
}
