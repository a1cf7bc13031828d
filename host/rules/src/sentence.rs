//! Sentence rules: completions and the replies about them → verdicts.

use corver_core::{
    Backends, BoxError, Capability, Completion, CorpusInfo, Credit, CreditKind, Exchange, Lookup,
    SentenceScorer, SentenceVerdict, TokenReward,
};

use crate::bindings::{sentence_scoring, types, wire_info, with_wire_completions};
use crate::check::check_text;
use crate::error::{Failure, Fault};
use crate::instance::Instance;
use crate::requests::{AnsweredRequest, with_wire_replies};
use crate::rounds::{Decision, Outcome, Permissions, Session, SubjectIndex};
use crate::{Limits, Rule, RuleError};

/// Greatest rounding error of the sum of token rewards, relative to 1 plus their absolute values.
const SUM_TOLERANCE: f32 = 1e-4;

impl Rule {
    /// Returns one verdict per sentence of each completion, in order.
    ///
    /// A fresh instance of the rule scores them, so that no state passes between batches. A large
    /// batch is split between several instances, which run in parallel.
    ///
    /// # Errors
    /// Fails if the rule breaks its contract or a limit, or a backend fails; no verdict is returned
    /// then.
    pub fn score(
        &self,
        completions: &[Completion<'_>],
        backends: &mut Backends<'_>,
    ) -> Result<Vec<Vec<SentenceVerdict>>, RuleError> {
        self.run(completions, backends)
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
        backends: &mut Backends<'_>,
    ) -> Result<Vec<Vec<SentenceVerdict>>, BoxError> {
        Ok(Self::score(self, completions, backends)?)
    }
}

impl Session for Instance<sentence_scoring::Guest> {
    type Decision = SentenceVerdict;

    fn start(
        &mut self,
        completions: &[Completion<'_>],
        info: CorpusInfo,
    ) -> Result<Vec<Vec<Outcome<SentenceVerdict>>>, Failure> {
        let outcomes = with_wire_completions(completions, |wire_completions| {
            self.call(|rule, store| rule.call_score(store, wire_completions, wire_info(info)))
        })?;
        Ok(from_wire(outcomes))
    }

    fn resume(
        &mut self,
        answered: &[AnsweredRequest],
    ) -> Result<Vec<Vec<Outcome<SentenceVerdict>>>, Failure> {
        let outcomes = with_wire_replies(answered, |replies| {
            self.call(|rule, store| rule.call_resume(store, replies))
        })?;
        Ok(from_wire(outcomes))
    }

    fn into_reports(self) -> Vec<String> {
        self.into_reports()
    }
}

fn from_wire(outcomes: Vec<Vec<types::SentenceOutcome>>) -> Vec<Vec<Outcome<SentenceVerdict>>> {
    outcomes
        .into_iter()
        .map(|completion| completion.into_iter().map(outcome_from_wire).collect())
        .collect()
}

fn outcome_from_wire(outcome: types::SentenceOutcome) -> Outcome<SentenceVerdict> {
    match outcome {
        types::SentenceOutcome::Done(verdict) => Outcome::Done(verdict_from_wire(verdict)),
        types::SentenceOutcome::Abstain(note) => {
            Outcome::Done(SentenceVerdict { note, ..SentenceVerdict::default() })
        }
        types::SentenceOutcome::Pending(requests) => Outcome::Pending(requests),
    }
}

fn verdict_from_wire(verdict: types::Verdict) -> SentenceVerdict {
    let types::Verdict { reward, credit: wire_credit, count, triplet, note } = verdict;
    let credit = match wire_credit {
        None => Credit::Sentence,
        Some(types::Credit::TokenRewards(parts)) => {
            let mut token_rewards = Vec::with_capacity(parts.len());
            for part in parts {
                token_rewards.push(TokenReward { character: part.character, reward: part.reward });
            }
            Credit::TokenRewards(token_rewards)
        }
        Some(types::Credit::AdvantageSign) => Credit::AdvantageSign,
    };
    SentenceVerdict {
        reward: Some(reward),
        credit,
        count,
        triplet,
        note,
        ..SentenceVerdict::default()
    }
}

impl Decision for SentenceVerdict {
    fn num_subjects(completion: &Completion<'_>) -> usize {
        completion.sentences.len()
    }

    fn check(
        &self,
        completion: &Completion<'_>,
        subject: SubjectIndex,
        Permissions { limits, credit: declared, .. }: Permissions<'_>,
    ) -> Result<(), Fault> {
        let SubjectIndex { completion: number, sentence: index } = subject;
        let sentence = &completion.sentences[index];
        if let Some(reward) = self.reward
            && !reward.is_finite()
        {
            return Err(Fault::Contract(format!(
                "gave sentence {index} of completion {number} the reward {reward}; it must be \
                 finite"
            )));
        }
        let num_triplets = sentence.triplets.len();
        if let Some(triplet) = self.triplet
            && triplet as usize >= num_triplets
        {
            return Err(Fault::Contract(format!(
                "names triplet {triplet} in sentence {index} of completion {number}, which has \
                 {num_triplets}"
            )));
        }
        let is_declared = match &self.credit {
            Credit::Sentence => true,
            Credit::TokenRewards(token_rewards) => {
                let reward = self.reward.unwrap_or(0.0);
                check_token_rewards(token_rewards, reward, &sentence.text, subject)?;
                declared == CreditKind::TokenRewards
            }
            Credit::AdvantageSign => declared == CreditKind::AdvantageSign,
        };
        if !is_declared {
            return Err(Fault::Contract(format!(
                "gave sentence {index} of completion {number} a credit that its manifest does not \
                 declare (`credit`)"
            )));
        }
        match &self.note {
            Some(note) => check_text("note", note, limits.text_bytes),
            None => Ok(()),
        }
    }

    fn check_num_requests(
        SubjectIndex { completion, sentence }: SubjectIndex,
        num_requests: usize,
        limits: &Limits,
    ) -> Result<(), Fault> {
        let limit = limits.requests_per_sentence;
        if num_requests > limit {
            return Err(Fault::Limit(format!(
                "made {num_requests} requests about sentence {sentence} of completion \
                 {completion}; at most {limit} are allowed (limits.requests_per_sentence)"
            )));
        }
        Ok(())
    }

    fn with_requests(self, lookups: Vec<Lookup>, exchanges: Vec<Exchange>) -> Self {
        Self { lookups, exchanges, ..self }
    }
}

/// Fails unless the token rewards add up to the sentence's, and their characters exist.
fn check_token_rewards(
    token_rewards: &[TokenReward],
    reward: f32,
    text: &str,
    SubjectIndex { completion, sentence }: SubjectIndex,
) -> Result<(), Fault> {
    let num_characters = text.chars().count();
    // Also bounds the work of the credit assignment, which no time limit of the rule covers.
    if token_rewards.len() > num_characters {
        return Err(Fault::Contract(format!(
            "gave {} token rewards for sentence {sentence} of completion {completion}, which has \
             {num_characters} characters",
            token_rewards.len()
        )));
    }
    let mut sum = 0.0;
    let mut magnitude = 1.0;
    for token_reward in token_rewards {
        if token_reward.character as usize >= num_characters {
            return Err(Fault::Contract(format!(
                "credits character {} of sentence {sentence} of completion {completion}, which \
                 has {num_characters}",
                token_reward.character
            )));
        }
        sum += token_reward.reward;
        magnitude += token_reward.reward.abs();
    }
    // A NaN or an infinity among the rewards makes the magnitude one.
    if magnitude.is_finite() && (sum - reward).abs() <= SUM_TOLERANCE * magnitude {
        return Ok(());
    }
    Err(Fault::Contract(format!(
        "gave sentence {sentence} of completion {completion} the reward {reward}, and token \
         rewards that add up to {sum}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use corver_core::{Section, Sentence};

    #[test]
    fn token_rewards_must_sum_to_sentence_reward() {
        let text = "Größe.".to_owned();
        let sentences =
            [Sentence { text, section: Section::Think, span: None, triplets: Vec::new() }];
        let completion = Completion { sentences: &sentences, ..Completion::default() };
        let check = |parts: &[(u32, f32)], reward: f32| {
            let token_rewards = parts
                .iter()
                .map(|&(character, reward)| TokenReward { character, reward })
                .collect();
            let verdict = SentenceVerdict {
                reward: Some(reward),
                credit: Credit::TokenRewards(token_rewards),
                ..SentenceVerdict::default()
            };
            let permissions = Permissions {
                limits: &Limits::default(),
                requires: &[],
                credit: CreditKind::TokenRewards,
            };
            let subject = SubjectIndex { completion: 7, sentence: 0 };
            verdict.check(&completion, subject, permissions)
        };
        assert_eq!(check(&[(0, 0.1), (5, 0.2), (5, -0.7)], -0.4), Ok(()));
        assert_eq!(check(&[], 0.0), Ok(()));
        let fault = |problem: &str| Err(Fault::Contract(problem.into()));
        let beyond = "credits character 6 of sentence 0 of completion 7, which has 6";
        assert_eq!(check(&[(6, 0.1)], 0.1), fault(beyond));
        let too_many =
            "gave 7 token rewards for sentence 0 of completion 7, which has 6 characters";
        assert_eq!(check(&[(0, 0.0); 7], 0.0), fault(too_many));
        let wrong_sum =
            "gave sentence 0 of completion 7 the reward 0.2, and token rewards that add up to 0.1";
        assert_eq!(check(&[(0, 0.1)], 0.2), fault(wrong_sum));
        for (infinite, sum) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf")] {
            let wrong_sum = format!(
                "gave sentence 0 of completion 7 the reward 0.1, and token rewards that add up to \
                 {sum}"
            );
            assert_eq!(check(&[(0, infinite)], 0.1), fault(&wrong_sum));
        }
    }
}
