//! Building passages. Documents are read, cut and indexed on all cores; at the end the search
//! library merges its segments into one, in the order of the documents. So the same index gives
//! the same passages in the same order for any number of cores.
//!
//! All files are written into a folder next to the target, the manifest last, and the folder is
//! then renamed. A killed build leaves nothing that can be opened; the next build starts afresh.

use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use corver_corpus::{Document, TextIndex};
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};
use tantivy::directory::MmapDirectory;
use tantivy::indexer::NoMergePolicy;
use tantivy::{
    Index, IndexSettings, IndexSortByField, IndexWriter, Order, TantivyDocument, TantivyError,
};

use crate::passages::cut::cut;
use crate::passages::manifest::MANIFEST;
use crate::passages::schema::{Fields, NUMBER, key, tokenizers};
use crate::passages::{PassageError, PassageLocation, PassageManifest};

/// Tokens of a batch of documents, at least; the last batch may have fewer.
const BATCH_TOKENS: u64 = 1 << 20;
/// Most indexing threads: the library's own limit.
const MAX_THREADS: usize = 8;
/// Memory in which an indexing thread collects documents before it writes a segment.
const THREAD_BYTES: usize = 128 << 20;
/// Files that only the library's writers use, which finished passages do not need.
const WRITERS_FILES: [&str; 3] = [".tantivy-writer.lock", ".tantivy-meta.lock", ".managed.json"];

/// Options of [`build`]. The default is passages of 100 words, without progress.
#[derive(Clone, Copy)]
pub struct PassageOptions<'a> {
    /// Longest passage, words; 1 or more.
    pub words: usize,
    /// Called with the number of documents read so far, and of all documents.
    pub progress: Option<&'a dyn Fn(u64, u64)>,
}

impl Default for PassageOptions<'_> {
    fn default() -> Self {
        Self { words: 100, progress: None }
    }
}

/// Builds the passages of an index, and replaces older ones.
///
/// # Errors
/// Fails if the index cannot be read, the folder has other content, another process is building
/// these passages, or they cannot be written.
pub fn build(
    location: &PassageLocation,
    options: &PassageOptions<'_>,
) -> Result<PassageManifest, PassageError> {
    let PassageOptions { words, progress } = *options;
    if words == 0 {
        let problem = format!("a passage of {words} words: it must have at least 1");
        return Err(PassageError::InvalidArgument(problem));
    }
    let corpus = TextIndex::open(location.index())?;
    let mut manifest = PassageManifest::new(corver_corpus::fingerprint(location.index())?, words);
    check_target(location.folder())?;
    let unfinished = UnfinishedPassages::create(location.folder())?;

    let failed = |action| {
        let path = location.folder().to_owned();
        move |source| PassageError::Write { action, path, source }
    };
    let writer = PassageWriter::create(&unfinished.path).map_err(failed("create"))?;
    let total = corpus.index().info().documents;
    let mut documents = corpus.index().documents();
    loop {
        let batch = next_batch(&mut documents)?;
        if batch.is_empty() {
            break;
        }
        let texts: Vec<TitledText> = batch
            .par_iter()
            .map(|document| TitledText::read(&corpus, document))
            .collect::<Result<_, _>>()?;
        for document in &texts {
            manifest.documents += 1;
            manifest.titled += u64::from(!document.title.is_empty());
            for passage in cut(&document.text, words) {
                writer.add(manifest.passages, &document.title, passage).map_err(failed("write"))?;
                manifest.passages += 1;
            }
        }
        if let Some(report) = progress {
            report(manifest.documents, total);
        }
    }
    // The files are mapped: one that is truncated while it is read gives zeros, not an error.
    corpus.index().check_sizes()?;
    writer.finish().map_err(failed("write"))?;
    unfinished.finish(&mut manifest)?;
    tracing::info!(documents = manifest.documents, passages = manifest.passages, "made passages");
    Ok(manifest)
}

/// Refuses to replace a folder that contains anything but passages.
fn check_target(target: &Path) -> Result<(), PassageError> {
    let is_empty = fs::read_dir(target).is_ok_and(|mut entries| entries.next().is_none());
    match fs::symlink_metadata(target) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        _ if target.join(MANIFEST).is_file() || is_empty => Ok(()),
        _ => Err(PassageError::InvalidArgument(format!(
            "{} exists and holds no passages: remove it, or put the passages elsewhere",
            target.display()
        ))),
    }
}

/// Returns the next documents, or none at the end.
fn next_batch(
    documents: &mut impl Iterator<Item = Result<Document, corver_corpus::Error>>,
) -> Result<Vec<Document>, corver_corpus::Error> {
    let mut batch = Vec::new();
    let mut tokens = 0;
    while tokens < BATCH_TOKENS
        && let Some(document) = documents.next().transpose()?
    {
        tokens += document.tokens.end - document.tokens.start + 1; // with its separator
        batch.push(document);
    }
    Ok(batch)
}

/// The title and text of a document.
struct TitledText {
    /// Title; empty if the document has none.
    title: String,
    text: String,
}

impl TitledText {
    fn read(corpus: &TextIndex, document: &Document) -> Result<Self, corver_corpus::Error> {
        let metadata = corpus.index().parsed_metadata(document)?.unwrap_or_default();
        let title = metadata["metadata"]["title"].as_str().unwrap_or_default().to_owned();
        Ok(Self { title, text: corpus.text(document)? })
    }
}

/// The search library's writer.
struct PassageWriter {
    index: Index,
    inner: IndexWriter,
    fields: Fields,
}

impl PassageWriter {
    fn create(folder: &Path) -> Result<Self, TantivyError> {
        let fields = Fields::default();
        // Sorted by number, the merged segment does not depend on the threads' timing.
        let in_order = IndexSortByField { field: NUMBER.to_owned(), order: Order::Asc };
        let settings = IndexSettings { sort_by_field: Some(in_order), ..IndexSettings::default() };
        let index = Index::builder()
            .schema(fields.schema.clone())
            .settings(settings)
            .tokenizers(tokenizers());
        let index = index.open_or_create(MmapDirectory::open(folder)?)?;
        let threads = rayon::current_num_threads().clamp(1, MAX_THREADS);
        let inner = index.writer_with_num_threads(threads, threads * THREAD_BYTES)?;
        // `finish` merges all segments together; merging some of them earlier is wasted work.
        inner.set_merge_policy(Box::new(NoMergePolicy));
        Ok(Self { index, inner, fields })
    }

    fn add(&self, number: u64, title: &str, text: &str) -> Result<(), TantivyError> {
        let mut passage = TantivyDocument::new();
        passage.add_u64(self.fields.number, number);
        if !title.is_empty() {
            passage.add_text(self.fields.key, key(title));
            passage.add_text(self.fields.title, title);
        }
        passage.add_text(self.fields.text, text);
        self.inner.add_document(passage).map(drop)
    }

    fn finish(mut self) -> Result<(), TantivyError> {
        self.inner.commit()?;
        let segments = self.index.searchable_segment_ids()?;
        if segments.len() > 1 {
            self.inner.merge(&segments).wait()?;
        }
        self.inner.garbage_collect_files().wait()?;
        self.inner.wait_merging_threads()
    }
}

/// The locked folder of a build that is in progress.
struct UnfinishedPassages {
    path: PathBuf,
    target: PathBuf,
    is_finished: bool,
    /// Handle that holds the lock until it is closed.
    _lock: File,
}

impl UnfinishedPassages {
    /// Creates or empties the folder next to the target, and locks it.
    fn create(target: &Path) -> Result<Self, PassageError> {
        let mut name = target.file_name().unwrap_or_default().to_owned();
        name.push(".unfinished");
        let path = target.with_file_name(name);
        fs::create_dir_all(&path).map_err(PassageError::io("create the folder", &path))?;
        let lock = File::open(&path).map_err(PassageError::io("open", &path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(PassageError::Busy { path }),
            Err(TryLockError::Error(e)) => return Err(PassageError::io("lock", &path)(e)),
        }
        for entry in fs::read_dir(&path).map_err(PassageError::io("list", &path))? {
            let entry = entry.map_err(PassageError::io("list", &path))?.path();
            fs::remove_file(&entry).map_err(PassageError::io("remove", &entry))?;
        }
        Ok(Self { path, target: target.to_owned(), is_finished: false, _lock: lock })
    }

    /// Writes the manifest, and replaces the target by this folder.
    fn finish(mut self, manifest: &mut PassageManifest) -> Result<(), PassageError> {
        for name in WRITERS_FILES {
            let path = self.path.join(name);
            match fs::remove_file(&path) {
                Err(e) if e.kind() != ErrorKind::NotFound => {
                    return Err(PassageError::io("remove", &path)(e));
                }
                _ => {}
            }
        }
        manifest.write(&self.path)?;
        if self.target.exists() {
            // The manifest first: if this is killed, the rest of the folder cannot be opened.
            let old = self.target.join(MANIFEST);
            let removed = fs::remove_file(&old).and_then(|()| fs::remove_dir_all(&self.target));
            match removed {
                Err(e) if e.kind() != ErrorKind::NotFound => {
                    return Err(PassageError::io("remove", &self.target)(e));
                }
                _ => {}
            }
        }
        let renamed = fs::rename(&self.path, &self.target);
        renamed.map_err(PassageError::io("rename the finished folder to", &self.target))?;
        self.is_finished = true;
        Ok(())
    }
}

impl Drop for UnfinishedPassages {
    /// Removes the folder of a failed build.
    fn drop(&mut self) {
        if !self.is_finished
            && let Err(error) = fs::remove_dir_all(&self.path)
        {
            tracing::warn!(
                path = %self.path.display(),
                %error,
                "failed to remove the folder of an unfinished build"
            );
        }
    }
}
