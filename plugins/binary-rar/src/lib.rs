//! Binary-rar: the binary retrieval-augmented reward (Chen et al. 2025). A chat model reads the
//! completion with the passages that a search finds: 1 if none contradicts it, else 0. Use it alone,
//! as the answer judge, with `reward.lambda_corver = 0` and `reward.lambda_format = 0`.
use corver_sdk::at_least_one;
use corver_sdk::chat::has_word;
use corver_sdk::prelude::*;

settings! {
    /// Rewards completions that no passage contradicts.
    pub struct BinaryRar {
        /// Passages that the chat model reads.
        pub passages: u32 = 8,
        /// Words of the question and the answer that are searched for.
        pub query_words: u32 = 64,
        /// Reward if there is neither evidence nor a passage, or the reply is neither YES nor NO.
        pub unverified: f64 = 0.0,
        /// Instructions to the chat model.
        pub verify_prompt: String = VERIFY.to_owned(),
    }
}

const VERIFY: &str = "Compare the response to the question with the passages. Does a passage contradict a statement of the response? \
What the passages do not mention is no contradiction. Reply with one word: YES or NO.";

impl ResponseRule for BinaryRar {
    const REQUIRES: &'static [Capability] = &[Capability::Chat, Capability::Passages];

    fn grade(&self, completion: &Completion, corpus: &Corpus) -> Result<Grade, Pending> {
        let passages = self.passages_for(completion, corpus)?;
        if passages.is_empty() {
            return Ok(Grade::new(self.unverified, "NO_PASSAGE"));
        }
        let mut fields = vec![("question", completion.question.as_str())];
        fields.extend(passages.iter().map(|passage| ("passage", passage.as_str())));
        fields.push(("response", &completion.text));
        let replies = corpus.chats([ChatPrompt::tagged(&self.verify_prompt, &fields)])?;
        let reply = replies[0].to_uppercase();
        Ok(match (has_word(&reply, "YES"), has_word(&reply, "NO")) {
            (true, false) => Grade::new(0.0, "CONTRADICTED"),
            (false, true) => Grade::new(1.0, "CONSISTENT"),
            _ => Grade::new(self.unverified, "UNREADABLE"),
        })
    }

    fn validate(&self) -> Result<(), String> {
        at_least_one("passages", self.passages.into())?;
        at_least_one("query_words", self.query_words.into())?;
        finite("unverified", self.unverified)
    }
}

impl BinaryRar {
    /// Returns the first texts of the question's evidence or, without evidence, those that a search
    /// finds.
    fn passages_for(
        &self,
        completion: &Completion,
        corpus: &Corpus,
    ) -> Result<Vec<String>, Pending> {
        let k = self.passages;
        if !completion.evidence.is_empty() {
            return Ok(completion.evidence.iter().take(k as usize).cloned().collect());
        }
        let text = format!("{} {}", completion.question, completion.answer);
        let words: Vec<&str> = text.split_whitespace().take(self.query_words as usize).collect();
        let title = completion.title.clone().filter(|title| !title.trim().is_empty());
        let found = corpus.passages([Search { title, query: words.join(" "), k }])?;
        Ok(found.into_iter().flatten().map(|passage| passage.text).collect())
    }
}

corver_sdk::export_response_rule!(BinaryRar);

#[cfg(test)]
mod tests {
    use super::*;
    use corver_sdk::configured_response;
    use corver_sdk::testing::{FakeCorpus, check_responses_with, response, run_response};

    const TEXT: &str = "<think>Rome is in Italy.</think><answer>Rome</answer>";

    fn graded(rule: &BinaryRar, completion: &Completion, corpus: &FakeCorpus) -> (f32, String) {
        let grade = run_response(rule, completion, corpus);
        (grade.reward, grade.label)
    }

    /// The paper's definition: 1 without a contradiction, else 0, and nothing between.
    #[test]
    fn reward_is_all_or_nothing() {
        let rule = BinaryRar::default();
        for (reply, reward, label) in [
            ("NO", 1.0, "CONSISTENT"),
            ("no.", 1.0, "CONSISTENT"),
            ("YES", 0.0, "CONTRADICTED"),
            ("Yes: it lies in Spain.", 0.0, "CONTRADICTED"),
            ("YES or NO?", 0.0, "UNREADABLE"),
            ("", 0.0, "UNREADABLE"),
            ("NOT AT ALL", 0.0, "UNREADABLE"),
        ] {
            let corpus = FakeCorpus::default()
                .finds(None, "Which city? Rome", &["Rome is the capital of Italy."])
                .replies("capital of Italy", reply);
            let graded = graded(&rule, &response("Which city?", &["Rome"], TEXT), &corpus);
            assert_eq!(graded, (reward, label.to_owned()), "{reply:?}");
        }
    }

    #[test]
    fn evidence_replaces_the_search() {
        let rule: BinaryRar = configured_response(r#"{"passages": 1}"#).unwrap();
        let mut completion = response("Which city?", &[], TEXT);
        completion.evidence = vec!["Rome lies on the Tiber.".to_owned(), "Another.".to_owned()];
        let corpus = FakeCorpus::default().replies("on the Tiber.</passage>\n<response>", "NO");
        assert_eq!(graded(&rule, &completion, &corpus), (1.0, "CONSISTENT".to_owned()));
    }

    #[test]
    fn completion_without_passages_is_unverified() {
        let rule: BinaryRar =
            configured_response(r#"{"unverified": 0.25, "query_words": 2}"#).unwrap();
        let mut completion = response("Which old city?", &[], TEXT);
        completion.title = Some("Rome".to_owned());
        let corpus = FakeCorpus::default().finds(Some("Rome"), "Which old", &[]);
        assert_eq!(graded(&rule, &completion, &corpus), (0.25, "NO_PASSAGE".to_owned()));
    }

    #[test]
    fn generated_completions_keep_the_contract() {
        check_responses_with(&BinaryRar::default(), 0.0..=1.0, &["YES", "NO"]);
    }
}
