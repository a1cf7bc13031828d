//! The files of an index: the format, the manifest, and the mapped files of a shard.

pub(crate) mod format;
pub(crate) mod manifest;
pub(crate) mod mapped_file;
pub(crate) mod prefix_file;
pub(crate) mod shard;
pub(crate) mod system;
pub(crate) mod truncation;
