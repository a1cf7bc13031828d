//! Documents in the text format of WikiExtractor: a line `<doc id="…" url="…" title="…">`, the text,
//! and a line `</doc>`. Its text and titles are escaped for HTML, also in its JSON lines.

use std::io::BufRead;
use std::path::{Path, PathBuf};

use crate::build::metadata::ParsedDocument;
use crate::build::text_file::{TextFile, read_error};
use crate::error::{Error, Result};
use crate::python_json::{PythonObject, write_string};

const END: &str = "</doc>";

/// An output file of WikiExtractor.
pub(super) struct WikiFile {
    path: PathBuf,
    text: TextFile,
    /// Number of lines read.
    read_lines: u64,
}

impl WikiFile {
    pub(super) fn new(path: &Path, text: TextFile) -> Self {
        Self { path: path.to_owned(), text, read_lines: 0 }
    }

    /// Reads the next document; `None` after the last.
    pub(super) fn next_document(&mut self) -> Result<Option<ParsedDocument>> {
        let mut tag = String::new();
        while tag.trim().is_empty() {
            // WikiExtractor leaves an empty line between documents.
            let Some(line) = self.next_line()? else { return Ok(None) };
            tag = line;
        }
        let Some(other_fields) = attributes(tag.trim_end()) else {
            return Err(self.line_error("expected <doc id=\"…\" url=\"…\" title=\"…\">"));
        };
        let mut text = String::new();
        while let Some(line) = self.next_line()? {
            if line.trim_end() == END {
                let text = unescape(text.trim());
                return Ok(Some(ParsedDocument { text, other_fields }));
            }
            text.push_str(&line);
        }
        Err(self.line_error("the file ends before </doc>"))
    }

    /// Skips documents.
    pub(super) fn skip(&mut self, documents: u64) -> Result<()> {
        for _ in 0..documents {
            self.next_document()?;
        }
        Ok(())
    }

    /// Returns the number of bytes read from the file as stored.
    pub(super) fn read_bytes(&self) -> u64 {
        self.text.read_bytes()
    }

    /// Reads the next line; `None` at the end of the file.
    fn next_line(&mut self) -> Result<Option<String>> {
        let mut line = String::new();
        let read = self.text.reader.read_line(&mut line);
        self.read_lines += 1;
        match read {
            Ok(0) => Ok(None),
            Ok(_) => Ok(Some(line)),
            Err(error) => Err(read_error(&self.path, &error)),
        }
    }

    fn line_error(&self, problem: &str) -> Error {
        Error::line(&self.path, self.read_lines, problem)
    }
}

/// Returns a text without WikiExtractor's escapes, and without the dump's, which it leaves in
/// titles. A file that was written without `--html-safe` has hardly one.
pub(super) fn unescape(text: &str) -> String {
    // `&amp;` last: `&amp;lt;` is `&lt;`.
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&")
}

/// Returns the attributes of a tag as a JSON object; `None` if it is not a document's tag.
/// The title, which comes last, may have quotation marks that are not escaped.
fn attributes(tag: &str) -> Option<String> {
    let mut rest = tag.strip_prefix("<doc ")?.strip_suffix("\">")?;
    let mut object = PythonObject::default();
    loop {
        let (name, quoted) = rest.split_once("=\"")?;
        let end = if name == "title" { None } else { quoted.split_once("\" ") };
        let mut python_name = String::new();
        write_string(name, &mut python_name);
        let mut value = String::new();
        write_string(&unescape(end.map_or(quoted, |(text, _)| text)), &mut value);
        object.insert(python_name, value);
        match end {
            Some((_, after)) => rest = after,
            None => break,
        }
    }
    let mut json = String::new();
    object.write(&mut json);
    Some(json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_become_fields() {
        let tag =
            r#"<doc id="12" url="https://en.wikipedia.org/wiki?curid=12" title="The "A" team">"#;
        let fields = r#"{"id": "12", "url": "https://en.wikipedia.org/wiki?curid=12", "title": "The \"A\" team"}"#;
        assert_eq!(attributes(tag).as_deref(), Some(fields));
        let escaped = r#"<doc title="A &amp;amp; B &lt;C&gt;">"#;
        assert_eq!(attributes(escaped).as_deref(), Some(r#"{"title": "A &amp; B <C>"}"#));
        assert_eq!(attributes(r#"<doc id="1">"#).as_deref(), Some(r#"{"id": "1"}"#));
        for tag in ["", "text", "<doc>", "<doc id>", "<doc id=1>", "<docs id=\"1\">"] {
            assert_eq!(attributes(tag), None, "{tag}");
        }
    }
}
