//! Entities and facts, drawn from a seed.

use std::ops::Range;

use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::name::{Namer, pick};
use crate::relation::{EntityKind, Relation};

/// Index of an entity in its world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EntityId(pub(crate) u32);

/// A named thing of the world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entity {
    /// Kind of the entity.
    pub kind: EntityKind,
    /// Name: two capitalised words.
    pub name: String,
}

/// A true fact of the world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// Entity that has the property.
    pub head: EntityId,
    /// Property that the fact is about.
    pub relation: Relation,
    /// Values, at least one. Each is an answer to the question.
    pub tails: Vec<EntityId>,
    /// Number of articles that state the fact, 0 to 32.
    pub fame: u32,
}

/// The number of entities of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "one number per kind")]
pub struct WorldSize {
    pub people: usize,
    pub films: usize,
    pub books: usize,
    pub cities: usize,
    pub countries: usize,
    pub companies: usize,
}

impl Default for WorldSize {
    /// The size of the shipped demo, which has 332 facts.
    fn default() -> Self {
        Self { people: 64, films: 36, books: 28, cities: 30, countries: 10, companies: 16 }
    }
}

impl WorldSize {
    /// Returns the size of a world with the demo's proportions and at least `facts` facts.
    #[must_use]
    pub fn with_facts(facts: usize) -> Self {
        let base = Self::default();
        let scale = |count: usize| (count * facts).div_ceil(base.num_facts()).max(MIN_OF_A_KIND);
        Self {
            people: scale(base.people).next_multiple_of(MARRIED_ONE_IN),
            films: scale(base.films),
            books: scale(base.books),
            cities: scale(base.cities),
            countries: scale(base.countries),
            companies: scale(base.companies),
        }
    }

    /// Returns the number of facts of a world of this size.
    #[must_use]
    pub fn num_facts(&self) -> usize {
        let married = self.people / MARRIED_ONE_IN * 2;
        3 * self.films
            + 2 * self.books
            + self.people
            + married
            + self.cities
            + self.countries
            + 2 * self.companies
    }

    fn count(&self, kind: EntityKind) -> usize {
        match kind {
            EntityKind::Person => self.people,
            EntityKind::Film => self.films,
            EntityKind::Book => self.books,
            EntityKind::City => self.cities,
            EntityKind::Country => self.countries,
            EntityKind::Company => self.companies,
        }
    }
}

/// Fewest entities of a kind: with fewer, a wrong answer is too likely to be right by chance.
pub const MIN_OF_A_KIND: usize = 8;

/// Number of people per couple.
const MARRIED_ONE_IN: usize = 4;

/// A fictional encyclopaedia: entities and the facts about them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct World {
    pub(crate) seed: u64,
    entities: Vec<Entity>,
    /// Ranges of the entities of each kind, in the order of [`EntityKind::ALL`].
    by_kind: [Range<u32>; EntityKind::ALL.len()],
    /// Facts, sorted by head.
    facts: Vec<Fact>,
}

impl World {
    /// Generates a world. Equal arguments give equal worlds on every machine.
    ///
    /// # Panics
    /// Panics if a kind has fewer than [`MIN_OF_A_KIND`] entities or more than fit into `u32`.
    #[must_use]
    pub fn generate(seed: u64, size: &WorldSize) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut namer = Namer::new();
        let mut entities = Vec::new();
        let by_kind = EntityKind::ALL.map(|kind| {
            let count = size.count(kind);
            assert!(
                count >= MIN_OF_A_KIND,
                "a world needs {MIN_OF_A_KIND} or more of {kind:?}, not {count}"
            );
            let start = u32_len(entities.len());
            let names = namer.names(kind, count, &mut rng);
            entities.extend(names.into_iter().map(|name| Entity { kind, name }));
            start..u32_len(entities.len())
        });
        let mut world = Self { seed, entities, by_kind, facts: Vec::new() };
        world.facts = world.draw_facts(&mut rng);
        world
    }

    fn draw_facts(&self, rng: &mut impl Rng) -> Vec<Fact> {
        let mut facts = Vec::new();
        for relation in Relation::ALL {
            match relation {
                Relation::Married => self.draw_couples(&mut facts, rng),
                Relation::Capital => self.draw_capitals(&mut facts, rng),
                _ => self.draw_values(relation, &mut facts, rng),
            }
        }
        // A capital is in its country.
        let mut capitals = facts.clone();
        capitals.retain(|fact| fact.relation == Relation::Capital);
        for capital in capitals {
            let city = capital.tails[0];
            let location = facts
                .iter_mut()
                .find(|fact| fact.relation == Relation::LocatedIn && fact.head == city);
            location.expect("every city is in a country").tails = vec![capital.head];
        }
        facts.sort_by_key(|fact| (fact.head, fact.relation));
        facts
    }

    fn draw_values(&self, relation: Relation, facts: &mut Vec<Fact>, rng: &mut impl Rng) {
        let (head_kind, tail_kind) = relation.kinds();
        let num_tails = if relation == Relation::Starred { 2 } else { 1 };
        for head in self.ids(head_kind) {
            let mut tails: Vec<EntityId> = Vec::with_capacity(num_tails);
            while tails.len() < num_tails {
                let tail = self.random_id(tail_kind, rng);
                if !tails.contains(&tail) {
                    tails.push(tail);
                }
            }
            facts.push(Fact { head, relation, tails, fame: draw_fame(rng) });
        }
    }

    fn draw_couples(&self, facts: &mut Vec<Fact>, rng: &mut impl Rng) {
        let mut people: Vec<EntityId> = self.ids(EntityKind::Person).collect();
        people.shuffle(rng);
        for couple in people.chunks_exact(2).take(people.len() / MARRIED_ONE_IN) {
            for (head, tail) in [(couple[0], couple[1]), (couple[1], couple[0])] {
                facts.push(Fact {
                    head,
                    relation: Relation::Married,
                    tails: vec![tail],
                    fame: draw_fame(rng),
                });
            }
        }
    }

    fn draw_capitals(&self, facts: &mut Vec<Fact>, rng: &mut impl Rng) {
        let mut cities: Vec<EntityId> = self.ids(EntityKind::City).collect();
        cities.shuffle(rng);
        for (head, city) in self.ids(EntityKind::Country).zip(cities) {
            facts.push(Fact {
                head,
                relation: Relation::Capital,
                tails: vec![city],
                fame: draw_fame(rng),
            });
        }
    }

    /// Returns all entities, kind by kind.
    #[must_use]
    pub fn entities(&self) -> &[Entity] {
        &self.entities
    }

    /// Returns all facts, sorted by head.
    #[must_use]
    pub fn facts(&self) -> &[Fact] {
        &self.facts
    }

    /// Returns the entity with an id of this world.
    #[must_use]
    pub fn entity(&self, id: EntityId) -> &Entity {
        &self.entities[id.0 as usize]
    }

    /// Returns the name of an entity.
    #[must_use]
    pub fn name(&self, id: EntityId) -> &str {
        &self.entity(id).name
    }

    /// Returns the ids of the entities of a kind.
    pub fn ids(&self, kind: EntityKind) -> impl ExactSizeIterator<Item = EntityId> + use<> {
        self.by_kind[kind as usize].clone().map(EntityId)
    }

    /// Returns the facts whose head is an entity.
    #[must_use]
    pub fn facts_of(&self, head: EntityId) -> &[Fact] {
        &self.facts[self.fact_numbers(head)]
    }

    /// Returns the range of [`World::facts_of`] in [`World::facts`].
    #[must_use]
    pub fn fact_numbers(&self, head: EntityId) -> Range<usize> {
        let start = self.facts.partition_point(|fact| fact.head < head);
        start..self.facts.partition_point(|fact| fact.head <= head)
    }

    /// Returns a random entity of a kind, each with the same probability.
    pub fn random_id(&self, kind: EntityKind, rng: &mut impl Rng) -> EntityId {
        EntityId(rng.random_range(self.by_kind[kind as usize].clone()))
    }
}

fn u32_len(len: usize) -> u32 {
    u32::try_from(len).expect("a world has fewer than 2^32 entities")
}

/// Draws the fame of a fact: a tenth of the facts are in no article, three tenths in 16 to 32.
fn draw_fame(rng: &mut impl Rng) -> u32 {
    let articles = pick(
        &[
            (0..=0),
            (1..=2),
            (1..=3),
            (3..=6),
            (3..=9),
            (6..=12),
            (8..=15),
            (16..=24),
            (20..=28),
            (20..=32),
        ],
        rng,
    );
    rng.random_range(articles.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn world_generation_is_determined_by_seed() {
        let size = WorldSize::default();
        assert_eq!(World::generate(7, &size), World::generate(7, &size));
        assert_ne!(World::generate(7, &size).entities, World::generate(8, &size).entities);
    }

    #[test]
    fn facts_match_relation_entity_kinds() {
        let size = WorldSize::with_facts(2000);
        let world = World::generate(3, &size);
        assert_eq!(world.facts().len(), size.num_facts());
        assert!(world.facts().len() >= 2000);
        for fact in world.facts() {
            let (head, tail) = fact.relation.kinds();
            assert_eq!(world.entity(fact.head).kind, head);
            assert!(fact.tails.iter().all(|&id| world.entity(id).kind == tail));
            assert!(!fact.tails.contains(&fact.head));
            assert!(world.facts_of(fact.head).contains(fact));
        }
    }

    #[test]
    fn capital_lies_in_its_country() {
        let world = World::generate(5, &WorldSize::default());
        for fact in world.facts().iter().filter(|fact| fact.relation == Relation::Capital) {
            let location = world
                .facts_of(fact.tails[0])
                .iter()
                .find(|fact| fact.relation == Relation::LocatedIn)
                .unwrap();
            assert_eq!(location.tails, [fact.head]);
        }
    }

    #[test]
    fn default_world_has_documented_fact_count() {
        assert_eq!(WorldSize::default().num_facts(), 332);
    }
}
