//! Facts → questions, in several phrasings.

use corver_core::Question;

use crate::world::{EntityId, Fact, World};

/// Which phrasings of a question to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Split {
    /// What the policy is trained on.
    Train,
    /// What accuracy is measured on; never trained on.
    HeldOut,
}

impl World {
    /// The questions of a fact, one per phrasing of the split. Their evidence is all that is true
    /// of the subject and of each answer, in a text each.
    pub fn questions_of<'a>(
        &'a self,
        fact: &'a Fact,
        split: Split,
    ) -> impl Iterator<Item = Question> + 'a {
        let wording = fact.relation.wording();
        let patterns = match split {
            Split::Train => wording.train_questions,
            Split::HeldOut => wording.held_out_questions,
        };
        let evidence: Vec<String> = std::iter::once(&fact.head)
            .chain(&fact.tails)
            .filter_map(|&id| self.told(id))
            .collect();
        patterns.iter().map(move |pattern| Question {
            question: pattern.replace("{H}", self.name(fact.head)),
            golds: fact.tails.iter().map(|&tail| self.name(tail).to_owned()).collect(),
            title: Some(self.name(fact.head).to_owned()),
            evidence: evidence.clone(),
            ..Question::default()
        })
    }

    /// Everything that is true of an entity, as sentences; `None` where there is nothing.
    fn told(&self, id: EntityId) -> Option<String> {
        let sentences = self.facts_of(id).iter().flat_map(|fact| {
            fact.tails
                .iter()
                .map(|&tail| self.sentence_with(id, &fact.relation.statements()[0], tail).text)
        });
        sentences.reduce(|text, sentence| format!("{text} {sentence}"))
    }

    /// Every question of the split.
    #[must_use]
    pub fn questions(&self, split: Split) -> Vec<Question> {
        self.facts().iter().flat_map(|fact| self.questions_of(fact, split)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::WorldSize;

    #[test]
    fn no_question_is_in_both_splits() {
        let world = World::generate(1, &WorldSize::default());
        let texts =
            |split| world.questions(split).into_iter().map(|q| q.question).collect::<HashSet<_>>();
        let (train, held_out) = (texts(Split::Train), texts(Split::HeldOut));
        assert_eq!(train.len(), 6 * world.facts().len());
        assert_eq!(held_out.len(), 2 * world.facts().len());
        assert!(train.is_disjoint(&held_out));
    }

    #[test]
    fn question_evidence_states_golds_and_only_truths() {
        let world = World::generate(1, &WorldSize::default());
        let truth = crate::Truth::of(&world);
        for question in world.questions(Split::HeldOut) {
            let evidence = &question.evidence;
            assert!(
                evidence.len() <= 3 && question.golds.iter().all(|gold| evidence[0].contains(gold)),
                "{question:?}"
            );
            let sentences = evidence.iter().flat_map(|text| text.split_inclusive('.'));
            assert!(
                sentences.map(str::trim).all(|sentence| truth.is_true(sentence) == Some(true)),
                "{question:?}"
            );
        }
    }

    #[test]
    fn golds_are_entity_names() {
        let world = World::generate(1, &WorldSize::default());
        for question in world.questions(Split::Train) {
            assert!(!question.golds.is_empty());
            assert!(
                question
                    .golds
                    .iter()
                    .all(|gold| world.entities().iter().any(|entity| &entity.name == gold))
            );
        }
    }
}
