//! Sheets that people label: CSV for spreadsheets.
//!
//! An apostrophe is written before text that a spreadsheet would evaluate as a formula, and removed
//! when the sheet is read. Spreadsheets also replace cells: MARCH1 by a date, 1/2 by 02. Jan. So the
//! cells of a row are compared with each other.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use corver_core::Triplet;
use corver_files::{QuoteCheck, QuoteProblem};
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

    /// Returns a word of the query that the triplet does not have.
    fn foreign_query_word(&self) -> Option<&str> {
        let Triplet { head, relation, tail } = &self.triplet;
        let fact = format!("{head} {relation} {tail}").to_lowercase();
        let words_of_fact: Vec<&str> = fact.split(|c: char| !c.is_alphanumeric()).collect();
        for word in self.query.split(|c: char| !c.is_alphanumeric()) {
            let is_operator = matches!(word, "" | "AND" | "OR");
            if !is_operator && !words_of_fact.contains(&word.to_lowercase().as_str()) {
                return Some(word);
            }
        }
        None
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
/// Hexadecimal digits of an id. 48 bits: a collision among a million sentences is unlikely.
const ID_DIGITS: usize = 12;
/// Start of the line by which a spreadsheet notes its separator: `sep=;`.
const SEPARATOR_NOTE: &str = "sep=";

/// First characters of a formula.
const FORMULA: [char; 8] = ['=', '+', '-', '@', '＝', '＋', '－', '＠'];
/// Characters after which a spreadsheet may begin another cell: `;` separates cells in many
/// languages, also within quotes that stand after a comma.
const CELL_ENDS: [char; 4] = [';', '\t', '\r', '\n'];
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

/// Returns the id of a sentence, the same in any sheet. It begins with a letter, since a spreadsheet
/// would reformat a number.
pub(super) fn sentence_id(sentence: &str) -> String {
    format!("s{}", &blake3::hash(sentence.as_bytes()).to_hex()[..ID_DIGITS])
}

/// True if a spreadsheet would evaluate the text as a formula, apart from apostrophes and invisible
/// characters in front.
fn is_formula(text: &str) -> bool {
    text.trim_start_matches(|c: char| c == '\'' || is_blank(c)).starts_with(FORMULA)
}

/// True if the character is white space or invisible.
fn is_blank(c: char) -> bool {
    c.is_whitespace()
        || c.is_control()
        || matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{2064}' | '\u{feff}')
}

/// Returns the cell with an apostrophe in front of each formula, and of a blank at the start that a
/// spreadsheet drops.
fn escape(cell: &str) -> String {
    let mut escaped = String::with_capacity(cell.len() + 1);
    let mut may_begin = true;
    for (index, c) in cell.char_indices() {
        if may_begin && needs_apostrophe(&cell[index..], index) {
            escaped.push('\'');
        }
        escaped.push(c);
        may_begin = CELL_ENDS.contains(&c);
    }
    escaped
}

/// Returns the cell without the apostrophes of [`escape`].
fn unescape(cell: &str) -> String {
    let mut unescaped = String::with_capacity(cell.len());
    let mut may_begin = true;
    for (index, c) in cell.char_indices() {
        if may_begin && c == '\'' && needs_apostrophe(&cell[index + 1..], index) {
            may_begin = false;
            continue;
        }
        unescaped.push(c);
        may_begin = CELL_ENDS.contains(&c);
    }
    unescaped
}

/// True if the text at this index of a cell gets an apostrophe.
fn needs_apostrophe(text: &str, index: usize) -> bool {
    let is_first_blank = index == 0 && text.trim_start_matches('\'').starts_with(is_blank);
    is_first_blank || is_formula(text)
}

/// Reads the rows of a sheet, each with the number of its first line.
pub(super) fn read_sheet(path: &Path) -> Result<Vec<(u64, SheetRow)>, SheetError> {
    let shown = path.display();
    let text = corver_files::read_text(path).map_err(|source| SheetError::Io {
        action: "read",
        path: path.to_owned(),
        source,
    })?;
    let invalid_csv = |error: csv::Error| {
        SheetError::InvalidSheet(format!("cannot read the sheet {shown}: {error}"))
    };
    let noted = noted_separator(&text);
    let (separator, table, lines_before) = match noted {
        Some(separator) => (separator, text.split_once('\n').map_or("", |(_, rest)| rest), 1),
        None => (frequent_separator(&text), text.as_str(), 0),
    };
    let mut quotes = QuoteCheck::new(separator);
    quotes.read(table.as_bytes());
    quotes.end();
    if let Some(QuoteProblem { row, problem }) = quotes.problem() {
        let position =
            if row == 0 { "the header".to_owned() } else { format!("row {row} after the header") };
        return Err(SheetError::InvalidSheet(format!(
            "cannot read the sheet {shown}: {position}: {problem}"
        )));
    }
    let mut reader = csv::ReaderBuilder::new()
        .delimiter(separator)
        .flexible(true) // spreadsheets omit empty cells at the end of a row
        .from_reader(table.as_bytes());
    let columns = SheetColumns::find(path, reader.headers().map_err(invalid_csv)?)?;

    let mut rows = Vec::new();
    let mut bad_labels = Vec::new();
    let mut lines: HashMap<String, u64> = HashMap::new();
    for record in reader.records() {
        let record = record.map_err(invalid_csv)?;
        if record.iter().all(|cell| cell.trim().is_empty()) {
            continue;
        }
        let line = lines_before + record.position().map_or(0, csv::Position::line);
        let cells = Cells { path, line, columns: &columns, record: &record };
        let row = cells.parse_row(&mut bad_labels)?;
        cells.compare_columns(&row)?;
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

/// Returns the separator of a first line `sep=;`; `None` if the first line is another.
fn noted_separator(text: &str) -> Option<u8> {
    let first_line = text.lines().next()?.trim().trim_matches('"');
    let (note, separator) = first_line.split_at_checked(SEPARATOR_NOTE.len())?;
    match separator.as_bytes() {
        [separator] if note.eq_ignore_ascii_case(SEPARATOR_NOTE) => Some(*separator),
        // `trim` removes a tab.
        [] if note.eq_ignore_ascii_case(SEPARATOR_NOTE) => Some(b'\t'),
        _ => None,
    }
}

/// Returns the separator that is most frequent in the header.
fn frequent_separator(text: &str) -> u8 {
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
        let text = |column| self.cell(column);
        let bucket: CountBucket = self.parse("bucket")?;
        let count: u64 = self.parse("count")?;
        if !bucket.contains(count) {
            return Err(self.error("count", format!("the bucket of its row is {bucket}")));
        }
        let mut label = None;
        let label_text = self.cell("label");
        let label_cell = label_text.trim();
        if !label_cell.is_empty() {
            match label_cell.parse() {
                Ok(parsed) => label = Some(parsed),
                Err(()) => {
                    bad_labels.push(BadLabel { line: self.line, text: label_cell.to_owned() });
                }
            }
        }
        let id = self.cell("id").trim().to_owned();
        for (column, cell) in [("id", &id), ("sentence", &text("sentence"))] {
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

    /// Compares the sentence with the id, and the fact with the query, which has words of the fact.
    fn compare_columns(&self, row: &SheetRow) -> Result<(), SheetError> {
        let is_drawn_id = row.id.len() == ID_DIGITS + 1
            && row.id.starts_with('s')
            && row.id[1..].bytes().all(|byte| byte.is_ascii_hexdigit());
        let sentence_differs = is_drawn_id
            && row.id != sentence_id(&row.sentence)
            && row.id != sentence_id(&row.sentence.replace("\r\n", "\n"));
        let difference = if sentence_differs {
            format!("the sentence {:?} has another id than {}", row.sentence, row.id)
        } else if let Some(word) = row.foreign_query_word() {
            let Triplet { head, relation, tail } = &row.triplet;
            format!(
                "the query has {word:?}, but head {head:?}, relation {relation:?} and tail {tail:?} \
                 have not"
            )
        } else {
            return Ok(());
        };
        Err(SheetError::InvalidSheet(format!(
            "{}:{}: {difference}; a spreadsheet may have replaced a cell, such as MARCH1 by a date: \
             restore it, import the columns as text, and edit only label and note; clear the query \
             if the rule requests other words",
            self.path.display(),
            self.line
        )))
    }

    /// Returns a cell; the empty text if the row or the sheet lacks it.
    fn cell(&self, column: &str) -> String {
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

    /// Returns a row with this count, in the paper's buckets; each `n` has its own question.
    pub fn row(n: usize, count: u64, label: Option<TruthLabel>) -> SheetRow {
        let bucket = super::super::CountBuckets::default()
            .iter()
            .find(|bucket| bucket.contains(count))
            .unwrap();
        SheetRow {
            id: format!("s{n}"),
            bucket,
            count,
            question: format!("q{n}"),
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

    /// The cells of OWASP's page “CSV Injection”, with the separators of other languages.
    #[test]
    fn formula_anywhere_in_cell_is_guarded() {
        for (cell, written) in [
            ("=1+1", "'=1+1"),
            ("x;=1+1", "x;'=1+1"),
            ("x; \t=1+1", "x;' \t'=1+1"),
            ("\n=1+1", "'\n'=1+1"),
            ("\u{feff}=1+1", "'\u{feff}=1+1"),
            ("x\r\n@SUM(A1)", "x\r'\n'@SUM(A1)"),
            ("\tx", "'\tx"),
            ("x;'=1", "x;''=1"),
            ("1-2; x = 3", "1-2; x = 3"),
        ] {
            assert_eq!(escape(cell), written, "{cell:?}");
            assert_eq!(unescape(written), cell);
        }
    }

    #[test]
    fn separator_note_of_spreadsheet_is_read() {
        let row = "s1;0;0;q;A.;A;is;b;;c;";
        let header = HEADER.replace(',', ";");
        for note in ["sep=;\r\n", "\"sep=;\"\n", "SEP=;\n"] {
            let rows = rows_of(&format!("\u{feff}{note}{header}{row}\n")).unwrap();
            assert_eq!((rows.len(), rows[0].label), (1, Some(TruthLabel::Correct)));
        }
        let tabs = format!("sep=\t\n{HEADER}{row}").replace([',', ';'], "\t");
        assert_eq!(rows_of(&tabs).unwrap().len(), 1);
        let error = error_of(&format!("sep=;\n{header}s1;x;0;q;A.;A;is;b;;c;\n"));
        assert!(error.contains("sheet.csv:3: bucket is "), "{error}");
    }

    #[test]
    fn cell_that_spreadsheet_replaced_is_named() {
        let mut drawn = row(1, 3, Some(TruthLabel::Correct));
        drawn.sentence = "MARCH1 degrades\nubiquitin.".into();
        drawn.id = sentence_id(&drawn.sentence);
        drawn.triplet.head = "MARCH1".into();
        drawn.triplet.tail = "ubiquitin".into();
        drawn.query = "MARCH1 AND ubiquitin".into();
        let text = to_csv(std::slice::from_ref(&drawn));
        assert_eq!(rows_of(&text).unwrap(), [drawn.clone()]);
        assert!(rows_of(&text.replace('\n', "\r\n")).is_ok(), "other line ends");

        for replaced in ["01-Mrz", "1-Mar", "45352"] {
            let error = error_of(&text.replace(",MARCH1,", &format!(",{replaced},")));
            let problem =
                format!("sheet.csv:2: the query has \"MARCH1\", but head {replaced:?}, relation ");
            assert!(error.contains(&problem), "{error}");
        }
        let error = error_of(&text.replace("degrades", "binds"));
        assert!(error.contains("ubiquitin.\" has another id than s"), "{error}");
        let cleared = text.replace("MARCH1 AND ubiquitin", "").replace(",MARCH1,", ",RNF1,");
        assert!(rows_of(&cleared).is_ok());
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
    fn rows_are_never_merged() {
        let begin = format!("{HEADER}s1,0,0,q,A.,A,is,b,,c,\n");
        let merged = format!("{begin}s2,0,0,q,B.,A,is,b,,c,\"x\ns3,0,0,q,C.,A,is,b,,c,\n");
        let not_closed = error_of(&merged);
        let problem = "sheet.csv: row 2 after the header: a field that begins with a quote has no";
        assert!(not_closed.contains(problem), "{not_closed}");
        let text_after = error_of(&format!("{begin}s2,0,0,q,B.,A,is,b,,c,\"x\" y\n"));
        assert!(text_after.contains(": text follows a closing quote"), "{text_after}");
        let in_header = error_of("id,\"bucket\n");
        let of_header = "sheet.csv: the header: a field that begins with a quote has no";
        assert!(in_header.contains(of_header), "{in_header}");
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
        assert!(error.contains("sheet.csv: line 2 is not UTF-8"), "{error}");
    }

    proptest! {
        #[test]
        fn escaped_cell_round_trips_and_is_no_formula(
            cell in "['=+@a\\-\t\r\n,; \"\u{feff}\u{200b}]{0,7}"
        ) {
            let written = escape(&cell);
            for part in written.split(CELL_ENDS) {
                let visible = part.trim_start_matches(is_blank);
                prop_assert!(!visible.starts_with(FORMULA), "{written:?}");
            }
            prop_assert!(!written.starts_with(is_blank));
            prop_assert_eq!(unescape(&written), cell);
        }

        #[test]
        fn sheet_text_round_trips(sentence in "[a-zé =+@'\\-\t\r\n,;\"]{0,12}[a-z]", note in "[a-z'=\r\n\",;]{0,6}") {
            let rows = [SheetRow { sentence, note, ..row(1, 3, None) }];
            prop_assert_eq!(rows_of(&to_csv(&rows)).unwrap(), rows);
        }
    }
}
