//! An open index.

pub(crate) mod document;
pub(crate) mod open;
pub(crate) mod part;
