//! What lies on disk: the format, the manifest, and the mapped files of a shard.

pub(crate) mod bytes;
pub(crate) mod format;
pub(crate) mod lost;
pub(crate) mod manifest;
pub(crate) mod prefix_file;
pub(crate) mod shard;
pub(crate) mod system;
