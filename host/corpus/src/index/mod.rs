//! An open index, its documents, and its open shards.

pub(crate) mod document;
pub(crate) mod lengths;
pub(crate) mod open;
pub(crate) mod part;
