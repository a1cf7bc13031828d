//! Documents from the rows of a Parquet file.

use std::path::Path;

use parquet::basic::{ConvertedType, Repetition, Type as PhysicalType};
use parquet::record::{Field, Row};
use parquet::schema::types::{Type, TypePtr};

use crate::build::metadata::{self, ParsedDocument};
use crate::error::{Error, Result};
use crate::json_value::{BinaryForm, column_value};
use crate::rows::ParquetRows;

/// A Parquet file with a document in each row.
pub(super) struct ParquetFile {
    rows: ParquetRows,
    /// Index of the text among the selected columns.
    text_column: usize,
}

impl ParquetFile {
    /// Opens a file whose column `text_field` holds a string in every row. The other columns are
    /// read if `other_columns`.
    pub(super) fn open(path: &Path, text_field: &str, other_columns: bool) -> Result<Self> {
        let rows = ParquetRows::open(path)?;
        let Some(text_column) =
            rows.columns().iter().position(|column| column.name() == text_field)
        else {
            let columns: Vec<&str> = rows.columns().iter().map(|column| column.name()).collect();
            return Err(Error::InvalidInput(format!(
                "{}: no column {text_field:?}; its columns are {}; name the one that holds the \
                 text",
                path.display(),
                columns.join(", ")
            )));
        };
        let text = &rows.columns()[text_column];
        if !holds_strings(text) {
            return Err(Error::InvalidInput(format!(
                "{}: the column {text_field:?} is {}, not a string in every row",
                path.display(),
                type_name(text)
            )));
        }
        if other_columns {
            Ok(Self { rows, text_column })
        } else {
            Ok(Self { rows: rows.select_columns(&[text_field])?, text_column: 0 })
        }
    }

    /// Skips rows from the start.
    pub(super) fn skip(&mut self, rows: u64) -> Result<()> {
        self.rows.skip(rows)
    }

    /// Reads the next row's text and other fields; `None` after the last row.
    pub(super) fn next_document(&mut self) -> Result<Option<ParsedDocument>> {
        let text_column = self.text_column;
        self.rows.next(|row, columns| document(row, columns, text_column))
    }

    /// Returns the fraction of the rows that were read, from 0 to 1.
    pub(super) fn fraction_read(&self) -> f64 {
        self.rows.fraction_read()
    }
}

/// True if a column holds at most one string in a row.
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

/// Converts a row to a document.
fn document(row: Row, columns: &[TypePtr], text_column: usize) -> Result<ParsedDocument, String> {
    let mut text = String::new();
    let mut others = Vec::new();
    for (number, (name, field)) in row.into_columns().into_iter().enumerate() {
        if number == text_column {
            text = match field {
                Field::Str(value) => value,
                Field::Bytes(bytes) => String::from_utf8(bytes.data().to_vec())
                    .map_err(|e| format!("the text is not UTF-8: {}", e.utf8_error()))?,
                _ => return Err("the text is null".to_owned()),
            };
        } else {
            let value = column_value(&field, &columns[number], BinaryForm::Base64)
                .map_err(|problem| format!("the column {name:?} {problem}"))?;
            others.push((name, value));
        }
    }
    let other_fields = metadata::object(others).map_err(|e| e.to_string())?;
    Ok(ParsedDocument { text, other_fields })
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::sync::Arc;

    use parquet::data_type::{ByteArray, ByteArrayType, Int32Type};
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    use super::*;

    /// Two row groups with strings and dates, the first in several pages.
    fn write(path: &Path) {
        let schema = "message m { optional binary text (UTF8); required int32 day (DATE); }";
        let schema = Arc::new(parse_message_type(schema).unwrap());
        let properties = WriterProperties::builder()
            .set_data_page_row_count_limit(10)
            .set_write_batch_size(5)
            .build();
        let mut file =
            SerializedFileWriter::new(File::create(path).unwrap(), schema, properties.into())
                .unwrap();
        for rows in [20, 3] {
            let mut group = file.next_row_group().unwrap();
            let texts: Vec<ByteArray> =
                (0..rows).map(|row| ["red fox", "den"][row % 2].into()).collect();
            let mut column = group.next_column().unwrap().unwrap();
            column
                .typed::<ByteArrayType>()
                .write_batch(&texts, Some(&vec![1; rows]), None)
                .unwrap();
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
        assert_eq!(file.fraction_read(), 1.0);
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
    fn damaged_parquet_gives_typed_error_or_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        write(&path);
        let intact = fs::read(&path).unwrap();
        let mut read_all = 0;
        let mut refused = 0;
        for index in 0..intact.len() {
            for flip in [0x01, 0x80, 0xFF] {
                let mut damaged = intact.clone();
                damaged[index] ^= flip;
                fs::write(&path, &damaged).unwrap();
                match read(&path, 0) {
                    Ok(_) => read_all += 1,
                    Err(Error::InvalidInput(_)) => refused += 1,
                    Err(error) => panic!("byte {index} ^ {flip}: {error}"),
                }
            }
        }
        assert!(read_all > 100 && refused > 100, "{read_all} {refused}");
    }
}
