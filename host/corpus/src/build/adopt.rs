//! Adoption of an index of another program: its tokenizer is checked, and the files that this crate
//! adds are written.

use std::io::ErrorKind;
use std::path::Path;

use crate::build::options::{BuildOptions, BuildProgress};
use crate::build::prefixes;
use crate::build::unfinished::write_json;
use crate::error::{Error, Result};
use crate::files::format::{FileKind, TOKENIZER};
use crate::files::manifest::{FileRecord, IndexManifest, MANIFEST};
use crate::index::open::{Index, OpenOptions};
use crate::text::agreement::{self, AgreementSample};
use crate::text::tokenizer::Tokenizer;
use crate::verify::{VerifyLevel, verify};

/// Number of pairs of suffixes per shard whose order is checked.
const VERIFIED_PAIRS: u64 = 100_000;
/// Files that a shard of another program may have.
const FOREIGN_FILES: [FileKind; 5] =
    [FileKind::Tokenized, FileKind::Table, FileKind::Offset, FileKind::Metadata, FileKind::Metaoff];

/// An index that was adopted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adoption {
    /// Manifest of the index.
    pub manifest: IndexManifest,
    /// Number of documents that were decoded and encoded again.
    pub sampled: u64,
    /// Number of these documents that got other tokens than the index has; at most one in 100.
    pub different: u64,
}

/// Adopts an index of another program, which is then opened like one that was built here. Writes the
/// tokenizer, prefix files, and last the manifest with the checksums of all files. A tokenizer that
/// is in the folder already is replaced.
///
/// `memory` is the budget of the process in bytes, as in [`BuildOptions::memory`].
///
/// # Errors
/// Fails if the index has a manifest or is damaged, the tokenizer encodes its documents otherwise,
/// or the folder cannot be written.
pub fn adopt(
    dir: &Path,
    tokenizer: &Tokenizer,
    memory: Option<u64>,
    progress: Option<&(dyn Fn(BuildProgress) + Sync)>,
) -> Result<Adoption> {
    let index = Index::open(dir)?;
    if index.manifest().is_some() {
        return Err(Error::OutputTaken(format!(
            "failed to adopt {}: it has a manifest already, so it is opened without adoption; to \
             adopt it with another tokenizer, remove {MANIFEST}",
            dir.display()
        )));
    }
    let width = index.token_width();
    tokenizer.check_width(width)?;
    let agreement = agreement::check(&index, tokenizer, AgreementSample::THOROUGH)?;
    let level = VerifyLevel::Sampled(VERIFIED_PAIRS);
    verify(dir, OpenOptions::default(), level)?;

    let info = index.info();
    let shards = info.shards.len();
    let mut manifest = IndexManifest::new(width, shards);
    manifest.documents = info.documents;
    manifest.tokens = info.tokens;
    manifest.tokenizer = Some(tokenizer.fingerprint().to_owned());
    manifest.num_ids = Some(tokenizer.num_ids());
    let options = BuildOptions { shards, memory, progress, ..BuildOptions::default() };
    for shard in 0..shards {
        // Not overwritten: another process may have the prefix file of an earlier adoption mapped.
        let earlier = FileKind::Prefixes.path(dir, shard);
        match std::fs::remove_file(&earlier) {
            Err(e) if e.kind() != ErrorKind::NotFound => {
                return Err(Error::io("remove", &earlier)(e));
            }
            _ => {}
        }
        manifest.files.extend(prefixes::write(dir, shard, width, &options)?);
        for kind in FOREIGN_FILES {
            let path = kind.path(dir, shard);
            if path.exists() {
                manifest.files.insert(kind.file_name(shard), FileRecord::read(&path)?);
            }
        }
    }
    let path = dir.join(TOKENIZER);
    corver_files::replace(&path, tokenizer.json()).map_err(Error::io("write", &path))?;
    manifest.files.insert(TOKENIZER.to_owned(), FileRecord::read(&path)?);
    write_json(dir, MANIFEST, &manifest)?;
    Ok(Adoption { manifest, sampled: agreement.sampled, different: agreement.different })
}
