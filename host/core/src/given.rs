//! Triplets that come with a text, in place of an extractor's.

use std::collections::HashMap;

use serde::Deserialize;

use crate::text::excerpt;
use crate::{BoxError, Extractor, ExtractorInput, Triplet};

/// Triplets by sentence, as JSON `[[sentence, [[head, relation, tail], …]], …]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<SentenceEntry>")]
pub struct GivenTriplets(HashMap<String, Vec<Triplet>>);

/// A sentence with the triplets in it: head, relation and tail of each.
type SentenceEntry = (String, Vec<(String, String, String)>);

/// Error of a sentence that has two different lists of triplets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("other triplets were given before for the sentence {0:?}")]
pub struct ConflictingTriplets(String);

/// Error of a sentence that has no list of triplets, not even an empty one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no triplets are given for the sentence {0:?}; if it states no fact, give [{0:?}, []]")]
pub struct MissingTriplets(String);

impl GivenTriplets {
    /// Returns true if no sentence has triplets.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the triplets of a sentence.
    ///
    /// # Errors
    /// Fails if the sentence is not among those given.
    pub fn of(&self, sentence: &str) -> Result<&[Triplet], MissingTriplets> {
        match self.0.get(sentence) {
            Some(triplets) => Ok(triplets),
            None => Err(MissingTriplets(excerpt(sentence))),
        }
    }

    /// Adds the triplets of other sentences.
    ///
    /// # Errors
    /// Fails if a sentence has other triplets already.
    pub fn merge(&mut self, other: Self) -> Result<(), ConflictingTriplets> {
        for (sentence, triplets) in other.0 {
            self.add(sentence, triplets)?;
        }
        Ok(())
    }

    fn add(&mut self, sentence: String, triplets: Vec<Triplet>) -> Result<(), ConflictingTriplets> {
        if self.0.get(&sentence).is_some_and(|known| *known != triplets) {
            return Err(ConflictingTriplets(excerpt(&sentence)));
        }
        self.0.insert(sentence, triplets);
        Ok(())
    }
}

impl TryFrom<Vec<SentenceEntry>> for GivenTriplets {
    type Error = ConflictingTriplets;

    fn try_from(entries: Vec<SentenceEntry>) -> Result<Self, ConflictingTriplets> {
        let mut given = Self::default();
        for (sentence, facts) in entries {
            let mut triplets = Vec::with_capacity(facts.len());
            for (head, relation, tail) in facts {
                triplets.push(Triplet { head, relation, tail });
            }
            given.add(sentence, triplets)?;
        }
        Ok(given)
    }
}

impl Extractor for GivenTriplets {
    fn extract(&mut self, inputs: &[ExtractorInput<'_>]) -> Result<Vec<Vec<Triplet>>, BoxError> {
        let mut triplets = Vec::with_capacity(inputs.len());
        for input in inputs {
            triplets.push(self.of(input.sentence)?.to_vec());
        }
        Ok(triplets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentence_with_other_triplets_is_rejected() {
        let read = |text| serde_json::from_str::<GivenTriplets>(text);
        let mut given =
            read(r#"[["A is B.", [["A", "is", "B"]]], ["A is B.", [["A", "is", "B"]]]]"#)
                .expect("equal lists agree");
        assert_eq!(
            given.extract(&[ExtractorInput::of_sentence("A is B.")]).unwrap()[0][0].tail,
            "B"
        );
        assert!(
            given
                .extract(&[ExtractorInput::of_sentence("C.")])
                .unwrap_err()
                .to_string()
                .contains("give [\"C.\", []]")
        );
        let conflict = given.merge(read(r#"[["A is B.", []]]"#).unwrap()).unwrap_err();
        assert!(conflict.to_string().contains("other triplets were given before"));
        assert!(read(r#"[["S.", []], ["S.", [["A", "r", "B"]]]]"#).is_err());
    }
}
