//! An open index.

pub(crate) mod document;
pub(crate) mod open;
