//! A build under way, in a folder beside the target: `NAME.unfinished`.
//!
//! It holds the files of the future index, the temporary files of sorting, and `corver-build.json`,
//! which says what is being built from which inputs, and what of it is synced to disk. That file is
//! replaced as a whole, after the files that it lists are synced, so that a killed build can be
//! resumed. The folder is locked for as long as the process lives. At the end the manifest takes
//! the place of `corver-build.json`, and the folder gets the target's name: an index exists
//! entirely or not at all.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use corver_files::parent;
use serde::{Deserialize, Serialize};

use crate::build::inputs::{InputFile, Position};
use crate::build::output::HashedFile;
use crate::error::{Error, Result};
use crate::files::format::UNFINISHED;
use crate::files::manifest::{FileRecord, IndexManifest, MANIFEST};
use crate::token_width::TokenWidth;

/// What is being built. The files of another recipe are of no use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Recipe {
    pub(super) version: u32,
    /// Whether documents come from files. Others cannot be recognised again.
    pub(super) from_files: bool,
    /// blake3 of the `tokenizer.json`.
    pub(super) tokenizer: Option<String>,
    pub(super) text_field: String,
    pub(super) shards: usize,
    pub(super) metadata: bool,
    pub(super) token_width: TokenWidth,
    pub(super) pointer_width: Option<usize>,
}

impl Recipe {
    /// The first thing that differs.
    fn difference(&self, other: &Self) -> Option<&'static str> {
        let same = [
            (self.version == other.version, "the program's version"),
            (self.from_files == other.from_files, "the kind of input"),
            (self.tokenizer == other.tokenizer, "the tokenizer"),
            (self.text_field == other.text_field, "the text field"),
            (self.shards == other.shards, "the number of shards"),
            (self.metadata == other.metadata, "whether metadata is kept"),
            (self.token_width == other.token_width, "the token width"),
            (self.pointer_width == other.pointer_width, "the pointer width"),
        ];
        same.into_iter().find_map(|(same, what)| (!same).then_some(what))
    }
}

/// What is synced to disk.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct State {
    recipe: Recipe,
    inputs: Vec<InputFile>,
    /// While the streams grow; the newest last.
    checkpoints: Vec<Checkpoint>,
    /// Files of the index that are whole. The streams come first.
    pub(super) finished: BTreeMap<String, FileRecord>,
    /// Set when the streams are whole.
    pub(super) totals: Option<Totals>,
    /// By shard: the blocks that are sorted, the last of the shard first.
    pub(super) blocks: BTreeMap<usize, Vec<Block>>,
}

/// How far the inputs were read, and how long the files of the streams were then.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Checkpoint {
    pub(super) position: Position,
    /// By shard.
    pub(super) documents: Vec<u64>,
    pub(super) text_bytes: u64,
    pub(super) files: BTreeMap<String, FileRecord>,
}

/// What the streams hold, all shards together.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Totals {
    pub(super) documents: u64,
    pub(super) tokens: u64,
    pub(super) text_bytes: u64,
}

/// Positions of a shard whose suffixes are sorted.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Block {
    pub(super) begin: u64,
    pub(super) end: u64,
}

pub(super) struct Unfinished {
    path: PathBuf,
    target: PathBuf,
    state: State,
    renamed: bool,
    _lock: Lock,
}

impl Unfinished {
    /// Creates the folder, or resumes an interrupted build of the same recipe: all of it if the
    /// inputs are the same, or what was read before the first input that changed. `restart`
    /// discards whatever exists.
    ///
    /// # Errors
    /// Where the target exists, another process is building it, or another build was begun.
    pub(super) fn open(
        target: &Path,
        recipe: Recipe,
        inputs: &[InputFile],
        restart: bool,
    ) -> Result<Self> {
        let (path, lock) = lock(target, !recipe.from_files)?;
        let kept = match restart {
            true => None,
            false => load(&path)?,
        };
        let state = match kept {
            // What came from memory cannot be compared with what comes now.
            Some(kept) if kept.recipe.from_files => {
                if let Some(what) = kept.recipe.difference(&recipe) {
                    return Err(Error::OutputTaken(format!(
                        "{} holds an unfinished build that differs in {what}: repeat the command \
                         that began it, or start again and discard it",
                        path.display()
                    )));
                }
                Some(kept.with_inputs(inputs))
            }
            _ => None,
        };
        let is_new = state.is_none();
        let state = state.unwrap_or_else(|| State {
            recipe,
            inputs: inputs.to_vec(),
            checkpoints: Vec::new(),
            finished: BTreeMap::new(),
            totals: None,
            blocks: BTreeMap::new(),
        });
        let mut unfinished =
            Self { path, target: target.to_owned(), state, renamed: false, _lock: lock };
        if is_new {
            unfinished.clear()?;
        }
        unfinished.update(|_| {})?;
        unfinished.check_finished()?;
        Ok(unfinished)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn totals(&self) -> Option<Totals> {
        self.state.totals
    }

    pub(super) fn checkpoint(&self) -> Option<&Checkpoint> {
        self.state.checkpoints.last()
    }

    pub(super) fn is_finished(&self, name: &str) -> bool {
        self.state.finished.contains_key(name)
    }

    pub(super) fn blocks(&self, shard: usize) -> &[Block] {
        self.state.blocks.get(&shard).map_or(&[], Vec::as_slice)
    }

    pub(super) fn create_file(&self, name: &str) -> Result<HashedFile> {
        HashedFile::create(&self.path, name)
    }

    /// Removes a temporary file, if it exists.
    pub(super) fn remove_file(&self, name: &str) -> Result<()> {
        let path = self.path.join(name);
        match fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::io("remove", &path)(e))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn add_checkpoint(&mut self, checkpoint: Checkpoint) -> Result<()> {
        self.update(|state| state.checkpoints.push(checkpoint))
    }

    /// Changes the state, in memory and on disk.
    pub(super) fn update(&mut self, change: impl FnOnce(&mut State)) -> Result<()> {
        change(&mut self.state);
        write_json(&self.path, UNFINISHED, &self.state)
    }

    /// Writes the manifest and gives the folder its name.
    pub(super) fn finish(mut self, mut manifest: IndexManifest) -> Result<IndexManifest> {
        manifest.files = std::mem::take(&mut self.state.finished);
        write_json(&self.path, MANIFEST, &manifest)?;
        self.remove_file(UNFINISHED)?;
        corver_files::remove_temporary_files(&self.path).map_err(Error::io("clear", &self.path))?;
        corver_files::sync_folder(&self.path).map_err(Error::io("sync", &self.path))?;
        fs::rename(&self.path, &self.target)
            .map_err(Error::io("rename the finished folder to", &self.target))?;
        self.renamed = true;
        let parent = parent(&self.target);
        corver_files::sync_folder(parent).map_err(Error::io("sync", parent))?;
        Ok(manifest)
    }

    /// Removes everything in the folder.
    fn clear(&self) -> Result<()> {
        for entry in fs::read_dir(&self.path).map_err(Error::io("list", &self.path))? {
            let path = entry.map_err(Error::io("list", &self.path))?.path();
            fs::remove_file(&path).map_err(Error::io("remove", &path))?;
        }
        Ok(())
    }

    /// Finished files must still exist, with their sizes.
    fn check_finished(&self) -> Result<()> {
        for (name, record) in &self.state.finished {
            let path = self.path.join(name);
            let bytes = fs::metadata(&path).map_err(Error::io("open", &path))?.len();
            if bytes != record.bytes {
                let expected = format!("the unfinished build had written {}", record.bytes);
                return Err(Error::size(&path, bytes, expected));
            }
        }
        Ok(())
    }
}

impl Drop for Unfinished {
    /// A build that failed before there was anything to resume leaves nothing.
    fn drop(&mut self) {
        let worth_keeping = self.state.recipe.from_files
            && (!self.state.checkpoints.is_empty() || self.state.totals.is_some());
        if !self.renamed
            && !worth_keeping
            && let Err(error) = fs::remove_dir_all(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "an unfinished index stays behind");
        }
    }
}

impl State {
    /// The state for these inputs: without what was read after the first difference.
    fn with_inputs(mut self, inputs: &[InputFile]) -> Self {
        if self.inputs != inputs {
            let same = self.inputs.iter().zip(inputs).take_while(|(old, new)| old == new).count();
            self.checkpoints.retain(|checkpoint| checkpoint.position.is_within(same));
            self.finished.clear();
            self.totals = None;
            self.blocks.clear();
            self.inputs = inputs.to_vec();
        }
        self
    }
}

/// A locked folder. It is unlocked explicitly, not only closed: a process that another thread is
/// just starting may hold a copy of the file for a moment.
struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        if let Err(error) = self.0.unlock() {
            tracing::warn!(%error, "cannot unlock the folder of a build");
        }
    }
}

/// Creates `NAME.unfinished` and locks it. `wait`s for another process that holds it, or says that
/// there is one.
fn lock(target: &Path, wait: bool) -> Result<(PathBuf, Lock)> {
    let mut name = target.file_name().unwrap_or_default().to_owned();
    name.push(".unfinished");
    let path = parent(target).join(name);
    fs::create_dir_all(parent(target)).map_err(Error::io("create the folder", parent(target)))?;
    loop {
        // An empty folder may be in the way: the rename replaces it.
        let in_the_way = match fs::read_dir(target) {
            Ok(mut entries) => entries.next().is_some(),
            Err(_) => fs::symlink_metadata(target).is_ok(),
        };
        if in_the_way {
            return Err(Error::OutputTaken(format!(
                "{} already exists: remove it or choose another name",
                target.display()
            )));
        }
        match fs::create_dir(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(Error::io("create the folder", &path)(e));
            }
            _ => {}
        }
        let folder = match File::open(&path) {
            Ok(folder) => folder,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue, // another process has just finished
            Err(e) => return Err(Error::io("open", &path)(e)),
        };
        if wait {
            folder.lock().map_err(Error::io("lock", &path))?;
        } else {
            match folder.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    return Err(Error::OutputTaken(format!(
                        "{} is locked: another process is building this index",
                        path.display()
                    )));
                }
                Err(TryLockError::Error(e)) => return Err(Error::io("lock", &path)(e)),
            }
        }
        let lock = Lock(folder);
        // The folder that was locked may have been renamed or removed before it was.
        let locked = lock.0.metadata().map_err(Error::io("look at", &path))?;
        let there = fs::metadata(&path);
        if there.is_ok_and(|there| (there.dev(), there.ino()) == (locked.dev(), locked.ino())) {
            return Ok((path, lock));
        }
    }
}

fn load(path: &Path) -> Result<Option<State>> {
    let path = path.join(UNFINISHED);
    match fs::read(&path) {
        Ok(json) => {
            serde_json::from_slice(&json).map(Some).map_err(|error| Error::json(&path, &error))
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::io("read", &path)(e)),
    }
}

fn write_json<T: Serialize>(dir: &Path, name: &str, value: &T) -> Result<()> {
    let path = dir.join(name);
    let json = serde_json::to_vec_pretty(value).map_err(|error| Error::json(&path, &error))?;
    corver_files::replace(&path, &json).map_err(Error::io("write", &path))
}

#[cfg(test)]
impl Unfinished {
    /// A build whose one shard has this stream of u16 tokens.
    pub(super) fn of_stream(folder: &Path, stream: &[u8]) -> Self {
        let recipe = Recipe {
            version: 2,
            from_files: false,
            tokenizer: None,
            text_field: String::new(),
            shards: 1,
            metadata: false,
            token_width: TokenWidth::U16,
            pointer_width: None,
        };
        let unfinished = Self::open(&folder.join("index"), recipe, &[], false).unwrap();
        let mut file = unfinished.create_file("tokenized.0").unwrap();
        file.write(stream).unwrap();
        file.finish().unwrap();
        unfinished
    }
}
