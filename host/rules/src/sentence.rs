//! Sentence rules: completions and what is asked about them → verdicts.

use corver_core::{
    Backends, BoxError, Capability, Completion, CorpusSize, Credit, CreditKind, Exchange, Lookup,
    SentenceScorer, TokenReward, Verdict,
};

use crate::bindings::{sentence_scoring, types, with_lowered};
use crate::check::check_text;
use crate::error::Fault;
use crate::instance::{Failure, Instance};
use crate::questions::{Answered, with_replies};
use crate::rounds::{Allowed, Judgement, Outcome, Place, Said, Session};
use crate::{Limits, Rule, RuleError};

/// By how much the shares of a reward may miss it, relative to what they are made of: rounding.
const SHARES_TOLERANCE: f32 = 1e-4;

impl Rule {
    /// For each completion, one verdict per sentence, all in order. A fresh instance of the rule
    /// judges them, so nothing is left of earlier ones; large batches take several, on all cores.
    ///
    /// # Errors
    /// Where the rule breaks its contract or a limit, or a verifier fails. There is no partial
    /// answer.
    pub fn score(
        &self,
        completions: &[Completion<'_>],
        verifiers: &mut Backends<'_>,
    ) -> Result<Vec<Vec<Verdict>>, RuleError> {
        self.judge(completions, verifiers)
    }
}

impl SentenceScorer for Rule {
    fn required_capabilities(&self) -> Vec<Capability> {
        self.manifest().requires.clone()
    }

    fn reads_triplets(&self) -> bool {
        self.manifest().reads_triplets
    }

    fn credit(&self) -> CreditKind {
        self.manifest().credit
    }

    fn score(
        &mut self,
        completions: &[Completion<'_>],
        verifiers: &mut Backends<'_>,
    ) -> Result<Vec<Vec<Verdict>>, BoxError> {
        Ok(Self::score(self, completions, verifiers)?)
    }
}

impl Session for Instance<sentence_scoring::Guest> {
    type Judgement = Verdict;

    fn begin(&mut self, completions: &[Completion<'_>], size: CorpusSize) -> Said<Verdict> {
        let CorpusSize { tokens, documents } = size;
        let wire_size = types::CorpusSize { tokens, documents };
        let outcomes = with_lowered(completions, |completions| {
            self.call(|rule, store| rule.call_score(store, completions, wire_size))
        });
        raised(outcomes)
    }

    fn resume(&mut self, answered: &[Answered]) -> Said<Verdict> {
        let outcomes = with_replies(answered, |replies| {
            self.call(|rule, store| rule.call_resume(store, replies))
        });
        raised(outcomes)
    }

    fn into_reports(self) -> Vec<String> {
        self.into_reports()
    }
}

fn raised(outcomes: Result<Vec<Vec<types::SentenceOutcome>>, Failure>) -> Said<Verdict> {
    let outcome = |outcome| match outcome {
        types::SentenceOutcome::Done(scored) => Outcome::Judged(verdict(scored)),
        types::SentenceOutcome::Abstain(note) => {
            Outcome::Judged(Verdict { note, ..Verdict::default() })
        }
        types::SentenceOutcome::Pending(requests) => Outcome::Asks(requests),
    };
    Ok(outcomes?
        .into_iter()
        .map(|completion| completion.into_iter().map(outcome).collect())
        .collect())
}

fn verdict(types::Verdict { reward, credit, count, triplet, note }: types::Verdict) -> Verdict {
    let token_reward = |types::TokenReward { character, reward }| TokenReward { character, reward };
    let credit = match credit {
        None => Credit::Sentence,
        Some(types::Credit::TokenRewards(parts)) => {
            Credit::TokenRewards(parts.into_iter().map(token_reward).collect())
        }
        Some(types::Credit::AdvantageSign) => Credit::AdvantageSign,
    };
    Verdict { reward: Some(reward), credit, count, triplet, note, ..Verdict::default() }
}

impl Judgement for Verdict {
    fn subjects(completion: &Completion<'_>) -> usize {
        completion.sentences.len()
    }

    fn check(
        &self,
        completion: &Completion<'_>,
        place: Place,
        Allowed { limits, credit, .. }: Allowed<'_>,
    ) -> Result<(), Fault> {
        let Place { completion: number, index } = place;
        let sentence = &completion.sentences[index];
        if let Some(reward) = self.reward.filter(|reward| !reward.is_finite()) {
            return Err(Fault::Contract(format!(
                "gave sentence {index} of completion {number} the reward {reward}; it must be \
                 finite"
            )));
        }
        let triplets = sentence.triplets.len();
        if let Some(got) = self.triplet.filter(|&triplet| triplet as usize >= triplets) {
            return Err(Fault::Contract(format!(
                "names triplet {got} in sentence {index} of completion {number}, which has \
                 {triplets}"
            )));
        }
        let is_declared = match &self.credit {
            Credit::Sentence => true,
            Credit::TokenRewards(parts) => {
                check_points(parts, self.reward.unwrap_or(0.0), &sentence.text, place)?;
                credit == CreditKind::TokenRewards
            }
            Credit::AdvantageSign => credit == CreditKind::AdvantageSign,
        };
        if !is_declared {
            return Err(Fault::Contract(format!(
                "gave sentence {index} of completion {number} a credit that its manifest does not \
                 declare (`credit`)"
            )));
        }
        self.note.as_ref().map_or(Ok(()), |note| check_text("note", note, limits.text_bytes))
    }

    fn check_asked(place: Place, got: usize, limits: &Limits) -> Result<(), Fault> {
        let Place { completion, index } = place;
        let limit = limits.requests_per_sentence;
        if got > limit {
            return Err(Fault::Limit(format!(
                "asked {got} questions about sentence {index} of completion {completion}; at most \
                 {limit} are allowed (limits.requests_per_sentence)"
            )));
        }
        Ok(())
    }

    fn resting_on(self, lookups: Vec<Lookup>, exchanges: Vec<Exchange>) -> Self {
        Self { lookups, exchanges, ..self }
    }
}

/// Whether these are shares of the reward, each at a character that the sentence has.
fn check_points(
    points: &[TokenReward],
    reward: f32,
    text: &str,
    place: Place,
) -> Result<(), Fault> {
    let Place { completion, index } = place;
    let characters = text.chars().count();
    if let Some(point) = points.iter().find(|point| point.character as usize >= characters) {
        return Err(Fault::Contract(format!(
            "pays character {} of sentence {index} of completion {completion}, which has \
             {characters}",
            point.character
        )));
    }
    let (sum, size) = points
        .iter()
        .fold((0.0, 1.0), |(sum, size), point| (sum + point.reward, size + point.reward.abs()));
    if size.is_finite() && (sum - reward).abs() <= SHARES_TOLERANCE * size {
        Ok(())
    } else {
        Err(Fault::Contract(format!(
            "gave sentence {index} of completion {completion} the reward {reward}, and shares of \
             it that add up to {sum}"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corver_core::{Section, Sentence};

    #[test]
    fn point_rewards_must_sum_to_sentence_reward() {
        let text = "Größe.".to_owned();
        let sentences =
            [Sentence { text, section: Section::Think, span: None, triplets: Vec::new() }];
        let completion = Completion { sentences: &sentences, ..Completion::default() };
        let check = |points: &[(u32, f32)], reward: f32| {
            let points = points
                .iter()
                .map(|&(character, reward)| TokenReward { character, reward })
                .collect();
            let verdict = Verdict {
                reward: Some(reward),
                credit: Credit::TokenRewards(points),
                ..Verdict::default()
            };
            let allowed = Allowed {
                limits: &Limits::default(),
                requires: &[],
                credit: CreditKind::TokenRewards,
            };
            verdict.check(&completion, Place { completion: 7, index: 0 }, allowed)
        };
        assert_eq!(check(&[(0, 0.1), (5, 0.2), (5, -0.7)], -0.4), Ok(()));
        assert_eq!(check(&[], 0.0), Ok(()));
        let fault = |problem: &str| Err(Fault::Contract(problem.into()));
        let beyond = "pays character 6 of sentence 0 of completion 7, which has 6";
        assert_eq!(check(&[(6, 0.1)], 0.1), fault(beyond));
        let shares =
            "gave sentence 0 of completion 7 the reward 0.2, and shares of it that add up to 0.1";
        assert_eq!(check(&[(0, 0.1)], 0.2), fault(shares));
        for (endless, sum) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf")] {
            let shares = format!(
                "gave sentence 0 of completion 7 the reward 0.1, and shares of it that add up to \
                 {sum}"
            );
            assert_eq!(check(&[(0, endless)], 0.1), fault(&shares));
        }
    }
}
