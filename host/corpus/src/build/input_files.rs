//! The list of input files: folders are searched, and doubtful lists are refused.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};
use walkdir::{DirEntry, WalkDir};

use crate::error::{Error, Result};
use crate::files::format::{TOKENIZER, UNFINISHED};
use crate::files::manifest::MANIFEST;

/// The names of input files, for messages.
const SUPPORTED: &str = ".jsonl, .ndjson, .json, .csv, .tsv, wiki_00 or .xml (each also with .bz2, .gz or .zst), or .parquet";
/// Start of the extension of a part of a large dump: pages-articles1.xml-p1p41242.
const DUMP_PART: &str = "xml-p";
/// Part of the name of a dump.
const DUMP: &str = "pages-articles";
/// Part of the name of the same dump, compressed in many streams.
const MULTISTREAM_DUMP: &str = "pages-articles-multistream";
/// First bytes of the file that Git LFS leaves in place of one that was not downloaded.
const LFS_POINTER: &[u8] = b"version https://git-lfs.github.com/";
/// Size of such a file at most, bytes.
const MAX_POINTER_BYTES: u64 = 1024;
/// Largest number of names in a message.
const MAX_NAMES: usize = 5;

/// An input file, as it was when the build began. A file that was changed has another size or
/// modification time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InputFile {
    pub(super) path: PathBuf,
    /// Name in the metadata: the path within the folder that was named, or the file's name.
    pub(super) name: String,
    pub(super) bytes: u64,
    /// Modification time, nanoseconds since 1970.
    modified: u64,
}

/// The kind of an input file, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InputKind {
    JsonLines,
    /// Rows of fields with this delimiter.
    Delimited(u8),
    Parquet,
    /// Output of WikiExtractor: JSON lines or `<doc …>`.
    Wiki,
    /// XML dump of a MediaWiki site.
    Dump,
}

impl InputKind {
    /// Returns the kind of a file; `None` if it is not supported.
    pub(super) fn from_path(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?.to_lowercase();
        let plain = without_compression(&name);
        if plain == TOKENIZER {
            return None;
        }
        let kind = match Path::new(plain).extension().and_then(|extension| extension.to_str()) {
            Some("jsonl" | "ndjson" | "json") => Self::JsonLines,
            Some("csv") => Self::Delimited(b','),
            Some("tsv") => Self::Delimited(b'\t'),
            Some(extension) if extension == "xml" || extension.starts_with(DUMP_PART) => Self::Dump,
            Some("parquet") if plain == name => Self::Parquet,
            None if is_wiki_name(plain) => Self::Wiki,
            _ => return None,
        };
        Some(kind)
    }
}

fn without_compression(name: &str) -> &str {
    let compressed = [".bz2", ".gz", ".zst"];
    compressed.iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(name)
}

fn is_wiki_name(name: &str) -> bool {
    let digits = name.strip_prefix("wiki_").unwrap_or_default();
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns the input files, sorted by path, each once. A folder is replaced by the supported files in
/// it and its sub-folders; hidden files are left out, and files of other kinds with a warning.
///
/// # Errors
/// Fails if a file is of no supported kind, a folder holds none of them, lacks files of a numbered
/// set, or holds a text in two forms.
pub(super) fn list(inputs: &[PathBuf]) -> Result<Vec<InputFile>> {
    let mut named = Vec::new();
    for input in inputs {
        if input.is_dir() {
            let found = list_folder(input)?;
            check_twice(input, &found)?;
            if let Some(set) = incomplete_sets(&found).first() {
                return Err(Error::InvalidInput(format!(
                    "failed to read {}: {set}; copy what is missing, or name the files to index \
                     only these",
                    input.display()
                )));
            }
            for path in found {
                let name = path.strip_prefix(input).unwrap_or(&path).to_string_lossy().into_owned();
                named.push(NamedPath { path, name });
            }
        } else if InputKind::from_path(input).is_some() {
            let name = input.file_name().unwrap_or_default().to_string_lossy().into_owned();
            named.push(NamedPath { path: input.clone(), name });
        } else {
            return Err(Error::InvalidInput(format!(
                "failed to read {}: its name is not that of a supported file; use {SUPPORTED}",
                input.display()
            )));
        }
    }
    // As strings, as the official builder sorts them, not folder by folder.
    named.sort_by(|one, other| one.path.as_os_str().cmp(other.path.as_os_str()));
    let files = open_once(named)?;
    let paths: Vec<PathBuf> = files.iter().map(|file| file.path.clone()).collect();
    for set in incomplete_sets(&paths) {
        tracing::warn!("the index will be of a part of the text: {set}");
    }
    Ok(files)
}

/// The path of an input file, and its name in the metadata.
struct NamedPath {
    path: PathBuf,
    name: String,
}

/// Returns the supported files of a folder and its sub-folders.
fn list_folder(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut supported = Vec::new();
    let mut others = Vec::new();
    // Links are followed; the library finds those that lead back.
    let entries = WalkDir::new(folder).follow_links(true).sort_by_file_name();
    for entry in entries.into_iter().filter_entry(is_searched) {
        let entry = entry.map_err(|error| Error::io("list", folder)(error.into()))?;
        let path = entry.path();
        if entry.file_type().is_dir() {
            continue;
        }
        let list = match InputKind::from_path(path) {
            Some(_) => &mut supported,
            None => &mut others,
        };
        list.push(path.to_owned());
    }
    if supported.is_empty() {
        let found = if others.is_empty() {
            "it holds no file".to_owned()
        } else {
            format!("it holds {}, and no supported file", names(&others))
        };
        return Err(Error::InvalidInput(format!(
            "failed to read {}: {found}; supported are {SUPPORTED}",
            folder.display()
        )));
    }
    if !others.is_empty() {
        tracing::warn!(
            "not read, as their names are not those of supported files: {}",
            names(&others)
        );
    }
    Ok(supported)
}

/// True if an entry of a folder is no index of this program, and is not hidden, as the caches and
/// copies of many programs are.
fn is_searched(entry: &DirEntry) -> bool {
    if entry.depth() == 0 {
        return true;
    }
    let is_index = [MANIFEST, UNFINISHED].iter().any(|name| entry.path().join(name).exists());
    !is_index && !entry.file_name().as_encoded_bytes().starts_with(b".")
}

/// Returns each file once, also if it has several names.
fn open_once(named: Vec<NamedPath>) -> Result<Vec<InputFile>> {
    let mut files = Vec::new();
    let mut repeated = Vec::new();
    let mut seen: HashSet<(u64, u64)> = HashSet::new();
    for NamedPath { path, name } in named {
        let metadata = std::fs::metadata(&path).map_err(Error::io("open", &path))?;
        if !seen.insert((metadata.dev(), metadata.ino())) {
            repeated.push(path);
            continue;
        }
        if metadata.len() <= MAX_POINTER_BYTES
            && std::fs::read(&path).map_err(Error::io("read", &path))?.starts_with(LFS_POINTER)
        {
            return Err(Error::InvalidInput(format!(
                "failed to read {}: it is a pointer of Git LFS; get the file with `git lfs pull`",
                path.display()
            )));
        }
        let time = metadata.modified().map_err(Error::io("read the time of", &path))?;
        let modified = time.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
        files.push(InputFile { path, name, bytes: metadata.len(), modified });
    }
    if !repeated.is_empty() {
        tracing::warn!("read once, although they are named several times: {}", names(&repeated));
    }
    Ok(files)
}

/// Checks that a folder holds no text in two forms, such as `a.jsonl` and `a.jsonl.gz`, or a dump
/// in one stream and in many.
fn check_twice(folder: &Path, paths: &[PathBuf]) -> Result<()> {
    let mut texts: BTreeMap<PathBuf, &Path> = BTreeMap::new();
    for path in paths {
        if let Some(other) = texts.insert(without_form(path), path) {
            return Err(Error::InvalidInput(format!(
                "failed to read {}: {} and {} may be the same text; remove one, or name the files \
                 to index both",
                folder.display(),
                other.display(),
                path.display()
            )));
        }
    }
    Ok(())
}

/// Returns a path without the endings of its format, such as `.jsonl.gz`, and without the mark of a
/// dump in many streams. The pages in the name of a part of a dump remain.
fn without_form(path: &Path) -> PathBuf {
    let named = match path.file_name().and_then(|name| name.to_str()) {
        Some(name) => path.with_file_name(name.replace(MULTISTREAM_DUMP, DUMP)),
        None => path.to_owned(),
    };
    let plain = match extension(&named).as_str() {
        "bz2" | "gz" | "zst" => named.with_extension(""),
        _ => named,
    };
    if extension(&plain).starts_with(DUMP_PART) { plain } else { plain.with_extension("") }
}

/// Returns the extension of a file's name, in lower case.
fn extension(path: &Path) -> String {
    path.extension().unwrap_or_default().to_string_lossy().to_lowercase()
}

/// A set of files whose names have a number and the size of the set: `train-00001-of-00003.parquet`.
struct NumberedSet {
    /// Path up to the number.
    prefix: String,
    /// Number of digits.
    width: usize,
    size: usize,
    numbers: BTreeSet<usize>,
}

/// Describes each set of which files are missing. Numbers begin with 0 or with 1.
fn incomplete_sets(paths: &[PathBuf]) -> Vec<String> {
    let mut sets: BTreeMap<(String, usize), NumberedSet> = BTreeMap::new();
    for path in paths {
        let Some(found) = NumberedSet::from_path(path) else { continue };
        let key = (found.prefix.clone(), found.size);
        match sets.get_mut(&key) {
            Some(set) => set.numbers.extend(found.numbers),
            None => {
                sets.insert(key, found);
            }
        }
    }
    let mut problems = Vec::new();
    for NumberedSet { prefix, width, size, numbers } in sets.into_values() {
        let begins_with_one = !numbers.contains(&0) && numbers.contains(&size);
        let first = usize::from(begins_with_one);
        let mut missing = Vec::new();
        for number in first..first + size {
            if !numbers.contains(&number) {
                missing.push(PathBuf::from(format!("{prefix}{number:0width$}-of-{size:0width$}")));
            }
        }
        if !missing.is_empty() {
            problems.push(format!(
                "{} of {size} files are missing: {}",
                missing.len(),
                names(&missing)
            ));
        }
    }
    problems
}

impl NumberedSet {
    /// Returns the set that a file belongs to, with its number; `None` if it is not numbered.
    fn from_path(path: &Path) -> Option<Self> {
        let text = path.to_str()?;
        let name = path.file_name()?.to_str()?;
        let (before, after) = name.rsplit_once("-of-")?;
        let digits = before.len() - before.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        let number: usize = before[before.len() - digits..].parse().ok()?;
        let size_digits = after.bytes().take_while(u8::is_ascii_digit).count();
        let size: usize = after[..size_digits].parse().ok()?;
        // A number above the size is of another kind of name; a huge size is not worth comparing.
        if number > size || size > 1_000_000 {
            return None;
        }
        let prefix = &text[..text.len() - name.len() + before.len() - digits];
        Some(Self {
            prefix: prefix.to_owned(),
            width: digits,
            size,
            numbers: BTreeSet::from([number]),
        })
    }
}

/// Returns the first names of a list, without their folders.
fn names(paths: &[PathBuf]) -> String {
    let mut names = Vec::new();
    for path in paths.iter().take(MAX_NAMES) {
        names.push(path.file_name().unwrap_or_default().to_string_lossy().into_owned());
    }
    if paths.len() > MAX_NAMES {
        names.push(format!("{} more", paths.len() - MAX_NAMES));
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// A folder with these files; returns it with a function that lists it.
    fn folder(names: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in names {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        folder
    }

    fn listed(folder: &Path, inputs: &[&str]) -> Result<Vec<String>> {
        let inputs: Vec<PathBuf> = inputs.iter().map(|input| folder.join(input)).collect();
        let mut names = Vec::new();
        for file in list(&inputs)? {
            let path = file.path.strip_prefix(folder).unwrap();
            names.push(path.to_str().unwrap().to_owned());
        }
        Ok(names)
    }

    fn refusal(folder: &Path, inputs: &[&str]) -> String {
        listed(folder, inputs).unwrap_err().to_string()
    }

    #[test]
    fn sub_folders_are_searched() {
        let folder = folder(&[
            "b.jsonl",
            "AA/wiki_00",
            "AA/wiki_01.gz",
            "AB/c.JSON.GZ",
            "AB/d.ndjson.zst",
            "e.csv",
            "f.tsv.gz",
            "g.parquet",
            ".cache/h.jsonl",
            "tokenizer.json",
            "index/corver-index.json",
            "x.unfinished/corver-build.json",
            "._b.jsonl",
            "README.md",
            "wiki_x",
            "i.txt",
            "j.parquet.gz",
        ]);
        let expected = [
            "AA/wiki_00",
            "AA/wiki_01.gz",
            "AB/c.JSON.GZ",
            "AB/d.ndjson.zst",
            "b.jsonl",
            "e.csv",
            "f.tsv.gz",
            "g.parquet",
        ];
        assert_eq!(listed(folder.path(), &[""]).unwrap(), expected);
        symlink(folder.path(), folder.path().join("AA/loop")).unwrap();
        assert!(refusal(folder.path(), &[""]).contains("loop"));
    }

    #[test]
    fn file_is_read_once() {
        let folder = folder(&["a/b.jsonl", "c.jsonl"]);
        symlink(folder.path().join("c.jsonl"), folder.path().join("d.jsonl")).unwrap();
        fs::hard_link(folder.path().join("c.jsonl"), folder.path().join("e.jsonl")).unwrap();
        let twice = ["a", "a/b.jsonl", "a/../c.jsonl", "", "c.jsonl"];
        let names = listed(folder.path(), &twice).unwrap();
        assert_eq!(names, ["a/../c.jsonl", "a/b.jsonl"]);
    }

    #[test]
    fn unknown_files_are_named() {
        let folder = folder(&["a.txt", "b.bz2", "empty/.hidden", "c.jsonl.xz"]);
        let message = refusal(folder.path(), &[""]);
        assert!(
            message.contains("a.txt, b.bz2, c.jsonl.xz") && message.contains(".ndjson"),
            "{message}"
        );
        assert!(refusal(folder.path(), &["empty"]).contains("holds no file"));
        assert!(refusal(folder.path(), &["a.txt"]).contains(".ndjson"));
        assert!(matches!(listed(folder.path(), &["x.jsonl"]), Err(Error::Io { .. })));
    }

    #[test]
    fn missing_file_of_a_set_is_found() {
        let folder = folder(&[
            "train-00000-of-00003.parquet",
            "train-00002-of-00003.parquet",
            "one/c4.1-of-2.json.gz",
            "one/c4.2-of-2.json.gz",
            "zero/a-00000-of-00001.jsonl",
            "zero/b-7-of-2.jsonl",
            "zero/end-of-1",
        ]);
        let message = refusal(folder.path(), &[""]);
        assert!(message.contains("1 of 3 files are missing: train-00001-of-00003;"), "{message}");
        assert_eq!(listed(folder.path(), &["one", "zero"]).unwrap().len(), 4);
        // Files that are named one by one may be a part.
        assert_eq!(listed(folder.path(), &["train-00000-of-00003.parquet"]).unwrap().len(), 1);
        fs::write(folder.path().join("train-00001-of-00003.parquet"), "").unwrap();
        assert_eq!(listed(folder.path(), &[""]).unwrap().len(), 7);
    }

    #[test]
    fn text_in_two_forms_is_refused() {
        for twice in [
            ["a.jsonl", "a.jsonl.gz"],
            ["a.parquet", "a.csv"],
            ["b/a.json.zst", "b/a.ndjson"],
            ["a.JSONL", "a.jsonl.GZ"],
            ["w.xml-p1p41242", "w.xml-p1p41242.bz2"],
            ["w-pages-articles.xml.bz2", "w-pages-articles-multistream.xml.bz2"],
            ["w-pages-articles1.xml-p1p9", "w-pages-articles-multistream1.xml-p1p9.bz2"],
        ] {
            let folder = folder(&twice);
            assert!(refusal(folder.path(), &[""]).contains("same text"), "{twice:?}");
            assert_eq!(listed(folder.path(), &twice).unwrap().len(), 2);
        }
        let folder = folder(&["a/x.jsonl", "b/x.jsonl", "x.1.jsonl", "x.2.jsonl"]);
        assert_eq!(listed(folder.path(), &[""]).unwrap().len(), 4);
    }

    #[test]
    fn parts_of_a_dump_and_names_of_other_case_are_other_texts() {
        let names = [
            "Paris.jsonl",
            "enwiki-20231101-pages-articles15.xml-p15824603p17324602.bz2",
            "enwiki-20231101-pages-articles15.xml-p17324603p17460152.bz2",
            "paris.jsonl",
        ];
        assert_eq!(listed(folder(&names).path(), &[""]).unwrap(), names);
    }
}
