//! The frame of every page, its style, and its file.

use std::path::Path;

use corver_core::text::escape_controls;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::ReportError;

/// Returns a self-contained page. Its security policy forbids scripts and requests. Control
/// characters of texts are escaped: HTML has no form for them, and they change how a page looks.
#[must_use]
pub fn page(title: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta
                    http-equiv="Content-Security-Policy"
                    content="default-src 'none'; style-src 'unsafe-inline'";
                title { (title) }
                style { (PreEscaped(include_str!("style.css"))) }
            }
            body { main { (body) footer { "CorVer " (env!("CARGO_PKG_VERSION")) } } }
        }
    };
    escape_controls(&page.into_string(), &['\t', '\n', '\r'])
}

/// Writes a page atomically.
///
/// # Errors
/// Fails if the file cannot be written.
pub fn save(path: &Path, page: &str) -> Result<(), ReportError> {
    corver_files::replace(path, page.as_bytes()).map_err(|source| ReportError::Io {
        action: "write",
        path: path.to_owned(),
        source,
    })
}

/// Returns a table of figures: the first column names the row, the others are right-aligned.
#[must_use]
pub fn table(header: &[&str], rows: &[Vec<String>]) -> Markup {
    html! {
        div.table {
            table {
                thead { tr { @for name in header { th { (name) } } } }
                tbody { @for row in rows { tr { @for cell in row { td { (cell) } } } } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_escapes_input_and_loads_no_resources() {
        let hidden = page("\0\x1b[2J\u{202e}", &table(&["a\nb"], &[vec!["\u{2066}".into()]]));
        assert!(hidden.contains(r"<title>\u0000\u001b[2J\u202e</title>"), "{hidden}");
        assert!(
            hidden.contains("<th>a\nb</th>") && hidden.contains(r"<td>\u2066</td>"),
            "{hidden}"
        );

        let page = page("<script>alert(1)</script>", &table(&["<i>"], &[vec!["\"&'".into()]]));
        assert!(!page.contains("<script") && !page.contains("<i>"), "{page}");
        for request in ["src=", "href=", "url(", "@import", "http://", "https://"] {
            assert!(!page.contains(request), "{request}");
        }
    }

    #[test]
    fn unwritable_page_error_names_path() {
        let folder = tempfile::tempdir().unwrap();
        let error = save(&folder.path().join("missing/report.html"), "").unwrap_err().to_string();
        assert!(error.contains("missing/report.html"), "{error}");
        save(&folder.path().join("report.html"), "x").unwrap();
        assert_eq!(std::fs::read_to_string(folder.path().join("report.html")).unwrap(), "x");
    }
}
