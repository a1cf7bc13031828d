//! An unfinished build, in a folder next to the target: `NAME.unfinished`.
//!
//! The folder holds the files of the future index, the temporary files of sorting, and
//! `corver-build.json` with the options, the inputs, and the files that are synced to disk. That file
//! is replaced atomically, after the files that it lists are synced, so that a killed build can be
//! resumed. The folder is locked until the process ends. At the end the manifest replaces
//! `corver-build.json`, and the folder is renamed to the target: an index is complete or does not
//! exist. A target that links to a folder stands for that folder.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use corver_files::{TEMPORARY, parent};
use serde::{Deserialize, Serialize};

use crate::build::input_files::InputFile;
use crate::build::inputs::InputPosition;
use crate::build::output::HashedFile;
use crate::error::{Error, Result};
use crate::files::format::UNFINISHED;
use crate::files::manifest::{FileRecord, IndexManifest, MANIFEST};
use crate::token_width::TokenWidth;

/// The options that decide the content of an index. A build is resumed only with the same recipe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Recipe {
    pub(super) version: u32,
    /// True if the documents come from files. Other inputs cannot be compared, so such a build is
    /// not resumed.
    pub(super) from_files: bool,
    /// blake3 hash of the `tokenizer.json`; `None` if the documents are token ids.
    pub(super) tokenizer: Option<String>,
    pub(super) text_field: String,
    pub(super) shards: usize,
    pub(super) metadata: bool,
    pub(super) token_width: TokenWidth,
    pub(super) pointer_width: Option<usize>,
}

impl Recipe {
    /// Returns the name of the first option that differs; `None` if the recipes are equal.
    fn difference(&self, other: &Self) -> Option<&'static str> {
        for (is_equal, name) in [
            (self.version == other.version, "the program's version"),
            (self.from_files == other.from_files, "the kind of input"),
            (self.tokenizer == other.tokenizer, "the tokenizer"),
            (self.text_field == other.text_field, "the text field"),
            (self.shards == other.shards, "the number of shards"),
            (self.metadata == other.metadata, "the choice to write metadata"),
            (self.token_width == other.token_width, "the token width"),
            (self.pointer_width == other.pointer_width, "the pointer width"),
        ] {
            if !is_equal {
                return Some(name);
            }
        }
        None
    }
}

/// The state of a build that is synced to disk.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BuildState {
    recipe: Recipe,
    inputs: Vec<InputFile>,
    /// Checkpoints of the growing streams; the newest is the last.
    checkpoints: Vec<Checkpoint>,
    /// Finished files of the index, by name. The streams are finished first.
    pub(super) finished: BTreeMap<String, FileRecord>,
    /// Totals of the finished streams; `None` while they grow.
    pub(super) totals: Option<StreamTotals>,
    /// Sorted blocks of each shard, beginning with the last block of the shard.
    pub(super) blocks: BTreeMap<usize, Vec<Block>>,
}

/// A position in the inputs, and the synced files of the streams at that position.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Checkpoint {
    pub(super) position: InputPosition,
    /// Number of documents in each shard.
    pub(super) documents: Vec<u64>,
    pub(super) text_bytes: u64,
    pub(super) files: BTreeMap<String, FileRecord>,
}

/// The totals of all streams.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StreamTotals {
    pub(super) documents: u64,
    pub(super) tokens: u64,
    pub(super) text_bytes: u64,
}

/// A range of positions of a shard whose suffixes are sorted.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Block {
    pub(super) begin: u64,
    pub(super) end: u64,
}

/// The locked folder of a build, and its state.
pub(super) struct UnfinishedIndex {
    path: PathBuf,
    target: PathBuf,
    state: BuildState,
    /// True once the folder has the target's name.
    renamed: bool,
    _lock: Lock,
}

impl UnfinishedIndex {
    /// Creates the folder, or resumes an interrupted build of the same recipe. Documents before the
    /// first input that changed are not read again. `restart` discards an existing build.
    ///
    /// # Errors
    /// Fails if the target exists or cannot be replaced, another process is building it, or the
    /// folder holds files of other origin; without `restart` also if it holds a build with another
    /// recipe, or a complete index.
    pub(super) fn open(
        target: &Path,
        recipe: Recipe,
        inputs: &[InputFile],
        restart: bool,
    ) -> Result<Self> {
        let renamed_to = rename_target(target)?;
        let (path, lock) = lock(&renamed_to, !recipe.from_files)?;
        let is_of_a_build =
            path.join(UNFINISHED).exists() || (restart && holds_only_an_index(&path)?);
        if !is_of_a_build {
            check_has_no_files(&path, &renamed_to)?;
        }
        let saved = if restart { None } else { load(&path)? };
        // Documents from memory cannot be compared with those of an earlier call.
        let resumable = saved.filter(|state| state.recipe.from_files);
        let is_new = resumable.is_none();
        let state = match resumable {
            Some(resumed) => {
                if let Some(option) = resumed.recipe.difference(&recipe) {
                    return Err(Error::OutputTaken(format!(
                        "{} holds an unfinished build that differs in {option}: repeat the \
                         command that began it, or start again and discard it",
                        path.display()
                    )));
                }
                resumed.with_inputs(inputs)
            }
            None => BuildState {
                recipe,
                inputs: inputs.to_vec(),
                checkpoints: Vec::new(),
                finished: BTreeMap::new(),
                totals: None,
                blocks: BTreeMap::new(),
            },
        };
        let mut unfinished = Self { path, target: renamed_to, state, renamed: false, _lock: lock };
        unfinished.update(|_| {})?;
        if is_new {
            unfinished.remove_files(|_| false)?;
        }
        unfinished.check_finished()?;
        Ok(unfinished)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn totals(&self) -> Option<StreamTotals> {
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

    /// Changes the state, in memory and atomically on disk.
    pub(super) fn update(&mut self, change: impl FnOnce(&mut BuildState)) -> Result<()> {
        change(&mut self.state);
        write_json(&self.path, UNFINISHED, &self.state)
    }

    /// Writes the manifest, removes files that are not of the index, and renames the folder.
    pub(super) fn finish(mut self, mut manifest: IndexManifest) -> Result<IndexManifest> {
        manifest.files = self.state.finished.clone();
        write_json(&self.path, MANIFEST, &manifest)?;
        self.remove_files(|name| name == MANIFEST || manifest.files.contains_key(name))?;
        self.remove_file(UNFINISHED)?;
        corver_files::sync_folder(&self.path).map_err(Error::io("sync", &self.path))?;
        if let Err(error) = fs::rename(&self.path, &self.target) {
            // The state of a finished build: the same command only renames the folder.
            self.update(|_| {})?;
            return Err(Error::io("rename the finished folder to", &self.target)(error));
        }
        self.renamed = true;
        let parent = parent(&self.target);
        corver_files::sync_folder(parent).map_err(Error::io("sync", parent))?;
        Ok(manifest)
    }

    /// Removes the files of the folder, except those to keep. The state stays: without it, the
    /// other files would be of unknown origin.
    fn remove_files(&self, is_kept: impl Fn(&str) -> bool) -> Result<()> {
        for listed in fs::read_dir(&self.path).map_err(Error::io("list", &self.path))? {
            let entry = listed.map_err(Error::io("list", &self.path))?;
            let file_name = entry.file_name();
            if file_name.to_str().is_some_and(|name| name == UNFINISHED || is_kept(name)) {
                continue;
            }
            let path = entry.path();
            fs::remove_file(&path).map_err(Error::io("remove", &path))?;
        }
        Ok(())
    }

    /// Checks that finished files still exist with their recorded sizes.
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

impl Drop for UnfinishedIndex {
    /// Removes the folder of a build that failed before there was anything to resume.
    fn drop(&mut self) {
        let is_resumable = self.state.recipe.from_files
            && (!self.state.checkpoints.is_empty() || self.state.totals.is_some());
        if self.renamed || is_resumable {
            return;
        }
        let removed = self
            .remove_files(|_| false)
            .and_then(|()| fs::remove_dir_all(&self.path).map_err(Error::io("remove", &self.path)));
        if let Err(error) = removed {
            tracing::warn!(
                path = %self.path.display(),
                %error,
                "failed to remove an unfinished index"
            );
        }
    }
}

impl BuildState {
    /// Adapts the state to these inputs: drops everything after the first input that differs.
    fn with_inputs(mut self, inputs: &[InputFile]) -> Self {
        if self.inputs != inputs {
            let num_equal =
                self.inputs.iter().zip(inputs).take_while(|(old, new)| old == new).count();
            self.checkpoints.retain(|checkpoint| checkpoint.position.is_within(num_equal));
            self.finished.clear();
            self.totals = None;
            self.blocks.clear();
            self.inputs = inputs.to_vec();
        }
        self
    }
}

/// The lock of a folder. It is unlocked explicitly, not only closed: a child process that another
/// thread is starting may briefly have a copy of the file descriptor.
struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        if let Err(error) = self.0.unlock() {
            tracing::warn!(%error, "failed to unlock the folder of a build");
        }
    }
}

/// Returns the new path of a finished folder: the target, or the folder that it links to.
///
/// # Errors
/// Fails if no folder can be renamed to it: a mount point, or a path without a name, such as `..`.
fn rename_target(target: &Path) -> Result<PathBuf> {
    let named: PathBuf = target.components().collect(); // without a slash or `/.` at its end
    let resolved = if named.is_symlink() && named.is_dir() {
        fs::canonicalize(&named).map_err(Error::io("find", &named))?
    } else {
        named
    };
    let is_mount_point = match (fs::metadata(&resolved), fs::metadata(parent(&resolved))) {
        (Ok(folder), Ok(above)) => folder.is_dir() && folder.dev() != above.dev(),
        _ => false, // it does not exist yet
    };
    if resolved.file_name().is_none() || is_mount_point {
        return Err(Error::OutputTaken(format!(
            "{} cannot be replaced by a finished index: name a new folder, such as one inside it",
            target.display()
        )));
    }
    Ok(resolved)
}

/// True if a folder holds a manifest, files that it lists, and no others, as a build leaves it that
/// is killed before it renames the folder.
fn holds_only_an_index(folder: &Path) -> Result<bool> {
    let Ok(Some(manifest)) = IndexManifest::load(folder) else { return Ok(false) };
    for listed in fs::read_dir(folder).map_err(Error::io("list", folder))? {
        let entry = listed.map_err(Error::io("list", folder))?;
        let file_name = entry.file_name();
        let is_listed = |name: &str| name == MANIFEST || manifest.files.contains_key(name);
        if !file_name.to_str().is_some_and(is_listed) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Checks that a folder without a build's state is as a build leaves it that is killed at its
/// start: without files, except temporary ones.
fn check_has_no_files(folder: &Path, target: &Path) -> Result<()> {
    if folder.join(MANIFEST).exists() {
        return Err(Error::OutputTaken(format!(
            "{} holds a complete index: rename it to {}",
            folder.display(),
            target.display()
        )));
    }
    for listed in fs::read_dir(folder).map_err(Error::io("list", folder))? {
        let entry = listed.map_err(Error::io("list", folder))?;
        if !entry.file_name().as_encoded_bytes().starts_with(TEMPORARY.as_bytes()) {
            return Err(Error::OutputTaken(format!(
                "{} holds files that no build has left: remove it, or choose another name",
                folder.display()
            )));
        }
    }
    Ok(())
}

/// Creates `NAME.unfinished` and locks it. If another process has locked it, this waits or fails,
/// depending on `wait`.
fn lock(target: &Path, wait: bool) -> Result<(PathBuf, Lock)> {
    let mut name = target.file_name().unwrap_or_default().to_owned();
    name.push(".unfinished");
    let path = parent(target).join(name);
    fs::create_dir_all(parent(target)).map_err(Error::io("create the folder", parent(target)))?;
    loop {
        // An empty folder does not count: the rename replaces it.
        let target_exists = match fs::read_dir(target) {
            Ok(mut entries) => entries.next().is_some(),
            Err(_) => fs::symlink_metadata(target).is_ok(),
        };
        if target_exists {
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
            // Another process has just finished.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
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
        // The folder may have been renamed or removed before it was locked.
        let locked = lock.0.metadata().map_err(Error::io("read the metadata of", &path))?;
        if let Ok(current) = fs::metadata(&path)
            && current.dev() == locked.dev()
            && current.ino() == locked.ino()
        {
            return Ok((path, lock));
        }
    }
}

/// Loads the state of an unfinished build; `None` if there is none.
fn load(folder: &Path) -> Result<Option<BuildState>> {
    let path = folder.join(UNFINISHED);
    match fs::read(&path) {
        Ok(json) => {
            serde_json::from_slice(&json).map(Some).map_err(|error| Error::json(&path, &error))
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::io("read", &path)(e)),
    }
}

pub(super) fn write_json<T: Serialize>(dir: &Path, name: &str, value: &T) -> Result<()> {
    let path = dir.join(name);
    let json = serde_json::to_vec_pretty(value).map_err(|error| Error::json(&path, &error))?;
    corver_files::replace(&path, &json).map_err(Error::io("write", &path))
}

#[cfg(test)]
impl UnfinishedIndex {
    /// Creates a build whose only shard has this stream of u16 tokens.
    pub(super) fn with_stream(folder: &Path, stream: &[u8]) -> Self {
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
