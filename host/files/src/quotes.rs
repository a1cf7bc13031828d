//! Check of the quotes of users' tables.

/// A check of the quotes of a table, which is read in parts of any size.
///
/// Readers of CSV take the end of a file for a closing quote, and text after a closing quote for
/// the rest of the field. So they may merge rows without an error.
#[derive(Debug)]
pub struct QuoteCheck {
    separator: u8,
    place: Place,
    /// Number of rows before the current one. An empty line is no row.
    rows: u64,
    /// True if the current row has no byte yet.
    is_row_empty: bool,
    problem: Option<QuoteProblem>,
}

/// The first row of a table whose quotes do not match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuoteProblem {
    /// Number of the row; 0 for the header.
    pub row: u64,
    /// Message with the fault and its remedy.
    pub problem: &'static str,
}

/// The place of the next byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    FieldStart,
    /// In a field that does not begin with a quote, where quotes are text.
    Field,
    /// Between the quotes of a field.
    Quotes,
    /// After a quote that closes a field, or that is the first of two.
    AfterQuote,
}

const NOT_CLOSED: &str = "a field that begins with a quote has no closing quote, so it holds all \
                          rows after it; the file may be incomplete";
const TEXT_AFTER_QUOTE: &str = "text follows a closing quote, so rows may be merged; write a quote \
                                in a field as two";

impl QuoteCheck {
    /// Creates a check of a table whose fields have this separator.
    #[must_use]
    pub fn new(separator: u8) -> Self {
        Self { separator, place: Place::FieldStart, rows: 0, is_row_empty: true, problem: None }
    }

    /// Reads the next bytes.
    pub fn read(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            let is_line_end = byte == b'\n' || byte == b'\r';
            self.place = match (self.place, byte) {
                (Place::FieldStart | Place::AfterQuote, b'"') => Place::Quotes,
                (Place::Quotes, b'"') => Place::AfterQuote,
                (Place::Quotes, _) => Place::Quotes,
                _ if is_line_end || byte == self.separator => Place::FieldStart,
                (Place::AfterQuote, _) => {
                    self.note(TEXT_AFTER_QUOTE);
                    Place::Field
                }
                _ => Place::Field,
            };
            let is_row_end = is_line_end && self.place == Place::FieldStart;
            if is_row_end && !self.is_row_empty {
                self.rows += 1;
            }
            self.is_row_empty = is_row_end;
        }
    }

    /// Checks that no field is open at the end of the table.
    pub fn end(&mut self) {
        if self.place == Place::Quotes {
            self.note(NOT_CLOSED);
        }
    }

    /// Returns the first problem so far; `None` if there is none.
    #[must_use]
    pub fn problem(&self) -> Option<QuoteProblem> {
        self.problem
    }

    fn note(&mut self, problem: &'static str) {
        if self.problem.is_none() {
            self.problem = Some(QuoteProblem { row: self.rows, problem });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_row_with_a_problem_is_found() {
        for (table, expected) in [
            ("", None),
            ("id,text\n1,5\" disk\n2,\"x\"", None),
            ("text\r\n\"\"\r\n\"a \"\"b\"\"\r\n, c\"\r\n", None),
            ("\"id,text\n", Some((0, NOT_CLOSED))),
            ("id\r\n\r\n\"a\"\r\n\"b\r\n", Some((2, NOT_CLOSED))),
            ("id\n\"a\" b\n\"c", Some((1, TEXT_AFTER_QUOTE))),
            ("id\n\"a\" \n", Some((1, TEXT_AFTER_QUOTE))),
        ] {
            for size in [1, 3, 100] {
                let mut check = QuoteCheck::new(b',');
                for part in table.as_bytes().chunks(size) {
                    check.read(part);
                }
                check.end();
                let found = check.problem().map(|found| (found.row, found.problem));
                assert_eq!(found, expected, "{table:?}");
            }
        }
    }
}
