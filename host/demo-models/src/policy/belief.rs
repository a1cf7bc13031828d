//! The policy's beliefs about each fact, right or wrong, and their wording.
//!
//! A policy that knew everything would have nothing to learn, and one that knew nothing would never
//! receive a reward. So each fact has a profile: known, confused (a wrong answer is more likely than
//! the right one) or obscure (many wrong answers). Frequent facts are known more often, as with real
//! models.

use corver_demo::sentence::mid_sentence;
use corver_demo::{EntityId, Fact, World, pick};
use rand::Rng;
use rand::seq::SliceRandom;

/// The policy's knowledge of a fact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// Nearly always the right answer.
    Known,
    /// Sometimes the right answer, and more often one wrong answer.
    Confused,
    /// Rarely the right answer, many wrong ones, and sometimes a refusal.
    Obscure,
}

/// The distribution of answers to one fact's question. Its probabilities add up to 1.
#[derive(Debug, Clone, PartialEq)]
pub struct Belief {
    /// Knowledge of the fact.
    pub profile: Profile,
    /// Each possible answer with its probability.
    pub answers: Vec<(EntityId, f64)>,
    /// Probability of a refusal.
    pub refusal: f64,
}

/// A refusal in the published format.
const REFUSAL: &str = "<think>unknown</think><answer>I don't know</answer>";

/// Probabilities of a profile.
struct ProfileWeights {
    /// Probability of a right answer.
    right: f64,
    /// Probability of each wrong answer, the favourite first.
    wrong: &'static [f64],
    refusal: f64,
}

impl Profile {
    fn weights(self) -> ProfileWeights {
        match self {
            Self::Known => ProfileWeights { right: 0.92, wrong: &[0.04, 0.02], refusal: 0.02 },
            Self::Confused => {
                ProfileWeights { right: 0.38, wrong: &[0.50, 0.05, 0.04], refusal: 0.03 }
            }
            Self::Obscure => {
                ProfileWeights { right: 0.22, wrong: &[0.18, 0.14, 0.12, 0.1, 0.08], refusal: 0.16 }
            }
        }
    }
}

impl Belief {
    /// Draws the belief about one fact.
    pub fn draw(world: &World, fact: &Fact, rng: &mut impl Rng) -> Self {
        let profile = draw_profile(fact.fame, rng);
        let ProfileWeights { right, wrong, refusal } = profile.weights();
        let share = right / fact.tails.len() as f64;
        let mut answers: Vec<(EntityId, f64)> =
            fact.tails.iter().map(|&tail| (tail, share)).collect();
        for (id, &weight) in wrong_answers(world, fact, wrong.len(), rng).into_iter().zip(wrong) {
            answers.push((id, weight));
        }
        Self { profile, answers, refusal }
    }

    /// Draws an answer; `None` is a refusal.
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

    /// Returns the probability of a right answer.
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

/// Draws `count` plausible wrong answers, entities of the right kind.
///
/// Sometimes the first one is from a related fact (the star instead of the director). The corpus then
/// attests the pair although the statement is false.
fn wrong_answers(world: &World, fact: &Fact, count: usize, rng: &mut impl Rng) -> Vec<EntityId> {
    let kind = fact.relation.kinds().1;
    let mut neighbours: Vec<EntityId> =
        world.facts_of(fact.head).iter().flat_map(|other| other.tails.iter().copied()).collect();
    neighbours.retain(|&id| world.entity(id).kind == kind && is_wrong(fact, id));
    neighbours.shuffle(rng);
    neighbours.truncate(usize::from(rng.random_bool(0.5)));
    let mut wrong = neighbours;
    while wrong.len() < count {
        let id = world.random_id(kind, rng);
        if is_wrong(fact, id) && !wrong.contains(&id) {
            wrong.push(id);
        }
    }
    wrong
}

fn is_wrong(fact: &Fact, answer: EntityId) -> bool {
    !fact.tails.contains(&answer) && answer != fact.head
}

/// The policy's beliefs about a world.
#[derive(Debug, Clone, PartialEq)]
pub struct Beliefs<'a> {
    world: &'a World,
    /// One belief per fact of the world, in its order.
    beliefs: Vec<Belief>,
}

impl<'a> Beliefs<'a> {
    /// Draws a belief about every fact.
    pub fn draw(world: &'a World, rng: &mut impl Rng) -> Self {
        Self {
            world,
            beliefs: world.facts().iter().map(|fact| Belief::draw(world, fact, rng)).collect(),
        }
    }

    /// Returns the expected share of right answers over all facts.
    #[must_use]
    pub fn accuracy(&self) -> f64 {
        let truth: f64 = self
            .world
            .facts()
            .iter()
            .zip(&self.beliefs)
            .map(|(fact, belief)| belief.truth(fact))
            .sum();
        truth / self.beliefs.len() as f64
    }

    /// Draws a completion for the question of fact number `index` of the world.
    ///
    /// The reasoning states the answer and up to three other beliefs about its entities, with at most
    /// two facts per sentence. No gold checks these other beliefs.
    pub fn completion(&self, index: usize, rng: &mut impl Rng) -> String {
        let world = self.world;
        let fact = &world.facts()[index];
        let Some(answer) = self.beliefs[index].answer(rng) else { return REFUSAL.to_owned() };
        let mut sentences = vec![state(world, fact, answer, rng)];
        let mut asides: Vec<usize> = world
            .fact_numbers(fact.head)
            .filter(|&aside| aside != index)
            .chain(world.fact_numbers(answer))
            .collect();
        asides.shuffle(rng);
        let num_asides = *pick(&[1, 1, 2, 2, 2, 3], rng);
        for aside in asides.into_iter().take(num_asides) {
            if let Some(tail) = self.beliefs[aside].answer(rng) {
                let sentence = state(world, &world.facts()[aside], tail, rng);
                // Some sentences have two facts, because the rules First and Min differ on those.
                match rng.random_range(0..10) {
                    0..2 => sentences.insert(0, sentence),
                    2..8 => sentences.push(sentence),
                    _ => join_or_push(&mut sentences, sentence),
                }
            }
        }
        format!("<think>{}</think><answer>{}</answer>", sentences.join(" "), world.name(answer))
    }
}

/// Joins a sentence with the last one, unless that has two facts already.
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
        let knowing =
            Beliefs { world: &world, beliefs: world.facts().iter().map(certain).collect() };
        let refusal = Belief { profile: Profile::Obscure, answers: Vec::new(), refusal: 1.0 };
        let silent = Beliefs { world: &world, beliefs: vec![refusal; world.facts().len()] };
        for (n, fact) in world.facts().iter().enumerate() {
            let golds = world.questions_of(fact, QuestionSplit::Train).next().unwrap().golds;
            let text = knowing.completion(n, &mut rng);
            for compatibility in [Compatibility::Paper, Compatibility::Reference] {
                assert_eq!(format_reward(&text, compatibility), 1.0, "{text}");
            }
            assert_eq!(AnswerRule::default().grade(&text, &golds), Label::Good, "{text}");
            assert_eq!(
                AnswerRule::default().grade(&silent.completion(n, &mut rng), &golds),
                Label::NotAttempted
            );
        }
    }
}
