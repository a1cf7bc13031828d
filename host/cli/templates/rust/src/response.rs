//! {{type}}: is the answer one of the golds, and nothing more?
use corver_sdk::prelude::*;

settings! {
    /// Pays an answer that is a gold, whatever its capitals.
    pub struct {{type}} {
        /// The reward of a right answer.
        pub right: f64 = 2.0,
        /// The reward of any other, and of none.
        pub wrong: f64 = -1.0,
    }
}

impl ResponseRule for {{type}} {
    fn grade(&self, completion: &Completion, _: &Corpus) -> Graded {
        let answer = completion.answer.to_lowercase();
        if answer.is_empty() {
            return grade(self.wrong, "NOT_ATTEMPTED");
        }
        let is_right = completion.golds.iter().any(|gold| gold.trim().to_lowercase() == answer);
        if is_right { grade(self.right, "GOOD") } else { grade(self.wrong, "BAD") }
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
    fn grades_stay_in_range_for_any_completion() {
        check_responses(&{{type}}::default(), -1.0..=2.0);
    }
}
