//! FSPO (Li and Ng 2025): does a sentence of the reasoning follow from the evidence? It earns
//! nothing itself: the advantages of its tokens become positive if so, and negative if not. What is
//! rewarded is the answer (`fspo-answer`).
use corver_sdk::prelude::*;
use corver_sdk::{Variant, keeps_template, probability};

settings! {
    /// Gives the advantages of a sentence the sign that the evidence gives the sentence.
    pub struct Fspo {
        /// `paper`: sentences of the think block are labelled. `upstream`: those of the answer are
        /// as well, and are always right, as in the published code.
        pub variant: Variant = Variant::Paper,
        /// A sentence is right if it follows from the evidence with more than this probability.
        pub threshold: f64 = 0.5,
    }
}

impl CompletionRule for Fspo {
    const ASKS: &'static [Verifier] = &[Verifier::Nli];
    const READS_TRIPLETS: bool = false;

    fn judge(&self, completion: &Completion, corpora: &[Corpus]) -> Vec<Outcome> {
        let evidence = completion.evidence.join("\n");
        let reason = if evidence.trim().is_empty() {
            Some("no evidence")
        } else if !keeps_template(&completion.text) {
            Some("the format is broken")
        } else {
            None
        };
        let judge = |(sentence, corpus): (&Sentence, &Corpus)| match (
            reason,
            sentence.section,
            self.variant,
        ) {
            (Some(reason), ..) => abstain(reason),
            (None, Section::Think, _) => {
                let answers = corpus.entailments([Pair::new(&evidence, &sentence.text)])?;
                let entail = f64::from(answers[0].entail);
                label(entail > self.threshold).note(&format!("follows with {entail:.3}"))
            }
            (None, _, Variant::Upstream) => label(true).note("outside the think block"),
            (None, _, Variant::Paper) => abstain("outside the think block"),
        };
        completion.sentences.iter().zip(corpora).map(judge).collect()
    }

    fn validate(&self) -> Result<(), String> {
        probability("threshold", self.threshold)
    }
}

corver_sdk::export!(Fspo);

#[cfg(test)]
mod tests {
    use super::*;
    use corver_sdk::testing::{FakeCorpus, Judged, check, check_with, response, run_completion};
    use corver_sdk::{Credit, configured};

    const TEXT: &str = "<think>Rome is old.</think><answer>Rome</answer>";

    fn judged(rule: &Fspo, text: &str, evidence: &[&str], entail: f32) -> Vec<Judged> {
        let mut completion = response("Where?", &["Rome"], text);
        completion.evidence = evidence.iter().map(|&text| text.to_owned()).collect();
        run_completion(
            rule,
            &completion,
            &FakeCorpus::default().entails(&evidence.join("\n"), "Rome is old.", entail),
        )
    }

    fn rewards(rule: &Fspo, text: &str, entail: f32) -> Vec<Option<f32>> {
        let judged =
            judged(rule, text, &["Rome was founded in 753 BC.", "It is in Italy."], entail);
        assert!(
            judged.iter().all(|judged| judged.credit == judged.reward.map(|_| Credit::Sign)),
            "{judged:?}"
        );
        judged.iter().map(|judged| judged.reward).collect()
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
                let judged = judged(&rule, TEXT, evidence, 1.0);
                assert_eq!(judged[0].note.as_deref(), Some("no evidence"));
                assert!(
                    judged.iter().all(|judged| judged.reward.is_none() && judged.asked.is_empty())
                );
            }
        }
    }

    #[test]
    fn evidence_is_joined_by_lines() {
        let judged = judged(&Fspo::default(), TEXT, &["A.", "B."], 0.75);
        assert_eq!(judged[0].asked, ["nli: A.\nB. => Rome is old."]);
        assert_eq!(judged[0].note.as_deref(), Some("follows with 0.750"));
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
