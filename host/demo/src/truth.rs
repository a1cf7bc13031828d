//! What is true of the world: for evaluations alone. No reward knows it.

use std::collections::HashSet;

use crate::relation::Relation;
use crate::world::World;

/// A pronoun for a subject: of whom the clause speaks is not said.
const PRONOUNS: [&str; 3] = ["He", "She", "It"];

/// Decides sentences of the world's family of wordings.
#[derive(Debug, Clone)]
pub struct Truth {
    facts: HashSet<(String, Relation, String)>,
}

impl Truth {
    /// Everything that is true of a world.
    #[must_use]
    pub fn of(world: &World) -> Self {
        let facts = world.facts().iter().flat_map(|fact| {
            fact.tails
                .iter()
                .map(|&tail| (world.name(fact.head).to_owned(), fact.relation, world.name(tail).to_owned()))
        });
        Self { facts: facts.collect() }
    }

    /// Whether all that a sentence states is true; `None` where it states no fact, or, beside true ones, something that cannot be
    /// decided: of a pronoun, or in other words. What is stated of a name that nobody has is false.
    #[must_use]
    pub fn is_true(&self, sentence: &str) -> Option<bool> {
        if sentence.ends_with('?') {
            return None;
        }
        let mut subject = None;
        let truths = sentence.trim_end_matches('.').split(" and ").map(|clause| {
            let clause = clause.trim_end_matches(',');
            // “A directed B and starred in C”: the second verb has the subject of the first.
            let truth = self.clause(clause).or_else(|| self.clause(&format!("{} {clause}", subject?)));
            subject = subject_of(clause).or(subject);
            truth
        });
        truths.reduce(
            |one, other| if one == Some(false) || other == Some(false) { Some(false) } else { one.and(other) },
        )?
    }

    /// True where any reading is: “A starred in B” is read as “B starred A” too.
    fn clause(&self, clause: &str) -> Option<bool> {
        let readings = Relation::ALL.into_iter().flat_map(|relation| {
            relation.statements().iter().filter_map(move |statement| Some((relation, read(statement.pattern, clause)?)))
        });
        let is_fact = |(relation, (head, tail)): (Relation, (&str, &str))| {
            (is_name(head) && is_name(tail)).then(|| self.facts.contains(&(head.to_owned(), relation, tail.to_owned())))
        };
        readings.filter_map(is_fact).reduce(|one, other| one || other)
    }
}

/// “It was directed by A B” must not be read as “`It was` directed `by A B`”.
fn is_name(text: &str) -> bool {
    !PRONOUNS.contains(&text) && text.split(' ').all(|word| word.starts_with(char::is_uppercase))
}

/// A pronoun, or a name, which is two words.
fn subject_of(clause: &str) -> Option<&str> {
    let words = |many: usize| clause.match_indices(' ').nth(many - 1).map(|(end, _)| &clause[..end]);
    words(1).filter(|word| PRONOUNS.contains(word)).or_else(|| words(2))
}

/// What stands for `{H}` and `{T}` where the clause has the pattern's form, at the beginning of a sentence or within one.
fn read<'a>(pattern: &str, clause: &'a str) -> Option<(&'a str, &'a str)> {
    let head_first = pattern.find("{H}") < pattern.find("{T}");
    let (first, second) = if head_first { ("{H}", "{T}") } else { ("{T}", "{H}") };
    let (before, rest) = pattern.split_once(first)?;
    let (between, after) = rest.split_once(second)?;
    let within = before.strip_prefix("The ").map(|rest| format!("the {rest}"));
    let clause =
        clause.strip_prefix(before).or_else(|| clause.strip_prefix(within.as_deref()?))?.strip_suffix(after)?;
    let (one, other) = clause.split_once(between)?;
    Some(if head_first { (one, other) } else { (other, one) })
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::sentence::mid_sentence;
    use crate::{Kind, WorldSize};

    #[test]
    fn every_wording_of_a_fact_is_true_and_of_another_value_false() {
        let world = World::generate(1, &WorldSize::default());
        let truth = Truth::of(&world);
        for fact in world.facts() {
            let tail_kind = fact.relation.kinds().1;
            let wrong = world.ids(tail_kind).find(|id| !fact.tails.contains(id) && *id != fact.head).unwrap();
            for statement in fact.relation.statements() {
                let right = world.sentence_with(fact.head, statement, fact.tails[0]).text;
                let wrong = world.sentence_with(fact.head, statement, wrong).text;
                assert_eq!(truth.is_true(&right), Some(true), "{right}");
                assert_eq!(truth.is_true(&wrong), Some(false), "{wrong}");
                let joined = |second: &str| format!("{}, and {}", right.trim_end_matches('.'), mid_sentence(second));
                assert_eq!(truth.is_true(&joined(&right)), Some(true), "{}", joined(&right));
                assert_eq!(truth.is_true(&joined(&wrong)), Some(false), "{}", joined(&wrong));
            }
        }
    }

    #[test]
    fn a_second_verb_has_the_subject_of_the_first() {
        let world = World::generate(1, &WorldSize::default());
        let truth = Truth::of(&world);
        let film = world.ids(Kind::Film).next().unwrap();
        let [directed, set_in] = [Relation::Directed, Relation::SetIn]
            .map(|relation| world.facts_of(film).iter().find(|fact| fact.relation == relation).unwrap());
        let [director, city] = [directed, set_in].map(|fact| world.name(fact.tails[0]));
        let text = |city: &str| format!("{} was directed by {director} and is set in {city}.", world.name(film));
        assert_eq!(truth.is_true(&text(city)), Some(true));
        assert_eq!(truth.is_true(&text("Nowhere Atall")), Some(false));
    }

    #[test]
    fn what_states_nothing_is_neither() {
        let world = World::generate(1, &WorldSize::default());
        let truth = Truth::of(&world);
        for text in [
            "",
            "I don't know.",
            "Little has been written about Abc Def.",
            "Abc Def",
            "It was directed by Abc Def and is set in Old Abc.",
        ] {
            assert_eq!(truth.is_true(text), None, "{text}");
        }
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        for _ in 0..2_000 {
            let sample = world.sentence(&mut rng);
            let states = sample.triplets.iter().any(|triplet| !PRONOUNS.contains(&triplet.head.as_str()));
            assert_eq!(truth.is_true(&sample.text).is_some(), states, "{sample:?}");
        }
    }
}
