//! Opens the input, compressed, as a pack of counts: it answers as it did before, or is refused with an
//! error.
#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;

use corver_core::{Counter, Query};
use corver_counts::pack::{Pack, PackedCounter};
use libfuzzer_sys::fuzz_target;

static FOLDER: LazyLock<tempfile::TempDir> =
    LazyLock::new(|| tempfile::tempdir().expect("there is a folder for temporary files"));

fuzz_target!(|content: &[u8]| {
    let path: PathBuf = FOLDER.path().join("pack");
    // Half of the inputs are damaged as a file, the others in their lines.
    let bytes = match content.first() {
        Some(byte) if byte % 2 == 0 => content[1..].to_vec(),
        _ => zstd::stream::encode_all(content, 1).expect("memory is no file"),
    };
    std::fs::write(&path, bytes).expect("the folder is writable");
    let Ok(pack) = Pack::open(&path) else { return };
    let mut counter = PackedCounter::new(pack, None);
    let unknown = Query::new([["a word that nobody packs"]]);
    counter.count(&[unknown]).expect("a pack does not fail");
});
