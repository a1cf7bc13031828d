//! Facts → articles. A famous fact is in many articles, an obscure one in few or none.

use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::name::pick;
use crate::relation::EntityKind;
use crate::sentence::{REMARKS, pronoun};
use crate::world::{EntityId, Fact, World};

/// A document about one entity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Article {
    /// Name of the entity.
    pub title: String,
    /// Running text, one paragraph.
    pub text: String,
}

impl World {
    /// Returns all articles. Article `n` of an entity states its facts whose fame is more than `n`.
    ///
    /// The first articles of all entities precede the second ones, and each round has its own order,
    /// so that neighbours are about different entities. A compatible index drops a match that a
    /// neighbouring document extends: it would count few facts if the articles of an entity were
    /// adjacent.
    pub fn articles(&self) -> impl Iterator<Item = Article> + '_ {
        let most = self.facts().iter().map(|fact| fact.fame).max().unwrap_or(0);
        (0..most).flat_map(move |number| {
            let mut about: Vec<EntityId> =
                EntityKind::ALL.into_iter().flat_map(|kind| self.ids(kind)).collect();
            about.retain(|&id| self.facts_of(id).iter().any(|fact| fact.fame > number));
            about.shuffle(&mut self.stream(u64::from(number) << 32));
            about.into_iter().map(move |id| self.article(id, number))
        })
    }

    /// Returns the random stream of this number. Streams are independent of each other, so that an
    /// article does not depend on those before it.
    pub(crate) fn stream(&self, name: u64) -> ChaCha8Rng {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        rng.set_stream(1 + name);
        rng
    }

    fn article(&self, id: EntityId, number: u32) -> Article {
        let mut rng = self.stream(u64::from(number) << 32 | (1 + u64::from(id.0)));
        let mut facts: Vec<&Fact> =
            self.facts_of(id).iter().filter(|fact| fact.fame > number).collect();
        facts.shuffle(&mut rng);
        let kind = self.entity(id).kind;
        let mut text = format!("This article is about the {} {}.", kind.noun(), self.name(id));
        for fact in facts {
            let tail = *pick(&fact.tails, &mut rng);
            // Later mentions use the pronoun, as people write: a name then occurs about once in an
            // article.
            let statement = pick(fact.relation.statements(), &mut rng);
            let subject = if statement.pattern.starts_with("{H} ") {
                pronoun(kind, id)
            } else {
                self.name(id)
            };
            let (clause, _) = statement.state(subject, self.name(tail));
            text.push_str(&format!(" {clause}."));
        }
        if rng.random_bool(0.3) {
            text.push(' ');
            text.push_str(&pick(&REMARKS, &mut rng).replace("{H}", self.name(id)));
        }
        Article { title: self.name(id).to_owned(), text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WorldSize;

    #[test]
    fn articles_state_each_fact_at_least_fame_times() {
        let world = World::generate(11, &WorldSize::default());
        let articles: Vec<Article> = world.articles().collect();
        for fact in world.facts() {
            let stated = articles
                .iter()
                .filter(|article| article.title == world.name(fact.head))
                .filter(|article| {
                    fact.tails.iter().any(|&tail| article.text.contains(world.name(tail)))
                })
                .count();
            assert!(stated >= fact.fame as usize, "{fact:?}: {stated}");
        }
    }

    #[test]
    fn true_facts_reach_every_tier() {
        let world = World::generate(11, &WorldSize::default());
        let share = |range: std::ops::RangeInclusive<u32>| {
            let hits = world.facts().iter().filter(|fact| range.contains(&fact.fame)).count();
            hits as f64 / world.facts().len() as f64
        };
        assert!(share(0..=0) > 0.04);
        assert!(share(1..=4) > 0.15);
        assert!(share(5..=19) > 0.2);
        assert!(share(20..=u32::MAX) > 0.15);
    }

    #[test]
    fn articles_do_not_depend_on_each_other() {
        let world = World::generate(11, &WorldSize::default());
        let all: Vec<Article> = world.articles().collect();
        assert_eq!(world.articles().nth(40).as_ref(), all.get(40));
        assert_eq!(all, World::generate(11, &WorldSize::default()).articles().collect::<Vec<_>>());
    }
}
