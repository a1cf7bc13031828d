//! FSPO (Li and Ng 2025): the advantages of a sentence's tokens become positive if the sentence
//! follows from the evidence, and negative if not. The reward itself is for the answer
//! (`fspo-answer`).
use corver_sdk::prelude::*;
use corver_sdk::tags::has_template;
use corver_sdk::{Variant, probability};

settings! {
    /// Sets the sign of a sentence's advantages by the evidence.
    pub struct Fspo {
        /// `paper`: sentences of the think block get a sign. `upstream`: those of the answer do as
        /// well, always a positive one, as in the published code.
        pub variant: Variant = Variant::Paper,
        /// A sentence is right if it follows from the evidence with more than this probability.
        pub threshold: f64 = 0.5,
    }
}

impl Fspo {
    fn score(
        &self,
        sentence: &Sentence,
        evidence: &str,
        corpus: &Corpus,
    ) -> Result<Verdict, Pending> {
        if sentence.section == Section::Think {
            let entailments = corpus.entailments([NliPair::new(evidence, &sentence.text)])?;
            let entail = f64::from(entailments[0].entail);
            let verdict = Verdict::advantage_sign(entail > self.threshold);
            return Ok(verdict.note(&format!("follows with {entail:.3}")));
        }
        Ok(match self.variant {
            Variant::Upstream => Verdict::advantage_sign(true).note("outside the think block"),
            Variant::Paper => Verdict::abstain("outside the think block"),
        })
    }
}

impl CompletionRule for Fspo {
    const REQUIRES: &'static [Capability] = &[Capability::Nli];
    const READS_TRIPLETS: bool = false;
    const CREDIT: CreditKind = CreditKind::AdvantageSign;

    fn score_sentences(
        &self,
        completion: &Completion,
        contexts: &[SentenceContext],
    ) -> Vec<Result<Verdict, Pending>> {
        let evidence = completion.evidence.join("\n");
        let has_template = has_template(&completion.text);
        let mut outcomes = Vec::new();
        for SentenceContext { sentence, corpus } in contexts {
            outcomes.push(if evidence.trim().is_empty() {
                Ok(Verdict::abstain("no evidence"))
            } else if !has_template {
                Ok(Verdict::abstain("the format is broken"))
            } else {
                self.score(sentence, &evidence, corpus)
            });
        }
        outcomes
    }

    fn validate(&self) -> Result<(), String> {
        probability("threshold", self.threshold)
    }
}

corver_sdk::export!(Fspo);

#[cfg(test)]
mod tests {
    use super::*;
    use corver_sdk::testing::{
        FakeCorpus, ScoredSentence, check, check_with, response, run_completion,
    };
    use corver_sdk::{Credit, configured};

    const TEXT: &str = "<think>Rome is old.</think><answer>Rome</answer>";

    fn judged(rule: &Fspo, text: &str, evidence: &[&str], entail: f32) -> Vec<ScoredSentence> {
        let mut completion = response("Where?", &["Rome"], text);
        completion.evidence = evidence.iter().map(|&text| text.to_owned()).collect();
        run_completion(
            rule,
            &completion,
            &FakeCorpus::default().entails(&evidence.join("\n"), "Rome is old.", entail),
        )
    }

    fn rewards(rule: &Fspo, text: &str, entail: f32) -> Vec<Option<f32>> {
        let scored =
            judged(rule, text, &["Rome was founded in 753 BC.", "It is in Italy."], entail);
        assert!(
            scored
                .iter()
                .all(|scored| scored.credit == scored.reward.map(|_| Credit::AdvantageSign)),
            "{scored:?}"
        );
        scored.iter().map(|scored| scored.reward).collect()
    }

    #[test]
    fn think_sentence_label_follows_entailment_threshold() {
        // v = +1 if the score is above 0.5, else −1; 0 (no verdict) for the answer.
        for (entail, label) in [(0.0, -1.0), (0.5, -1.0), (0.51, 1.0), (1.0, 1.0)] {
            assert_eq!(rewards(&Fspo::default(), TEXT, entail), [Some(label), None], "{entail}");
        }
        let strict: Fspo = configured(r#"{"threshold": 0.9}"#).unwrap();
        assert_eq!(rewards(&strict, TEXT, 0.8), [Some(-1.0), None]);
        assert!(configured::<Fspo>(r#"{"threshold": 1.5}"#).unwrap_err().contains("`threshold`"));
    }

    #[test]
    fn upstream_variant_labels_answer_sentences_right() {
        let upstream: Fspo = configured(r#"{"variant": "upstream"}"#).unwrap();
        assert_eq!(rewards(&upstream, TEXT, 0.2), [Some(-1.0), Some(1.0)]);
        let error = configured::<Fspo>(r#"{"variant": "code"}"#).unwrap_err();
        assert!(error.contains("expected `paper` or `upstream`"), "{error}");
    }

    #[test]
    fn abstains_on_broken_format_or_missing_evidence() {
        for variant in [Variant::Paper, Variant::Upstream] {
            let rule = Fspo { variant, ..Fspo::default() };
            for text in [
                "<think>Rome is old.</think>Rome",
                "Rome is old.",
                "<think>Rome is old.</think><answer>Rome",
            ] {
                assert!(rewards(&rule, text, 1.0).iter().all(Option::is_none), "{text:?}");
            }
            for evidence in [&[][..], &[" "]] {
                let scored = judged(&rule, TEXT, evidence, 1.0);
                assert_eq!(scored[0].note.as_deref(), Some("no evidence"));
                assert!(
                    scored
                        .iter()
                        .all(|scored| scored.reward.is_none() && scored.requests.is_empty())
                );
            }
        }
    }

    #[test]
    fn evidence_is_joined_by_lines() {
        let scored = judged(&Fspo::default(), TEXT, &["A.", "B."], 0.75);
        assert_eq!(scored[0].requests, ["nli: A.\nB. => Rome is old."]);
        assert_eq!(scored[0].note.as_deref(), Some("follows with 0.750"));
    }

    #[test]
    fn rewards_stay_in_range_for_any_completion() {
        check(&Fspo::default(), -1.0..=1.0);
        check_with(
            &Fspo { variant: Variant::Upstream, ..Fspo::default() },
            -1.0..=1.0,
            &["</think>", "<answer>"],
        );
    }
}
