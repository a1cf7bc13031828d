//! Forag: the share of a sentence's claims that follow from the evidence. After FoRAG (Cai et al.
//! 2024), whose code is not public: our version of its sentence rewards, without the reward model
//! that is trained on them there.
use corver_sdk::chat::{LIST_CLAIMS, extract_claims};
use corver_sdk::prelude::*;
use corver_sdk::{Entailment, at_least_one, probability};

settings! {
    /// Rewards the last token of a sentence by the share of its claims that follow from the evidence.
    pub struct Forag {
        /// Reward of a share of 1, less that of a share of 0.
        pub scale: f64 = 2.0,
        /// Reward of a share of 0.
        pub shift: f64 = -1.0,
        /// A claim counts if it follows from the evidence with at least this probability.
        pub threshold: f64 = 0.5,
        /// Greatest number of claims of a sentence; the others are ignored.
        /// `rule.limits.requests_per_sentence` must be at least `claims` + `tries`.
        pub claims: u32 = 20,
        /// Requests for a list of claims until a reply can be parsed.
        /// `rule.limits.rounds` must be at least `tries` + 1.
        pub tries: u32 = 2,
        /// Instructions to the chat model for listing the claims of a sentence.
        pub extract_prompt: String = LIST_CLAIMS.to_owned(),
    }
}

impl Forag {
    fn score(
        &self,
        question: &str,
        evidence: &str,
        sentence: &Sentence,
        corpus: &Corpus,
    ) -> Result<Verdict, Pending> {
        let Some(last) = sentence.text.chars().count().checked_sub(1) else {
            return Ok(Verdict::abstain("an empty sentence"));
        };
        let listed =
            extract_claims(corpus, &self.extract_prompt, question, &sentence.text, self.tries)?;
        let Some(mut claims) = listed else {
            return Ok(Verdict::abstain("no list of its claims could be read"));
        };
        claims.truncate(self.claims as usize);
        if claims.is_empty() {
            return Ok(Verdict::abstain("no claim"));
        }
        let pairs = claims.iter().map(|claim| NliPair::new(evidence, claim));
        let entailments = corpus.entailments(pairs)?;
        let is_entailed = |nli: &&Entailment| f64::from(nli.entail) >= self.threshold;
        let entailed = entailments.iter().filter(is_entailed).count();
        let share = entailed as f64 / claims.len() as f64;
        Ok(Verdict::token_rewards([(last, self.scale * share + self.shift)])
            .note(&format!("{entailed} of {} claims follow", claims.len())))
    }
}

impl CompletionRule for Forag {
    const REQUIRES: &'static [Capability] = &[Capability::Chat, Capability::Nli];
    const READS_TRIPLETS: bool = false;
    const CREDIT: CreditKind = CreditKind::TokenRewards;

    fn score_sentences(
        &self,
        completion: &Completion,
        contexts: &[SentenceContext],
    ) -> Vec<Result<Verdict, Pending>> {
        let evidence = completion.evidence.join("\n");
        let mut outcomes = Vec::new();
        for SentenceContext { sentence, corpus } in contexts {
            outcomes.push(if evidence.trim().is_empty() {
                Ok(Verdict::abstain("no evidence"))
            } else {
                self.score(&completion.question, &evidence, sentence, corpus)
            });
        }
        outcomes
    }

    fn validate(&self) -> Result<(), String> {
        finite("shift", self.shift)?;
        finite("scale", self.scale)?;
        finite("scale", self.scale + self.shift)?;
        probability("threshold", self.threshold)?;
        at_least_one("claims", self.claims.into())?;
        at_least_one("tries", self.tries.into())
    }
}

corver_sdk::export!(Forag);

#[cfg(test)]
mod tests {
    use super::*;
    use corver_sdk::testing::{FakeCorpus, ScoredSentence, check_with, completion, run_completion};
    use corver_sdk::{Credit, TokenReward, configured};

    const TEXT: &str = "Rome, in Italy, is old.";
    const CLAIMS: &str = "- Rome is in Italy.\n- Rome is old.\n- Italy is old.";

    fn judged(rule: &Forag, evidence: &[&str], reply: &str) -> ScoredSentence {
        let mut completion = completion(&[(TEXT, &[])]);
        completion.evidence = evidence.iter().map(|&text| text.to_owned()).collect();
        let premise = evidence.join("\n");
        let corpus = FakeCorpus::default()
            .replies(TEXT, reply)
            .entails(&premise, "Rome is in Italy.", 0.9)
            .entails(&premise, "Rome is old.", 0.5)
            .entails(&premise, "Italy is old.", 0.49);
        run_completion(rule, &completion, &corpus).remove(0)
    }

    fn paid(reward: f32) -> Option<Credit> {
        // "Rome, in Italy, is old." has 23 characters.
        Some(Credit::TokenRewards(vec![TokenReward { character: 22, reward }]))
    }

    #[test]
    fn entailed_claim_share_rewards_last_token() {
        let evidence = ["Rome is a city in Italy.", "It was founded in 753 BC."];
        // 0.9 and 0.5 are at least 0.5, 0.49 is not: f = 2/3, and 2 · 2/3 − 1 = 1/3.
        let two_of_three = judged(&Forag::default(), &evidence, CLAIMS);
        assert_eq!((two_of_three.reward, two_of_three.credit), (Some(1.0 / 3.0), paid(1.0 / 3.0)));
        assert_eq!(two_of_three.requests.len(), 1 + 3);
        assert_eq!(
            two_of_three.requests[3],
            "nli: Rome is a city in Italy.\nIt was founded in 753 BC. => Italy is old."
        );
        // All: 2 · 1 − 1. None: 2 · 0 − 1.
        assert_eq!(judged(&Forag::default(), &evidence, "- Rome is old.").credit, paid(1.0));
        assert_eq!(judged(&Forag::default(), &evidence, "- Italy is old.").credit, paid(-1.0));
    }

    #[test]
    fn scale_threshold_and_limits_are_configurable() {
        let rule: Forag =
            configured(r#"{"scale": 3, "shift": 0, "threshold": 0.4, "claims": 2}"#).unwrap();
        assert_eq!(judged(&rule, &["Rome."], CLAIMS).reward, Some(3.0));
        assert_eq!(judged(&rule, &["Rome."], CLAIMS).requests.len(), 1 + 2);
        let refused = |json: &str| configured::<Forag>(json).unwrap_err();
        assert!(refused(r#"{"scale": 1e39}"#).contains("`scale`"));
        assert!(refused(r#"{"threshold": -1}"#).contains("`threshold`"));
        assert!(refused(r#"{"tries": 0}"#).contains("`tries`"));
        assert!(refused(r#"{"claims": 0}"#).contains("`claims`"));
    }

    #[test]
    fn abstains_without_evidence_or_claims() {
        let unpaid = |evidence: &[&str], reply| {
            let scored = judged(&Forag::default(), evidence, reply);
            (scored.reward, scored.note.unwrap())
        };
        assert_eq!(unpaid(&[], CLAIMS), (None, "no evidence".into()));
        assert_eq!(unpaid(&["Rome."], "NONE"), (None, "no claim".into()));
        assert_eq!(
            unpaid(&["Rome."], "It is so."),
            (None, "no list of its claims could be read".into())
        );
    }

    #[test]
    fn settings_name_the_limits_they_need() {
        let schema = <Forag as corver_sdk::RuleSettings>::schema();
        for limit in ["`rule.limits.rounds`", "`rule.limits.requests_per_sentence`"] {
            assert!(schema.contains(limit), "{limit} is not in {schema}");
        }
    }

    #[test]
    fn rewards_stay_in_range_for_any_completion() {
        check_with(&Forag::default(), -1.0..=1.0, &[CLAIMS, "- Rome is old.\n", "NONE"]);
    }
}
