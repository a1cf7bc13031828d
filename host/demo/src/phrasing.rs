//! Facts → questions, in several phrasings.

use corver_core::Question;

use crate::world::{EntityId, Fact, World};

/// The phrasings of a question, by their use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuestionSplit {
    /// Phrasings that the policy is trained on.
    Train,
    /// Phrasings for evaluation, which are never trained on.
    HeldOut,
}

impl World {
    /// Returns the questions of a fact, one per phrasing of the split. Their evidence is a text with
    /// all facts of the subject, and one for each gold.
    pub fn questions_of<'a>(
        &'a self,
        fact: &'a Fact,
        split: QuestionSplit,
    ) -> impl Iterator<Item = Question> + 'a {
        let wording = fact.relation.wording();
        let patterns = match split {
            QuestionSplit::Train => wording.train_questions,
            QuestionSplit::HeldOut => wording.held_out_questions,
        };
        let mut evidence: Vec<String> = Vec::new();
        for &id in std::iter::once(&fact.head).chain(&fact.tails) {
            evidence.extend(self.facts_as_text(id));
        }
        patterns.iter().map(move |pattern| Question {
            question: pattern.replace("{H}", self.name(fact.head)),
            golds: fact.tails.iter().map(|&tail| self.name(tail).to_owned()).collect(),
            title: Some(self.name(fact.head).to_owned()),
            evidence: evidence.clone(),
            ..Question::default()
        })
    }

    /// Returns all facts of an entity as sentences. `None`: there are none.
    fn facts_as_text(&self, id: EntityId) -> Option<String> {
        let mut sentences = Vec::new();
        for fact in self.facts_of(id) {
            for &tail in &fact.tails {
                let statement = &fact.relation.statements()[0];
                sentences.push(self.sentence_with(id, statement, tail).text);
            }
        }
        (!sentences.is_empty()).then(|| sentences.join(" "))
    }

    /// Returns all questions of the split.
    #[must_use]
    pub fn questions(&self, split: QuestionSplit) -> Vec<Question> {
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
        let train = texts(QuestionSplit::Train);
        let held_out = texts(QuestionSplit::HeldOut);
        assert_eq!(train.len(), 6 * world.facts().len());
        assert_eq!(held_out.len(), 2 * world.facts().len());
        assert!(train.is_disjoint(&held_out));
    }

    #[test]
    fn question_evidence_states_golds_and_only_truths() {
        let world = World::generate(1, &WorldSize::default());
        let truth = crate::WorldTruth::new(&world);
        for question in world.questions(QuestionSplit::HeldOut) {
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
        for question in world.questions(QuestionSplit::Train) {
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
