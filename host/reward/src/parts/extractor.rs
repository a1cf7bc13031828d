//! The source of a run's triplets.

use std::path::PathBuf;

use corver_core::{
    BoxError, Claim, ExtractionBatch, Extractor, ExtractorInput, NameExtractor, Triplet,
};
use corver_inference::extract::{ExtractError, OnnxExtractor};

/// Source of triplets that is ready for use.
pub enum OpenedExtractor {
    /// Names, titles and numbers of the sentence.
    Names(NameExtractor),
    /// A language model.
    Model {
        /// Folder of the model.
        folder: PathBuf,
        /// The model in ONNX Runtime.
        extractor: OnnxExtractor,
    },
}

impl OpenedExtractor {
    /// Returns the claims of each text.
    ///
    /// # Errors
    /// If the model cannot run.
    pub fn claims(&self, inputs: &[ExtractorInput<'_>]) -> Result<Vec<Vec<Claim>>, ExtractError> {
        match self {
            Self::Names(extractor) => {
                Ok(inputs.iter().map(|input| extractor.claims(*input)).collect())
            }
            Self::Model { extractor, .. } => {
                let sentences: Vec<&str> = inputs.iter().map(|input| input.sentence).collect();
                extractor.claims(&sentences)
            }
        }
    }
}

impl Extractor for OpenedExtractor {
    fn extract(&mut self, inputs: &[ExtractorInput<'_>]) -> Result<Vec<Vec<Triplet>>, BoxError> {
        match self {
            Self::Names(extractor) => extractor.extract(inputs),
            Self::Model { extractor, .. } => extractor.extract(inputs),
        }
    }

    fn start(&mut self) -> Box<dyn ExtractionBatch + '_> {
        match self {
            Self::Names(extractor) => extractor.start(),
            Self::Model { extractor, .. } => extractor.start(),
        }
    }
}
