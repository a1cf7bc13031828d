//! A document before its words.

/// Length and kind of a document, without the planted names.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub words: usize,
    pub template: Option<usize>,
    /// The earlier document that a passage is taken from.
    pub repeats: Option<u64>,
}
