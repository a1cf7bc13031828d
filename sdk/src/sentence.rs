//! What a rule judges.

use crate::{Section, bindings};

/// One sentence of a completion, and the facts in it.
#[derive(Debug, Clone, PartialEq)]
pub struct Sentence<'a> {
    /// Which completion of the batch.
    pub completion: u32,
    /// Which sentence of that completion, counted from 0.
    pub index: u32,
    /// As it was generated.
    pub text: &'a str,
    /// Where in the completion it stood.
    pub section: Section,
    /// In the extractor's order.
    pub triplets: Vec<Triplet<'a>>,
}

/// One fact that the extractor found in a sentence.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Triplet<'a> {
    /// The subject.
    pub head: &'a str,
    /// What joins them; may be empty.
    pub relation: &'a str,
    /// The object.
    pub tail: &'a str,
}

impl bindings::Batch {
    pub(crate) fn sentences(&self) -> Vec<Sentence<'_>> {
        let (mut lengths, mut text) = (self.lengths.iter(), self.text.as_str());
        let mut next = || {
            let &length = lengths.next().expect(CONTRACT);
            let (next, rest) = text.split_at_checked(length as usize).expect(CONTRACT);
            text = rest;
            next
        };
        let sentence =
            |&bindings::Sentence { completion, index, section, num_triplets }: &bindings::Sentence| Sentence {
                completion,
                index,
                section,
                text: next(),
                triplets: (0..num_triplets).map(|_| Triplet { head: next(), relation: next(), tail: next() }).collect(),
            };
        let sentences = self.sentences.iter().map(sentence).collect();
        assert!(lengths.next().is_none() && text.is_empty(), "{CONTRACT}");
        sentences
    }
}

const CONTRACT: &str = "the contract: a length for every piece, and together the whole text";

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(text: &str, lengths: &[u32]) -> bindings::Batch {
        let sentence =
            |index, num_triplets| bindings::Sentence { completion: 4, index, section: Section::Think, num_triplets };
        bindings::Batch { sentences: vec![sentence(0, 1), sentence(1, 0)], text: text.into(), lengths: lengths.into() }
    }

    #[test]
    fn sentences_are_cut_out_of_one_text() {
        let batch = batch("🎻 in Größe.🎻Größe\u{feff}", &[16, 4, 0, 7, 3]);
        let triplets = vec![Triplet { head: "🎻", relation: "", tail: "Größe" }];
        let sentence =
            |index, text, triplets| Sentence { completion: 4, index, text, section: Section::Think, triplets };
        let expected = [sentence(0, "🎻 in Größe.", triplets), sentence(1, "\u{feff}", Vec::new())];
        assert_eq!(batch.sentences(), expected);
    }

    #[test]
    fn lengths_that_do_not_fit_the_text_break_the_contract() {
        let refused = |text, lengths: &[u32]| {
            let refused = std::panic::catch_unwind(|| drop(batch(text, lengths).sentences())).unwrap_err();
            assert!(refused.downcast_ref::<String>().is_some_and(|why| why.contains(CONTRACT)), "{text} {lengths:?}");
        };
        drop(batch("Rome", &[4, 0, 0, 0, 0]).sentences());
        refused("Rome", &[4, 0, 0, 0]);
        refused("Rome", &[4, 0, 0, 0, 0, 0]);
        refused("Rome", &[5, 0, 0, 0, 0]);
        refused("Rome", &[3, 0, 0, 0, 0]);
        refused("🎻", &[2, 2, 0, 0, 0]);
    }
}
