//! The frame of every page, its style, and its file.

use std::path::Path;

use corver_core::text::escape_controls;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::ReportError;

/// Returns a self-contained page. Its security policy forbids scripts and requests. Control
/// characters of texts are escaped: HTML has no form for them, and they change how a page looks.
#[must_use]
pub fn page(title: &str, body: &Markup) -> String {
    frame(title, "default-src 'none'; style-src 'unsafe-inline'", None, body)
}

/// Returns a page for a local server, with a script from `script`. The page may send requests to the
/// same server only.
#[must_use]
pub fn page_with_script(title: &str, script: &str, body: &Markup) -> String {
    let policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'self'; \
                  connect-src 'self'";
    frame(title, policy, Some(script), body)
}

fn frame(title: &str, policy: &str, script: Option<&str>, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content=(policy);
                title { (title) }
                style { (PreEscaped(include_str!("style.css"))) }
                @if let Some(script) = script { script src=(script) defer {} }
            }
            body { main { (body) footer { "CorVer " (env!("CARGO_PKG_VERSION")) } } }
        }
    };
    escape_page(&page.into_string())
}

/// Escapes the control characters of a page, or of a part of one.
pub(crate) fn escape_page(html: &str) -> String {
    escape_controls(html, &['\t', '\n', '\r'])
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
pub fn table(header: &[impl AsRef<str>], rows: &[Vec<String>]) -> Markup {
    html! {
        div.table {
            table {
                thead { tr { @for name in header { th { (name.as_ref()) } } } }
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
