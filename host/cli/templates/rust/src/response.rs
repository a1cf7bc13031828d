//! {{type}}: an answer judge that accepts an answer if it equals a gold.
use corver_sdk::prelude::*;

settings! {
    /// Rewards an answer that equals a gold, in any case.
    pub struct {{type}} {
        /// Reward of a right answer.
        pub right: f64 = 2.0,
        /// Reward of a wrong or missing answer.
        pub wrong: f64 = -1.0,
    }
}

impl ResponseRule for {{type}} {
    fn grade(&self, completion: &Completion, _corpus: &Corpus) -> Result<Grade, Pending> {
        // `completion.answer` is the whole text if there is no answer block.
        let answer = completion.answer_block().unwrap_or_default().to_lowercase();
        if answer.is_empty() {
            return Ok(Grade::new(self.wrong, "NOT_ATTEMPTED"));
        }
        let is_right = completion.golds.iter().any(|gold| gold.trim().to_lowercase() == answer);
        Ok(if is_right { Grade::new(self.right, "GOOD") } else { Grade::new(self.wrong, "BAD") })
    }

    fn validate(&self) -> Result<(), String> {
        finite("right", self.right)?;
        finite("wrong", self.wrong)
    }
}

corver_sdk::export_response_rule!({{type}});

#[cfg(test)]
mod tests {
    use super::*;
    use corver_sdk::testing::{check_responses, counts, response, run_response};

    #[test]
    fn only_exact_gold_answer_is_good() {
        let label = |answer: &str| {
            let text = format!("<think>I read it.</think><answer>{answer}</answer>");
            run_response(&{{type}}::default(), &response("Where?", &["Rome", "Roma"], &text), &counts(&[])).label
        };
        assert_eq!(["roma", "Rome, Italy", ""].map(label), ["GOOD", "BAD", "NOT_ATTEMPTED"]);
    }

    #[test]
    fn text_without_answer_block_is_not_attempted() {
        for text in ["Rome", "<think>Rome</think>", "<think>Rome"] {
            let completion = response("Where?", &["Rome"], text);
            let grade = run_response(&{{type}}::default(), &completion, &counts(&[]));
            assert_eq!(grade.label, "NOT_ATTEMPTED", "{text}");
        }
    }

    #[test]
    fn grades_stay_in_range_for_any_completion() {
        check_responses(&{{type}}::default(), -1.0..=2.0);
    }
}
