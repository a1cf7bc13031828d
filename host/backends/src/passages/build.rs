//! Making passages: documents are read and cut on all cores, the library indexes them on all cores,
//! and in the end it merges what it wrote into one segment, in the order of the documents. So the
//! same index gives the same passages, in the same order, whatever the number of cores.
//!
//! Everything is written into a folder beside the target, the manifest last, and then renamed: a
//! build that was killed leaves nothing that opens. The next one begins anew.

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
use crate::passages::{PassageError, PassageManifest, Place};

/// Documents are read together until they hold so many tokens.
const BATCH_TOKENS: u64 = 1 << 20;
/// Threads that index, at most: the library's own limit.
const MAX_THREADS: usize = 8;
/// Memory of a thread that indexes, before it writes a segment.
const THREAD_BYTES: usize = 128 << 20;
/// Files of the library that only its writers use.
const WRITERS_FILES: [&str; 3] = [".tantivy-writer.lock", ".tantivy-meta.lock", ".managed.json"];

/// How passages are made.
#[derive(Clone, Copy)]
pub struct BuildOptions<'a> {
    /// Words of a passage, at most.
    pub words: usize,
    /// Told how many documents were read, and of how many.
    pub progress: Option<&'a dyn Fn(u64, u64)>,
}

/// Passages of 100 words.
impl Default for BuildOptions<'_> {
    fn default() -> Self {
        Self { words: 100, progress: None }
    }
}

/// Makes the passages of an index, and replaces older ones.
///
/// # Errors
/// Where the index cannot be read, something else lies in the place of the passages, another
/// process makes them, or they cannot be written.
pub fn build(place: &Place, options: &BuildOptions<'_>) -> Result<PassageManifest, PassageError> {
    let BuildOptions { words, progress } = *options;
    if words == 0 {
        let problem = format!("a passage of {words} words: it must have at least 1");
        return Err(PassageError::InvalidArgument(problem));
    }
    let corpus = TextIndex::open(place.index())?;
    let mut manifest = PassageManifest::new(corver_corpus::fingerprint(place.index())?, words);
    check_target(place.folder())?;
    let unfinished = Unfinished::create(place.folder())?;

    let failed = |action| {
        move |source| PassageError::Write { action, path: place.folder().to_owned(), source }
    };
    let writer = Writer::create(&unfinished.path).map_err(failed("create"))?;
    let total = corpus.index().info().documents;
    let mut documents = corpus.index().documents();
    loop {
        let batch = next_batch(&mut documents)?;
        if batch.is_empty() {
            break;
        }
        let read: Vec<Titled> = batch
            .par_iter()
            .map(|document| Titled::read(&corpus, document))
            .collect::<Result<_, _>>()?;
        for document in &read {
            manifest.documents += 1;
            manifest.titled += u64::from(!document.title.is_empty());
            for passage in cut(&document.text, words) {
                writer.add(manifest.passages, &document.title, passage).map_err(failed("write"))?;
                manifest.passages += 1;
            }
        }
        progress.inspect(|report| report(manifest.documents, total));
    }
    corpus.index().check_sizes()?; // a truncated file reads as zeros
    writer.finish().map_err(failed("write"))?;
    unfinished.finish(&mut manifest)?;
    tracing::info!(documents = manifest.documents, passages = manifest.passages, "made passages");
    Ok(manifest)
}

/// Refuses to replace what is no passages.
fn check_target(target: &Path) -> Result<(), PassageError> {
    let is_empty =
        |path: &Path| fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
    match fs::symlink_metadata(target) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        _ if target.join(MANIFEST).is_file() || is_empty(target) => Ok(()),
        _ => Err(PassageError::InvalidArgument(format!(
            "{} exists and holds no passages: remove it, or put the passages elsewhere",
            target.display()
        ))),
    }
}

/// The next documents; none at the end.
fn next_batch(
    documents: &mut impl Iterator<Item = Result<Document, corver_corpus::Error>>,
) -> Result<Vec<Document>, corver_corpus::Error> {
    let (mut batch, mut tokens) = (Vec::new(), 0);
    while tokens < BATCH_TOKENS
        && let Some(document) = documents.next().transpose()?
    {
        tokens += document.tokens.end - document.tokens.start + 1; // with its separator
        batch.push(document);
    }
    Ok(batch)
}

/// A document as it is indexed.
struct Titled {
    /// Empty where it has none.
    title: String,
    text: String,
}

impl Titled {
    fn read(corpus: &TextIndex, document: &Document) -> Result<Self, corver_corpus::Error> {
        let metadata = corpus.index().document_metadata(document)?;
        let title = metadata.as_deref().and_then(title).unwrap_or_default();
        Ok(Self { title, text: corpus.text(document)? })
    }
}

/// The title in a document's metadata.
fn title(metadata: &str) -> Option<String> {
    let metadata: serde_json::Value = serde_json::from_str(metadata).ok()?;
    metadata["metadata"]["title"].as_str().map(str::to_owned)
}

/// The library's writer.
struct Writer {
    index: Index,
    inner: IndexWriter,
    fields: Fields,
}

impl Writer {
    fn create(folder: &Path) -> Result<Self, TantivyError> {
        let fields = Fields::default();
        let in_order = IndexSortByField { field: NUMBER.to_owned(), order: Order::Asc };
        let settings = IndexSettings { sort_by_field: Some(in_order), ..IndexSettings::default() };
        let index = Index::builder()
            .schema(fields.schema.clone())
            .settings(settings)
            .tokenizers(tokenizers());
        let index = index.open_or_create(MmapDirectory::open(folder)?)?;
        let threads = rayon::current_num_threads().clamp(1, MAX_THREADS);
        let inner = index.writer_with_num_threads(threads, threads * THREAD_BYTES)?;
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

/// The folder of a build, locked.
struct Unfinished {
    path: PathBuf,
    target: PathBuf,
    is_finished: bool,
    /// Unlocked when it is closed.
    _lock: File,
}

impl Unfinished {
    /// An empty folder beside the target.
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

    /// Puts it in the place of what was there.
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
            // The manifest first, so that what is left if this is killed does not open.
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

impl Drop for Unfinished {
    /// A build that failed leaves nothing.
    fn drop(&mut self) {
        if !self.is_finished
            && let Err(error) = fs::remove_dir_all(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "an unfinished folder stays behind");
        }
    }
}
