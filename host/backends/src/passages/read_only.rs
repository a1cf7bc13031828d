//! A directory for the search library that writes nothing. The library's own puts a lock file into
//! each index that it opens, which fails on a read-only file system.

use std::io::{Error, ErrorKind, Result};
use std::path::Path;
use std::sync::Arc;

use tantivy::Directory;
use tantivy::directory::error::{DeleteError, LockError, OpenReadError, OpenWriteError};
use tantivy::directory::{
    DirectoryLock, FileHandle, Lock, MmapDirectory, WatchCallback, WatchHandle, WritePtr,
};

/// A read-only folder of finished passages. They never change, so readers need no lock.
#[derive(Debug, Clone)]
pub(crate) struct ReadOnly(pub(crate) MmapDirectory);

impl Directory for ReadOnly {
    fn get_file_handle(
        &self,
        path: &Path,
    ) -> std::result::Result<Arc<dyn FileHandle>, OpenReadError> {
        self.0.get_file_handle(path)
    }

    fn exists(&self, path: &Path) -> std::result::Result<bool, OpenReadError> {
        self.0.exists(path)
    }

    fn atomic_read(&self, path: &Path) -> std::result::Result<Vec<u8>, OpenReadError> {
        self.0.atomic_read(path)
    }

    fn delete(&self, path: &Path) -> std::result::Result<(), DeleteError> {
        Err(DeleteError::IoError { io_error: Arc::new(refusal()), filepath: path.to_owned() })
    }

    fn open_write(&self, path: &Path) -> std::result::Result<WritePtr, OpenWriteError> {
        Err(OpenWriteError::wrap_io_error(refusal(), path.to_owned()))
    }

    fn atomic_write(&self, _: &Path, _: &[u8]) -> Result<()> {
        Err(refusal())
    }

    fn sync_directory(&self) -> Result<()> {
        Ok(())
    }

    fn acquire_lock(&self, _: &Lock) -> std::result::Result<DirectoryLock, LockError> {
        Ok(DirectoryLock::from(Box::new(())))
    }

    fn watch(&self, _: WatchCallback) -> tantivy::Result<WatchHandle> {
        Ok(WatchHandle::empty())
    }
}

fn refusal() -> Error {
    Error::new(ErrorKind::ReadOnlyFilesystem, "finished passages are not written to")
}
