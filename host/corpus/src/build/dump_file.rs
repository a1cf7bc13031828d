//! Articles of a MediaWiki dump (`pages-articles.xml.bz2`), as text without markup.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use wikrs::dump::{Page, Pages};
use wikrs::parser;

use crate::build::metadata::ParsedDocument;
use crate::build::text_file::TextFile;
use crate::error::{Error, Result};
use crate::python_json::{PythonObject, write_string};

/// Largest page, bytes. MediaWiki saves pages of at most 2 MiB.
const MAX_PAGE_BYTES: u64 = 32 << 20;
/// Name of markup that the library took for text.
const UNREAD: &str = "markup that remains in the text";
/// Last element of a dump.
const END: &[u8] = b"</mediawiki>";
/// Number of bytes at the end of the file in which it is looked for.
const LAST_BYTES: usize = 64;

/// An XML file of pages with one revision each. Articles are documents; redirects and pages of other
/// namespaces, such as talk and templates, are left out.
pub(super) struct DumpFile {
    path: PathBuf,
    pages: Pages<PageReader>,
    /// Bytes that the current page may still have.
    page_bytes_left: Arc<AtomicU64>,
    /// True if the last bytes that were read are the end of a dump.
    is_complete: Arc<AtomicBool>,
    read_bytes: Arc<AtomicU64>,
    articles: u64,
    /// Kind of markup that did not become text → number of articles with some.
    markup: BTreeMap<&'static str, u64>,
}

impl DumpFile {
    pub(super) fn new(path: &Path, text: TextFile) -> Self {
        let page_bytes_left = Arc::new(AtomicU64::new(0));
        let is_complete = Arc::new(AtomicBool::new(false));
        Self {
            path: path.to_owned(),
            read_bytes: text.counter(),
            pages: Pages::new(PageReader {
                text,
                page_bytes_left: page_bytes_left.clone(),
                last_bytes: Vec::new(),
                is_complete: is_complete.clone(),
            }),
            page_bytes_left,
            is_complete,
            articles: 0,
            markup: BTreeMap::new(),
        }
    }

    /// Reads the next article; `None` after the last.
    pub(super) fn next_document(&mut self) -> Result<Option<ParsedDocument>> {
        let Some(page) = self.next_article()? else {
            self.report();
            return Ok(None);
        };
        let parsed = parser::parse(&page.text);
        let mut kinds: Vec<&str> =
            parsed.diagnostics.iter().map(|diagnostic| markup(diagnostic.code)).collect();
        kinds.sort_unstable();
        kinds.dedup();
        for kind in kinds {
            *self.markup.entry(kind).or_default() += 1;
        }
        let text = wikrs::render::plain(&parsed.nodes);
        if !wikrs::extract::looks_clean(&text) {
            *self.markup.entry(UNREAD).or_default() += 1;
        }
        self.articles += 1;
        let mut title = String::new();
        write_string(&page.title, &mut title);
        let mut fields = PythonObject::default();
        fields.insert("\"title\"".to_owned(), title);
        let mut other_fields = String::new();
        fields.write(&mut other_fields);
        Ok(Some(ParsedDocument { text, other_fields }))
    }

    /// Skips articles.
    pub(super) fn skip(&mut self, articles: u64) -> Result<()> {
        for _ in 0..articles {
            self.next_article()?;
        }
        Ok(())
    }

    /// Returns the number of bytes read from the file as stored.
    pub(super) fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Relaxed)
    }

    fn next_article(&mut self) -> Result<Option<Page>> {
        loop {
            self.page_bytes_left.store(MAX_PAGE_BYTES, Relaxed);
            match self.pages.next() {
                // The library takes the end of the file within a page for the end of the dump.
                None if !self.is_complete.load(Relaxed) => {
                    return Err(Error::InvalidInput(format!(
                        "failed to read {} after {} articles: it does not end with {}, so it is \
                         no dump of MediaWiki, or a part of one",
                        self.path.display(),
                        self.articles,
                        String::from_utf8_lossy(END)
                    )));
                }
                None => return Ok(None),
                Some(Ok(page)) if page.is_article() => return Ok(Some(page)),
                Some(Ok(_)) => {}
                Some(Err(error)) => {
                    return Err(Error::InvalidInput(format!(
                        "failed to read {} after {} articles: {error:#}",
                        self.path.display(),
                        self.articles
                    )));
                }
            }
        }
    }

    /// Logs which markup did not become text.
    fn report(&self) {
        let kinds: Vec<String> =
            self.markup.iter().map(|(kind, articles)| format!("{kind} in {articles}")).collect();
        if !kinds.is_empty() {
            tracing::warn!(
                "{}: {} articles; not read as text: {}",
                self.path.display(),
                self.articles,
                kinds.join(", ")
            );
        }
    }
}

/// The text of a dump, with a limit on the size of a page.
struct PageReader {
    text: TextFile,
    page_bytes_left: Arc<AtomicU64>,
    last_bytes: Vec<u8>,
    is_complete: Arc<AtomicBool>,
}

impl BufRead for PageReader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.page_bytes_left.load(Relaxed) == 0 {
            let problem = format!("a page has more than {} MiB", MAX_PAGE_BYTES >> 20);
            return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
        }
        let buffer = self.text.reader.fill_buf()?;
        if buffer.is_empty() {
            let is_complete = self.last_bytes.trim_ascii_end().ends_with(END);
            self.is_complete.store(is_complete, Relaxed);
        }
        Ok(buffer)
    }

    fn consume(&mut self, bytes: usize) {
        let left = self.page_bytes_left.load(Relaxed);
        self.page_bytes_left.store(left.saturating_sub(bytes as u64), Relaxed);
        if let Ok(buffer) = self.text.reader.fill_buf() {
            let consumed = &buffer[..bytes.min(buffer.len())];
            self.last_bytes
                .extend_from_slice(&consumed[consumed.len().saturating_sub(LAST_BYTES)..]);
            let old = self.last_bytes.len().saturating_sub(LAST_BYTES);
            self.last_bytes.drain(..old);
        }
        self.text.reader.consume(bytes);
    }
}

impl Read for PageReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let read = available.len().min(buffer.len());
        buffer[..read].copy_from_slice(&available[..read]);
        self.consume(read);
        Ok(read)
    }
}

/// Returns the kind of markup that a diagnostic of the parser is about.
fn markup(code: &'static str) -> &'static str {
    match code {
        "W-TEMPLATE" => "templates",
        "U-TABLE" => "tables",
        "U-HTML" => "HTML elements",
        "U-LIST" => "irregular lists",
        "U-PRE" => "preformatted text",
        other => other,
    }
}
