//! Dropping an index from the page cache.

use std::fs::File;
use std::path::Path;

use rustix::fs::{Advice, fadvise};

/// Drops the cached pages of an index's files. Pages that some process has mapped stay.
pub fn forget(index: &Path) {
    for entry in std::fs::read_dir(index).expect("the index is sound") {
        let file =
            File::open(entry.expect("the index is sound").path()).expect("the index is sound");
        file.sync_all().expect("the disk works"); // dirty pages cannot be dropped
        fadvise(&file, 0, None, Advice::DontNeed).expect("the system takes the advice");
    }
}
