//! A document before its words.

/// How long a document is, and of which kind; names that are planted do not count.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub words: usize,
    pub template: Option<usize>,
    /// The earlier document that a passage is taken from.
    pub repeats: Option<u64>,
}
