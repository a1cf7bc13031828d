//! The sheet that a person labels: CSV, as spreadsheets write and read it.
//!
//! A cell that a spreadsheet would take for a formula gets an apostrophe in front, which is taken
//! off when the sheet is read.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use corver_core::Triplet;
use csv::StringRecord;
use serde::Serialize;

use super::bucket::Bucket;
use super::label::Label;

/// A sentence to label.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The same for the same sentence in any sheet.
    pub id: String,
    /// Where the count lies.
    pub bucket: Bucket,
    /// How often head and tail occur together; a count that was enough may be larger.
    pub count: u64,
    /// What was asked.
    pub question: String,
    /// What is to be labelled.
    pub sentence: String,
    /// The fact that was counted.
    pub triplet: Triplet,
    /// The words that were counted.
    pub query: String,
    /// `None` until somebody gives one.
    pub label: Option<Label>,
    /// The person's own words, or whose label it is where no person gave it.
    pub note: String,
}

/// How the note begins where a model gave the label; its name comes next.
const MODEL: &str = "model: ";
/// Stands between that and what else is noted.
const NEXT: &str = "; ";

impl Row {
    /// The row with a model's label in place of its own; the note says so.
    #[must_use]
    pub fn labelled_by(&self, model: &str, label: Option<Label>) -> Self {
        let after_model = || self.note.split_once(NEXT).map_or("", |(_, own)| own);
        let own = if self.is_by_model() { after_model() } else { &self.note };
        let by = label.map(|_| format!("{MODEL}{model}"));
        let parts: Vec<&str> =
            by.as_deref().into_iter().chain([own]).filter(|part| !part.is_empty()).collect();
        Self { label, note: parts.join(NEXT), ..self.clone() }
    }

    pub(super) fn is_by_model(&self) -> bool {
        self.note.starts_with(MODEL)
    }
}

/// As they are written; they are read in any order and case, among others.
const COLUMNS: [&str; 11] = [
    "id", "bucket", "count", "question", "sentence", "head", "relation", "tail", "query", "label",
    "note",
];
/// Without these a sheet can be read.
const OPTIONAL: [&str; 2] = ["query", "note"];

/// A spreadsheet takes a cell that begins with one of these for a formula.
const FORMULA: [char; 10] = ['=', '+', '-', '@', '\t', '\r', '＝', '＋', '－', '＠'];
/// Spreadsheets know by it that a file is UTF-8.
const BYTE_ORDER_MARK: &str = "\u{feff}";
/// What spreadsheets separate cells with, by the user's language.
const SEPARATORS: [u8; 3] = [b',', b';', b'\t'];

/// Why a sheet cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SheetError {
    /// A sheet that cannot be read or written.
    #[error("cannot {action} the sheet {}: {source}", path.display())]
    Io {
        /// Verb of the call: "read" or "write".
        action: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
    /// A sheet that exists already, is no sheet, or has cells that cannot be right.
    #[error("{0}")]
    InvalidSheet(String),
}

fn told(labels: &[(u64, String)]) -> String {
    let [(line, label), others @ ..] = labels else { return String::new() };
    let others: String =
        others.iter().map(|(at, other)| format!("; line {at}: {other:?}")).collect();
    format!(
        "{line}: {label:?} is no label; write correct, incorrect or unclear, or c, i, u{others}"
    )
}

/// Writes a new sheet; it appears whole, or not at all.
///
/// # Errors
/// Where the file exists or cannot be written.
pub fn write_sheet(path: &Path, rows: &[Row]) -> Result<(), SheetError> {
    let write = |source| SheetError::Io { action: "write", path: path.to_owned(), source };
    let exists = || {
        let path = path.display();
        SheetError::InvalidSheet(format!("{path} exists, and may hold labels; write to a new file"))
    };
    if path.exists() {
        return Err(exists());
    }
    corver_files::create(path, as_csv(rows).as_bytes()).map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => exists(),
        _ => write(error),
    })
}

/// A sheet's text.
#[must_use]
pub fn as_csv(rows: &[Row]) -> String {
    let mut writer = csv::Writer::from_writer(BYTE_ORDER_MARK.as_bytes().to_vec());
    let in_memory = "a buffer takes everything";
    writer.write_record(COLUMNS).expect(in_memory);
    for Row { id, bucket, count, question, sentence, triplet, query, label, note } in rows {
        let (bucket, count) = (bucket.to_string(), count.to_string());
        let Triplet { head, relation, tail } = triplet;
        let label = label.map_or("", Label::word);
        let cells =
            [id, &bucket, &count, question, sentence, head, relation, tail, query, label, note];
        writer.write_record(cells.map(guarded)).expect(in_memory);
    }
    String::from_utf8(writer.into_inner().expect(in_memory)).expect("every cell is a text")
}

/// Whether a spreadsheet would take the cell for a formula, apostrophes in front aside.
fn is_formula(cell: &str) -> bool {
    cell.trim_start_matches('\'').starts_with(FORMULA)
}

fn guarded(cell: &str) -> String {
    if is_formula(cell) { format!("'{cell}") } else { cell.to_owned() }
}

fn unguarded(cell: &str) -> &str {
    cell.strip_prefix('\'').filter(|rest| is_formula(rest)).unwrap_or(cell)
}

/// A row, and the line that it begins in.
type Numbered = (u64, Row);

pub(super) fn read_sheet(path: &Path) -> Result<Vec<Numbered>, SheetError> {
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
    let header = text.lines().next().unwrap_or_default();
    let times = |separator: u8| header.bytes().filter(|&byte| byte == separator).count();
    let separator =
        SEPARATORS.into_iter().rev().max_by_key(|&separator| times(separator)).unwrap_or(b',');
    let broken = |error: csv::Error| {
        SheetError::InvalidSheet(format!("cannot read the sheet {shown}: {error}"))
    };
    let mut reader =
        csv::ReaderBuilder::new().delimiter(separator).flexible(true).from_reader(text.as_bytes());
    let columns = Columns::find(path, reader.headers().map_err(broken)?)?;

    let (mut rows, mut wrong) = (Vec::new(), Vec::new());
    let mut lines: HashMap<String, u64> = HashMap::new();
    for record in reader.records() {
        let record = record.map_err(broken)?;
        if record.iter().all(|cell| cell.trim().is_empty()) {
            continue;
        }
        let line = record.position().map_or(0, csv::Position::line);
        let cells = Cells { path, line, columns: &columns, record: &record };
        let row = cells.row(&mut wrong)?;
        if let Some(before) = lines.insert(row.id.clone(), line) {
            return Err(SheetError::InvalidSheet(format!(
                "{shown}:{line}: the sentence {} stands in line {before} too; one person labels it \
                 once",
                row.id
            )));
        }
        rows.push((line, row));
    }
    if wrong.is_empty() {
        Ok(rows)
    } else {
        Err(SheetError::InvalidSheet(format!("{shown}:{}", told(&wrong))))
    }
}

/// Where each column stands.
struct Columns(HashMap<&'static str, usize>);

impl Columns {
    fn find(path: &Path, header: &StringRecord) -> Result<Self, SheetError> {
        let names: Vec<String> = header.iter().map(|name| name.trim().to_lowercase()).collect();
        let place =
            |column| names.iter().position(|name| name == column).map(|place| (column, place));
        let found: HashMap<&str, usize> = COLUMNS.into_iter().filter_map(place).collect();
        let is_missing = |column: &&str| !found.contains_key(column) && !OPTIONAL.contains(column);
        match COLUMNS.into_iter().find(is_missing) {
            Some(column) => Err(SheetError::InvalidSheet(format!(
                "{} has no column {column}; `calibrate draw` writes {}",
                path.display(),
                COLUMNS.join(", ")
            ))),
            None => Ok(Self(found)),
        }
    }
}

/// One row as it stands in the file.
struct Cells<'a> {
    path: &'a Path,
    line: u64,
    columns: &'a Columns,
    record: &'a StringRecord,
}

impl Cells<'_> {
    /// The row; a label that is none goes to `wrong`, so that all of them are told at once.
    fn row(&self, wrong: &mut Vec<(u64, String)>) -> Result<Row, SheetError> {
        let text = |column| self.cell(column).to_owned();
        let (bucket, count): (Bucket, u64) = (self.parsed("bucket")?, self.parsed("count")?);
        if !bucket.holds(count) {
            return Err(self.wrong("count", format!("the bucket of its row is {bucket}")));
        }
        let label = match self.cell("label").trim() {
            "" => None,
            written => {
                written.parse().map_err(|()| wrong.push((self.line, written.to_owned()))).ok()
            }
        };
        let id = self.cell("id").trim().to_owned();
        for (column, cell) in [("id", id.as_str()), ("sentence", self.cell("sentence"))] {
            if cell.trim().is_empty() {
                return Err(self.wrong(column, "every row has its own".to_owned()));
            }
        }
        Ok(Row {
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

    /// Spreadsheets leave out empty cells at a row's end.
    fn cell(&self, column: &str) -> &str {
        let cell = self.columns.0.get(column).and_then(|&place| self.record.get(place));
        unguarded(cell.unwrap_or_default())
    }

    fn parsed<T: FromStr<Err: std::fmt::Display>>(
        &self,
        column: &'static str,
    ) -> Result<T, SheetError> {
        let parsed = self.cell(column).trim().parse::<T>();
        parsed.map_err(|error| self.wrong(column, format!("{error}; leave it as it was drawn")))
    }

    fn wrong(&self, column: &'static str, expected: String) -> SheetError {
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

    /// A row of this count in the paper's buckets.
    pub fn row(n: usize, count: u64, label: Option<Label>) -> Row {
        let bucket =
            super::super::Buckets::default().iter().find(|bucket| bucket.holds(count)).unwrap();
        Row {
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

    fn rows_of(text: &str) -> Result<Vec<Row>, SheetError> {
        let (_folder, path) = sheet(text);
        read_sheets(&[path]).map(|annotated| annotated.rows)
    }

    fn told(text: &str) -> String {
        rows_of(text).unwrap_err().to_string()
    }

    const HEADER: &str = "id,bucket,count,question,sentence,head,relation,tail,query,label,note\n";

    #[test]
    fn sheet_round_trips_without_overwriting() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sheet.csv");
        let mut rows = vec![
            row(1, 0, None),
            row(2, 3, Some(Label::Correct)),
            row(3, 99, Some(Label::Unclear)),
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
        assert_eq!(labels, [Some(Label::Correct), Some(Label::Incorrect), None]);
        assert_eq!(
            (rows[0].sentence.as_str(), rows[0].triplet.tail.as_str(), rows[2].bucket.to),
            ("A; b.", "b", None)
        );
    }

    #[test]
    fn bad_labels_are_named_all_at_once() {
        let rows = "s1,0,0,q,A.,A,is,b,,corect,\ns2,0,0,q,\"B\nb.\",A,is,b,,correct,\ns3,0,0,q,C.,A,is,b,,yes,\n";
        let told = told(&format!("{HEADER}{rows}"));
        assert!(
            told.contains(
                "sheet.csv:2: \"corect\" is no label; write correct, incorrect or unclear"
            ),
            "{told}"
        );
        assert!(told.ends_with("; line 5: \"yes\""), "{told}");
    }

    #[test]
    fn damaged_sheet_cells_are_named() {
        let told_of = |row: &str| told(&format!("{HEADER}{row}"));
        assert!(told_of("s1,4-Jan,3,q,A.,A,is,b,,c,\n").contains(":2: bucket is \"4-Jan\""));
        assert!(
            told_of("s1,0,3,q,A.,A,is,b,,c,\n")
                .contains(":2: count is \"3\"; the bucket of its row is 0")
        );
        assert!(told_of("s1,1 to 4,3.0,q,A.,A,is,b,,c,\n").contains(":2: count is \"3.0\""));
        assert!(told_of(",0,0,q,A.,A,is,b,,c,\n").contains(":2: id is \"\""));
        let twice = "s1,0,0,q,A.,A,is,b,,c,\ns1,0,0,q,A.,A,is,b,,i,\n";
        assert!(told_of(twice).contains(":3: the sentence s1 stands in line 2 too"));
        assert!(
            told("id,bucket\n").contains("has no column count; `calibrate draw` writes id, bucket")
        );
        assert!(told("").contains("has no column id"));
        let (_folder, path) = sheet("");
        std::fs::write(&path, b"id\nM\xfcnchen").unwrap();
        let told = read_sheets(&[path]).unwrap_err().to_string();
        assert!(told.contains("sheet.csv:2: not UTF-8"), "{told}");
    }

    proptest! {
        #[test]
        fn guarded_cell_round_trips_and_is_no_formula(cell in "['=+@a\\-\t\r\n,;\"]{0,6}") {
            let written = guarded(&cell);
            prop_assert!(!written.starts_with(FORMULA));
            prop_assert_eq!(unguarded(&written), &cell);
        }

        #[test]
        fn sheet_text_round_trips(sentence in "[a-zé =+@'\\-\t\r\n,;\"]{0,12}[a-z]", note in "[a-z'=\r\n\",;]{0,6}") {
            let rows = [Row { sentence, note, ..row(1, 3, None) }];
            prop_assert_eq!(rows_of(&as_csv(&rows)).unwrap(), rows);
        }
    }
}
