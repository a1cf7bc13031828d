//! Batches for the trainings of the demo's two models.

use corver_learn::Example;
use rand::Rng;
use rand::seq::SliceRandom;

use crate::error::DemoError;

/// Batches drawn together and sorted by length, so that little of a batch is padding.
const BATCHES_PER_DRAW: usize = 8;

/// Batches of examples of similar lengths, in random order.
pub(crate) struct Batches {
    size: usize,
    drawn: Vec<Vec<Example>>,
}

impl Batches {
    /// `size` examples each.
    pub(crate) fn new(size: usize) -> Self {
        Self { size, drawn: Vec::new() }
    }

    /// The next batch. Where none is left, `draw` makes examples, as many as it is told.
    pub(crate) fn next<R: Rng>(
        &mut self,
        rng: &mut R,
        draw: impl FnOnce(usize, &mut R) -> Result<Vec<Example>, DemoError>,
    ) -> Result<Vec<Example>, DemoError> {
        if self.drawn.is_empty() {
            let mut examples = draw(self.size * BATCHES_PER_DRAW, rng)?;
            examples.sort_by_key(|example| example.tokens.len());
            self.drawn = examples.chunks(self.size).map(<[Example]>::to_vec).collect();
            self.drawn.shuffle(rng);
        }
        Ok(self.drawn.pop().unwrap_or_default())
    }
}
