//! What the policy believes about each fact, right or wrong, and how it puts it into words.
//!
//! A policy that knew everything would leave nothing to learn, one that knew nothing would never be
//! rewarded. So each fact has a profile: known, confused (a wrong answer is more likely than the
//! right one) or obscure (many wrong answers). What is written about often is known more often, as
//! with real models.

use corver_demo::sentence::mid_sentence;
use corver_demo::{EntityId, Fact, World, pick};
use rand::Rng;
use rand::seq::SliceRandom;

/// How well the policy knows a fact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// The right answer nearly always.
    Known,
    /// The right answer at times, one certain wrong answer more often.
    Confused,
    /// Hardly ever right, no favourite, refuses at times.
    Obscure,
}

/// The policy's answers to one fact's question. Weights and refusal add up to 1.
#[derive(Debug, Clone, PartialEq)]
pub struct Belief {
    /// Which kind of belief.
    pub profile: Profile,
    /// Each possible answer with its probability.
    pub answers: Vec<(EntityId, f64)>,
    /// Probability of saying that it does not know.
    pub refusal: f64,
}

/// A refusal in the published form.
const REFUSAL: &str = "<think>unknown</think><answer>I don't know</answer>";

impl Belief {
    /// The belief about one fact.
    pub fn draw(world: &World, fact: &Fact, rng: &mut impl Rng) -> Self {
        let profile = draw_profile(fact.fame, rng);
        let (truth, wrong, refusal): (f64, &[f64], f64) = match profile {
            Profile::Known => (0.92, &[0.04, 0.02], 0.02),
            Profile::Confused => (0.38, &[0.50, 0.05, 0.04], 0.03),
            Profile::Obscure => (0.22, &[0.18, 0.14, 0.12, 0.1, 0.08], 0.16),
        };
        let share = truth / fact.tails.len() as f64;
        let mut answers: Vec<(EntityId, f64)> =
            fact.tails.iter().map(|&tail| (tail, share)).collect();
        for (id, &weight) in wrong_answers(world, fact, wrong.len(), rng).into_iter().zip(wrong) {
            answers.push((id, weight));
        }
        Self { profile, answers, refusal }
    }

    /// An answer, or `None` for a refusal.
    pub fn answer(&self, rng: &mut impl Rng) -> Option<EntityId> {
        let mut left: f64 = rng.random();
        for &(id, weight) in &self.answers {
            if left < weight {
                return Some(id);
            }
            left -= weight;
        }
        None
    }

    /// Probability of a right answer.
    #[must_use]
    pub fn truth(&self, fact: &Fact) -> f64 {
        self.answers
            .iter()
            .filter(|(id, _)| fact.tails.contains(id))
            .map(|(_, weight)| weight)
            .sum()
    }
}

fn draw_profile(fame: u32, rng: &mut impl Rng) -> Profile {
    let (known, confused) = match fame {
        0 => (0.15, 0.40),
        1..5 => (0.25, 0.45),
        5..20 => (0.40, 0.40),
        _ => (0.50, 0.35),
    };
    let draw: f64 = rng.random();
    if draw < known {
        Profile::Known
    } else if draw < known + confused {
        Profile::Confused
    } else {
        Profile::Obscure
    }
}

/// Plausible wrong answers: of the right kind, the first one now and then from the neighbourhood of
/// the fact (the star instead of the director), which a corpus attests as a pair although the
/// statement is false.
fn wrong_answers(world: &World, fact: &Fact, count: usize, rng: &mut impl Rng) -> Vec<EntityId> {
    let kind = fact.relation.kinds().1;
    let is_wrong = |id: &EntityId| !fact.tails.contains(id) && *id != fact.head;
    let mut neighbours: Vec<EntityId> =
        world.facts_of(fact.head).iter().flat_map(|other| other.tails.iter().copied()).collect();
    neighbours.retain(|id| world.entity(*id).kind == kind && is_wrong(id));
    neighbours.shuffle(rng);
    neighbours.truncate(usize::from(rng.random_bool(0.5)));
    let mut wrong = neighbours;
    while wrong.len() < count {
        let id = world.random_id(kind, rng);
        if is_wrong(&id) && !wrong.contains(&id) {
            wrong.push(id);
        }
    }
    wrong
}

/// Everything that the policy believes about a world.
#[derive(Debug, Clone, PartialEq)]
pub struct Beliefs<'a> {
    world: &'a World,
    /// One per fact of the world, in its order.
    each: Vec<Belief>,
}

impl<'a> Beliefs<'a> {
    /// The beliefs about every fact.
    pub fn draw(world: &'a World, rng: &mut impl Rng) -> Self {
        Self {
            world,
            each: world.facts().iter().map(|fact| Belief::draw(world, fact, rng)).collect(),
        }
    }

    /// Share of right answers, over all facts, of a speaker who draws from these beliefs.
    #[must_use]
    pub fn accuracy(&self) -> f64 {
        let truth: f64 = self
            .world
            .facts()
            .iter()
            .zip(&self.each)
            .map(|(fact, belief)| belief.truth(fact))
            .sum();
        truth / self.each.len() as f64
    }

    /// What the policy says when asked for fact number `index` of the world: reasoning, of two to
    /// four facts in as many sentences or fewer, that states its answer and what else it believes
    /// about the entities, as far as it does; then the answer. No gold checks the rest.
    pub fn completion(&self, index: usize, rng: &mut impl Rng) -> String {
        let world = self.world;
        let fact = &world.facts()[index];
        let Some(answer) = self.each[index].answer(rng) else { return REFUSAL.to_owned() };
        let mut sentences = vec![state(world, fact, answer, rng)];
        let mut asides: Vec<usize> = world
            .fact_numbers(fact.head)
            .filter(|&aside| aside != index)
            .chain(world.fact_numbers(answer))
            .collect();
        asides.shuffle(rng);
        let num_asides = *pick(&[1, 1, 2, 2, 2, 3], rng);
        for aside in asides.into_iter().take(num_asides) {
            if let Some(tail) = self.each[aside].answer(rng) {
                let aside = state(world, &world.facts()[aside], tail, rng);
                // Two facts in one sentence, now and then: there the rules part ways.
                match rng.random_range(0..10) {
                    0..2 => sentences.insert(0, aside),
                    2..8 => sentences.push(aside),
                    _ => join_or_push(&mut sentences, aside),
                }
            }
        }
        format!("<think>{}</think><answer>{}</answer>", sentences.join(" "), world.name(answer))
    }
}

/// Makes one sentence of the last one and another; a sentence holds two facts at most.
fn join_or_push(sentences: &mut Vec<String>, other: String) {
    match sentences.last_mut() {
        Some(last) if !last.contains(", and ") => {
            *last = format!("{}, and {}", last.trim_end_matches('.'), mid_sentence(&other));
        }
        _ => sentences.push(other),
    }
}

fn state(world: &World, fact: &Fact, tail: EntityId, rng: &mut impl Rng) -> String {
    world.sentence_with(fact.head, pick(fact.relation.statements(), rng), tail).text
}

#[cfg(test)]
mod tests {
    use corver_core::response::{AnswerRule, format_reward};
    use corver_core::{Compatibility, Label};
    use corver_demo::{QuestionSplit, WorldSize};
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    #[test]
    fn belief_weights_sum_to_one() {
        let world = World::generate(2, &WorldSize::default());
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for fact in world.facts() {
            let belief = Belief::draw(&world, fact, &mut rng);
            let sum: f64 =
                belief.answers.iter().map(|(_, weight)| weight).sum::<f64>() + belief.refusal;
            assert!((sum - 1.0).abs() < 1e-9, "{sum}");
            let wrong = belief.answers.iter().filter(|(id, _)| !fact.tails.contains(id)).count();
            assert_eq!(wrong, belief.answers.len() - fact.tails.len());
            assert!(
                belief
                    .answers
                    .iter()
                    .all(|(id, _)| world.entity(*id).kind == fact.relation.kinds().1)
            );
        }
    }

    #[test]
    fn belief_accuracy_lies_near_one_half() {
        let world = World::generate(2, &WorldSize::default());
        let accuracy = Beliefs::draw(&world, &mut ChaCha8Rng::seed_from_u64(1)).accuracy();
        assert!((0.42..0.62).contains(&accuracy), "{accuracy}");
    }

    #[test]
    fn belief_completions_satisfy_format_check_and_judge() {
        let world = World::generate(2, &WorldSize::default());
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let certain = |fact: &Fact| Belief {
            profile: Profile::Known,
            answers: vec![(fact.tails[0], 1.0)],
            refusal: 0.0,
        };
        let knowing = Beliefs { world: &world, each: world.facts().iter().map(certain).collect() };
        let silent = Belief { profile: Profile::Obscure, answers: Vec::new(), refusal: 1.0 };
        let silent = Beliefs { world: &world, each: vec![silent; world.facts().len()] };
        for (n, fact) in world.facts().iter().enumerate() {
            let golds = world.questions_of(fact, QuestionSplit::Train).next().unwrap().golds;
            let text = knowing.completion(n, &mut rng);
            for compatibility in [Compatibility::Paper, Compatibility::Reference] {
                assert_eq!(format_reward(&text, compatibility), 1.0, "{text}");
            }
            assert_eq!(AnswerRule::Paper.grade(&text, &golds), Label::Good, "{text}");
            assert_eq!(
                AnswerRule::Paper.grade(&silent.completion(n, &mut rng), &golds),
                Label::NotAttempted
            );
        }
    }
}
