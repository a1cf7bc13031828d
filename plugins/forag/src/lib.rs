//! Forag: which share of a sentence's claims follows from the evidence? After FoRAG (Cai et al.
//! 2024), whose code is not public: this is our own rendering of its sentence rewards, without the
//! reward model that is trained on them there.
use corver_sdk::prelude::*;
use corver_sdk::{LIST_STATEMENTS, at_least_one, probability, statements};

settings! {
    /// Pays the last token of a sentence by the share of its claims that follow from the evidence.
    pub struct Forag {
        /// What a share of 1 earns more than one of 0.
        pub scale: f64 = 2.0,
        /// What a share of 0 earns.
        pub shift: f64 = -1.0,
        /// A claim counts if it follows from the evidence with at least this probability.
        pub threshold: f64 = 0.5,
        /// Claims of a sentence that are looked at, the first ones.
        pub claims: u32 = 20,
        /// How often a list of claims is asked for until it can be read.
        pub tries: u32 = 2,
        /// What the chat model is told before a sentence whose claims it is to list.
        pub extract_prompt: String = LIST_STATEMENTS.to_owned(),
    }
}

impl Forag {
    fn score(
        &self,
        question: &str,
        evidence: &str,
        sentence: &Sentence,
        corpus: &Corpus,
    ) -> Outcome {
        let Some(last) = sentence.text.chars().count().checked_sub(1) else {
            return abstain("an empty sentence");
        };
        let listed =
            statements(corpus, &self.extract_prompt, question, &sentence.text, self.tries)?;
        let Some(mut claims) = listed else {
            return abstain("no list of its claims could be read");
        };
        claims.truncate(self.claims as usize);
        if claims.is_empty() {
            return abstain("no claim");
        }
        let answers = corpus.entailments(claims.iter().map(|claim| Pair::new(evidence, claim)))?;
        let follow =
            answers.iter().filter(|answer| f64::from(answer.entail) >= self.threshold).count();
        let share = follow as f64 / claims.len() as f64;
        points([(last, self.scale * share + self.shift)])
            .note(&format!("{follow} of {} claims follow", claims.len()))
    }
}

impl CompletionRule for Forag {
    const ASKS: &'static [Verifier] = &[Verifier::Chat, Verifier::Nli];
    const READS_TRIPLETS: bool = false;

    fn judge(&self, completion: &Completion, corpora: &[Corpus]) -> Vec<Outcome> {
        let evidence = completion.evidence.join("\n");
        let judge = |(sentence, corpus): (&Sentence, &Corpus)| {
            if evidence.trim().is_empty() {
                return abstain("no evidence");
            }
            self.score(&completion.question, &evidence, sentence, corpus)
        };
        completion.sentences.iter().zip(corpora).map(judge).collect()
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
    use corver_sdk::testing::{FakeCorpus, Judged, check_with, completion, run_completion};
    use corver_sdk::{Credit, Point, configured};

    const TEXT: &str = "Rome, in Italy, is old.";
    const CLAIMS: &str = "- Rome is in Italy.\n- Rome is old.\n- Italy is old.";

    fn judged(rule: &Forag, evidence: &[&str], reply: &str) -> Judged {
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
        Some(Credit::Points(vec![Point { character: 22, reward }]))
    }

    #[test]
    fn entailed_claim_share_rewards_last_token() {
        let evidence = ["Rome is a city in Italy.", "It was founded in 753 BC."];
        // 0.9 and 0.5 are at least 0.5, 0.49 is not: f = 2/3, and 2 · 2/3 − 1 = 1/3.
        let two_of_three = judged(&Forag::default(), &evidence, CLAIMS);
        assert_eq!((two_of_three.reward, two_of_three.credit), (Some(1.0 / 3.0), paid(1.0 / 3.0)));
        assert_eq!(two_of_three.asked.len(), 1 + 3);
        assert_eq!(
            two_of_three.asked[3],
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
        assert_eq!(judged(&rule, &["Rome."], CLAIMS).asked.len(), 1 + 2);
        let refused = |json: &str| configured::<Forag>(json).unwrap_err();
        assert!(refused(r#"{"scale": 1e39}"#).contains("`scale`"));
        assert!(refused(r#"{"threshold": -1}"#).contains("`threshold`"));
        assert!(refused(r#"{"tries": 0}"#).contains("`tries`"));
        assert!(refused(r#"{"claims": 0}"#).contains("`claims`"));
    }

    #[test]
    fn abstains_without_evidence_or_claims() {
        let unpaid = |evidence: &[&str], reply| {
            let judged = judged(&Forag::default(), evidence, reply);
            (judged.reward, judged.note.unwrap())
        };
        assert_eq!(unpaid(&[], CLAIMS), (None, "no evidence".into()));
        assert_eq!(unpaid(&["Rome."], "NONE"), (None, "no claim".into()));
        assert_eq!(
            unpaid(&["Rome."], "It is so."),
            (None, "no list of its claims could be read".into())
        );
    }

    #[test]
    fn rewards_stay_in_range_for_any_completion() {
        check_with(&Forag::default(), -1.0..=1.0, &[CLAIMS, "- Rome is old.\n", "NONE"]);
    }
}
