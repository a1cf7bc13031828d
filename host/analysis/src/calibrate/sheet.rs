//! Sheets that people label: CSV for spreadsheets.
//!
//! A cell that a spreadsheet would evaluate as a formula is written with an apostrophe in front,
//! which is removed when the sheet is read.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use corver_core::Triplet;
use csv::StringRecord;
use serde::Serialize;

use super::bucket::CountBucket;
use super::label::TruthLabel;

/// Row of a sheet: a sentence to label.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SheetRow {
    /// Id of the sentence, the same in any sheet.
    pub id: String,
    /// Bucket of the count.
    pub bucket: CountBucket,
    /// Count of head and tail together; a lower bound if it reached the limit of the rule.
    pub count: u64,
    /// Question that the sentence answers.
    pub question: String,
    /// Text of the sentence.
    pub sentence: String,
    /// Fact that was counted.
    pub triplet: Triplet,
    /// Query of the count.
    pub query: String,
    /// Label; `None` if the sentence is not labelled.
    pub label: Option<TruthLabel>,
    /// Note of the person; it begins with the model's name if a model gave the label.
    pub note: String,
}

/// Start of a note if a model gave the label; the model's name follows.
const MODEL_PREFIX: &str = "model: ";
/// Separator of the model's name and the rest of the note.
const SEPARATOR: &str = "; ";

impl SheetRow {
    /// Returns the row with a model's label instead of its own; the note names the model.
    #[must_use]
    pub fn labelled_by(&self, model: &str, label: Option<TruthLabel>) -> Self {
        let mut own_note = self.note.as_str();
        if self.is_by_model() {
            own_note = own_note.split_once(SEPARATOR).map_or("", |(_, rest)| rest);
        }
        let mut parts = Vec::new();
        if label.is_some() {
            parts.push(format!("{MODEL_PREFIX}{model}"));
        }
        if !own_note.is_empty() {
            parts.push(own_note.to_owned());
        }
        Self { label, note: parts.join(SEPARATOR), ..self.clone() }
    }

    pub(super) fn is_by_model(&self) -> bool {
        self.note.starts_with(MODEL_PREFIX)
    }
}

/// Columns in the order of writing. A sheet may have them in any order and case, among others.
const COLUMNS: [&str; 11] = [
    "id", "bucket", "count", "question", "sentence", "head", "relation", "tail", "query", "label",
    "note",
];
/// Columns that a sheet may lack.
const OPTIONAL: [&str; 2] = ["query", "note"];

/// First characters of a cell that a spreadsheet evaluates as a formula.
const FORMULA: [char; 10] = ['=', '+', '-', '@', '\t', '\r', '＝', '＋', '－', '＠'];
/// Mark by which spreadsheets recognise UTF-8.
const BYTE_ORDER_MARK: &str = "\u{feff}";
/// Separators of cells that spreadsheets use, depending on the user's language.
const SEPARATORS: [u8; 3] = [b',', b';', b'\t'];

/// Error of writing or reading a sheet.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SheetError {
    /// The file cannot be read or written.
    #[error("cannot {action} the sheet {}: {source}", path.display())]
    Io {
        /// Verb of the call: "read" or "write".
        action: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
    /// The file exists already, is no sheet, or has invalid cells.
    #[error("{0}")]
    InvalidSheet(String),
}

/// Cell of the column `label` that is no label.
struct BadLabel {
    line: u64,
    text: String,
}

/// Describes all bad labels of a sheet in one message; `None` if there are none.
fn describe(bad_labels: &[BadLabel]) -> Option<String> {
    let (first, others) = bad_labels.split_first()?;
    let mut message = format!(
        "{}: {:?} is no label; write correct, incorrect or unclear, or c, i, u",
        first.line, first.text
    );
    for BadLabel { line, text } in others {
        message += &format!("; line {line}: {text:?}");
    }
    Some(message)
}

/// Writes a new sheet, atomically.
///
/// # Errors
/// If the file exists or cannot be written.
pub fn write_sheet(path: &Path, rows: &[SheetRow]) -> Result<(), SheetError> {
    if path.exists() {
        return Err(already_exists(path));
    }
    match corver_files::create(path, to_csv(rows).as_bytes()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            Err(already_exists(path))
        }
        Err(source) => Err(SheetError::Io { action: "write", path: path.to_owned(), source }),
    }
}

fn already_exists(path: &Path) -> SheetError {
    let path = path.display();
    SheetError::InvalidSheet(format!("{path} exists, and may hold labels; write to a new file"))
}

/// Returns the text of a sheet.
#[must_use]
pub fn to_csv(rows: &[SheetRow]) -> String {
    const IN_MEMORY: &str = "writing to memory does not fail";
    let mut writer = csv::Writer::from_writer(BYTE_ORDER_MARK.as_bytes().to_vec());
    writer.write_record(COLUMNS).expect(IN_MEMORY);
    for row in rows {
        let Triplet { head, relation, tail } = &row.triplet;
        let cells: [&str; 11] = [
            &row.id,
            &row.bucket.to_string(),
            &row.count.to_string(),
            &row.question,
            &row.sentence,
            head,
            relation,
            tail,
            &row.query,
            row.label.map_or("", TruthLabel::word),
            &row.note,
        ];
        writer.write_record(cells.map(escape)).expect(IN_MEMORY);
    }
    String::from_utf8(writer.into_inner().expect(IN_MEMORY)).expect("every cell is a text")
}

/// True if a spreadsheet would evaluate the cell as a formula, apart from leading apostrophes.
fn is_formula(cell: &str) -> bool {
    cell.trim_start_matches('\'').starts_with(FORMULA)
}

fn escape(cell: &str) -> String {
    if is_formula(cell) { format!("'{cell}") } else { cell.to_owned() }
}

fn unescape(cell: &str) -> &str {
    cell.strip_prefix('\'').filter(|rest| is_formula(rest)).unwrap_or(cell)
}

/// Reads the rows of a sheet, each with the number of its first line.
pub(super) fn read_sheet(path: &Path) -> Result<Vec<(u64, SheetRow)>, SheetError> {
    let shown = path.display();
    let bytes = std::fs::read(path).map_err(|source| SheetError::Io {
        action: "read",
        path: path.to_owned(),
        source,
    })?;
    let text = std::str::from_utf8(&bytes).map_err(|error| {
        let line = 1 + bytes[..error.valid_up_to()].iter().filter(|&&byte| byte == b'\n').count();
        SheetError::InvalidSheet(format!(
            "{shown}:{line}: not UTF-8; a spreadsheet saves it as “CSV UTF-8”"
        ))
    })?;
    let text = text.trim_start_matches(BYTE_ORDER_MARK);
    let invalid_csv = |error: csv::Error| {
        SheetError::InvalidSheet(format!("cannot read the sheet {shown}: {error}"))
    };
    let mut reader = csv::ReaderBuilder::new()
        .delimiter(separator(text))
        .flexible(true) // spreadsheets omit empty cells at the end of a row
        .from_reader(text.as_bytes());
    let columns = SheetColumns::find(path, reader.headers().map_err(invalid_csv)?)?;

    let mut rows = Vec::new();
    let mut bad_labels = Vec::new();
    let mut lines: HashMap<String, u64> = HashMap::new();
    for record in reader.records() {
        let record = record.map_err(invalid_csv)?;
        if record.iter().all(|cell| cell.trim().is_empty()) {
            continue;
        }
        let line = record.position().map_or(0, csv::Position::line);
        let cells = Cells { path, line, columns: &columns, record: &record };
        let row = cells.parse_row(&mut bad_labels)?;
        if let Some(before) = lines.insert(row.id.clone(), line) {
            return Err(SheetError::InvalidSheet(format!(
                "{shown}:{line}: the sentence {} is in line {before} too; one person labels it once",
                row.id
            )));
        }
        rows.push((line, row));
    }
    match describe(&bad_labels) {
        None => Ok(rows),
        Some(problem) => Err(SheetError::InvalidSheet(format!("{shown}:{problem}"))),
    }
}

/// Returns the separator that is most frequent in the header.
fn separator(text: &str) -> u8 {
    let header = text.lines().next().unwrap_or_default();
    SEPARATORS
        .into_iter()
        .rev() // of equally frequent ones the first: the last maximum is returned
        .max_by_key(|separator| header.bytes().filter(|byte| byte == separator).count())
        .unwrap_or(b',')
}

/// Index of each column of a sheet.
struct SheetColumns(HashMap<&'static str, usize>);

impl SheetColumns {
    fn find(path: &Path, header: &StringRecord) -> Result<Self, SheetError> {
        let names: Vec<String> = header.iter().map(|name| name.trim().to_lowercase()).collect();
        let mut columns = HashMap::new();
        for column in COLUMNS {
            if let Some(index) = names.iter().position(|name| name == column) {
                columns.insert(column, index);
            } else if !OPTIONAL.contains(&column) {
                return Err(SheetError::InvalidSheet(format!(
                    "{} has no column {column}; `calibrate draw` writes {}",
                    path.display(),
                    COLUMNS.join(", ")
                )));
            }
        }
        Ok(Self(columns))
    }
}

/// Cells of one row.
struct Cells<'a> {
    path: &'a Path,
    line: u64,
    columns: &'a SheetColumns,
    record: &'a StringRecord,
}

impl Cells<'_> {
    /// Parses the row. A bad label is added to `bad_labels`, so that all of them are reported
    /// together.
    fn parse_row(&self, bad_labels: &mut Vec<BadLabel>) -> Result<SheetRow, SheetError> {
        let text = |column| self.cell(column).to_owned();
        let bucket: CountBucket = self.parse("bucket")?;
        let count: u64 = self.parse("count")?;
        if !bucket.contains(count) {
            return Err(self.error("count", format!("the bucket of its row is {bucket}")));
        }
        let mut label = None;
        let label_cell = self.cell("label").trim();
        if !label_cell.is_empty() {
            match label_cell.parse() {
                Ok(parsed) => label = Some(parsed),
                Err(()) => {
                    bad_labels.push(BadLabel { line: self.line, text: label_cell.to_owned() });
                }
            }
        }
        let id = self.cell("id").trim().to_owned();
        for (column, cell) in [("id", id.as_str()), ("sentence", self.cell("sentence"))] {
            if cell.trim().is_empty() {
                return Err(self.error(column, "every row has its own".to_owned()));
            }
        }
        Ok(SheetRow {
            id,
            bucket,
            count,
            question: text("question"),
            sentence: text("sentence"),
            triplet: Triplet { head: text("head"), relation: text("relation"), tail: text("tail") },
            query: text("query"),
            label,
            note: text("note"),
        })
    }

    /// Returns a cell; the empty text if the row or the sheet lacks it.
    fn cell(&self, column: &str) -> &str {
        let cell = self.columns.0.get(column).and_then(|&index| self.record.get(index));
        unescape(cell.unwrap_or_default())
    }

    fn parse<T: FromStr<Err: std::fmt::Display>>(
        &self,
        column: &'static str,
    ) -> Result<T, SheetError> {
        let result = self.cell(column).trim().parse::<T>();
        result.map_err(|error| self.error(column, format!("{error}; leave it as it was drawn")))
    }

    fn error(&self, column: &'static str, expected: String) -> SheetError {
        SheetError::InvalidSheet(format!(
            "{}:{}: {column} is {:?}; {expected}",
            self.path.display(),
            self.line,
            self.cell(column)
        ))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::super::annotated::read_sheets;
    use super::*;

    /// Returns a row with this count, in the paper's buckets.
    pub fn row(n: usize, count: u64, label: Option<TruthLabel>) -> SheetRow {
        let bucket = super::super::CountBuckets::default()
            .iter()
            .find(|bucket| bucket.contains(count))
            .unwrap();
        SheetRow {
            id: format!("s{n}"),
            bucket,
            count,
            question: format!("q{}", n / 2),
            sentence: format!("Sentence {n}."),
            triplet: Triplet {
                head: "Rome".into(),
                relation: "is in".into(),
                tail: "Italy".into(),
            },
            query: "Rome AND Italy".into(),
            label,
            note: String::new(),
        }
    }

    fn sheet(text: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sheet.csv");
        std::fs::write(&path, text).unwrap();
        (folder, path)
    }

    fn rows_of(text: &str) -> Result<Vec<SheetRow>, SheetError> {
        let (_folder, path) = sheet(text);
        read_sheets(&[path]).map(|annotated| annotated.rows)
    }

    fn error_of(text: &str) -> String {
        rows_of(text).unwrap_err().to_string()
    }

    const HEADER: &str = "id,bucket,count,question,sentence,head,relation,tail,query,label,note\n";

    #[test]
    fn sheet_round_trips_without_overwriting() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sheet.csv");
        let mut rows = vec![
            row(1, 0, None),
            row(2, 3, Some(TruthLabel::Correct)),
            row(3, 99, Some(TruthLabel::Unclear)),
        ];
        rows[0].sentence = "=1+1 is\n\"two\", they say".into();
        rows[1].note = "'tis '=so".into();
        rows[2].question = "@home".into();
        write_sheet(&path, &rows).unwrap();
        assert_eq!(read_sheets(std::slice::from_ref(&path)).unwrap().rows, rows);
        let error = write_sheet(&path, &rows).unwrap_err().to_string();
        assert!(error.ends_with(" exists, and may hold labels; write to a new file"), "{error}");
        let written = std::fs::read_to_string(&path).unwrap();
        assert!(written.starts_with("\u{feff}id,bucket,count"), "{written}");
        assert!(
            written.contains(",\"'=1+1 is\n\"\"two\"\", they say\",") && written.contains("'@home"),
            "{written}"
        );
    }

    #[test]
    fn spreadsheet_exported_sheet_is_readable() {
        let rows = rows_of(
            "\u{feff}LABEL;Who;ID;Bucket;Count;Question;Sentence;Head;Relation;Tail\r\n\
             Correct;me;s1;1 to 4;3;q;\"A; b.\";A;is;b\r\n;;;;;;;;;\r\n I ;me;s2;0;0;q;C.;C;is;\r\n;me;s3;20 or more;20;q;D.\r\n",
        )
        .unwrap();
        let labels: Vec<_> = rows.iter().map(|row| row.label).collect();
        assert_eq!(labels, [Some(TruthLabel::Correct), Some(TruthLabel::Incorrect), None]);
        assert_eq!(
            (rows[0].sentence.as_str(), rows[0].triplet.tail.as_str(), rows[2].bucket.to),
            ("A; b.", "b", None)
        );
    }

    #[test]
    fn bad_labels_are_named_all_at_once() {
        let rows = "s1,0,0,q,A.,A,is,b,,corect,\ns2,0,0,q,\"B\nb.\",A,is,b,,correct,\ns3,0,0,q,C.,A,is,b,,yes,\n";
        let error = error_of(&format!("{HEADER}{rows}"));
        assert!(
            error.contains(
                "sheet.csv:2: \"corect\" is no label; write correct, incorrect or unclear"
            ),
            "{error}"
        );
        assert!(error.ends_with("; line 5: \"yes\""), "{error}");
    }

    #[test]
    fn damaged_sheet_cells_are_named() {
        let row_error = |row: &str| error_of(&format!("{HEADER}{row}"));
        assert!(row_error("s1,4-Jan,3,q,A.,A,is,b,,c,\n").contains(":2: bucket is \"4-Jan\""));
        assert!(
            row_error("s1,0,3,q,A.,A,is,b,,c,\n")
                .contains(":2: count is \"3\"; the bucket of its row is 0")
        );
        assert!(row_error("s1,1 to 4,3.0,q,A.,A,is,b,,c,\n").contains(":2: count is \"3.0\""));
        assert!(row_error(",0,0,q,A.,A,is,b,,c,\n").contains(":2: id is \"\""));
        let twice = "s1,0,0,q,A.,A,is,b,,c,\ns1,0,0,q,A.,A,is,b,,i,\n";
        assert!(row_error(twice).contains(":3: the sentence s1 is in line 2 too"));
        assert!(
            error_of("id,bucket\n")
                .contains("has no column count; `calibrate draw` writes id, bucket")
        );
        assert!(error_of("").contains("has no column id"));
        let (_folder, path) = sheet("");
        std::fs::write(&path, b"id\nM\xfcnchen").unwrap();
        let error = read_sheets(&[path]).unwrap_err().to_string();
        assert!(error.contains("sheet.csv:2: not UTF-8"), "{error}");
    }

    proptest! {
        #[test]
        fn escaped_cell_round_trips_and_is_no_formula(cell in "['=+@a\\-\t\r\n,;\"]{0,6}") {
            let written = escape(&cell);
            prop_assert!(!written.starts_with(FORMULA));
            prop_assert_eq!(unescape(&written), &cell);
        }

        #[test]
        fn sheet_text_round_trips(sentence in "[a-zé =+@'\\-\t\r\n,;\"]{0,12}[a-z]", note in "[a-z'=\r\n\",;]{0,6}") {
            let rows = [SheetRow { sentence, note, ..row(1, 3, None) }];
            prop_assert_eq!(rows_of(&to_csv(&rows)).unwrap(), rows);
        }
    }
}
