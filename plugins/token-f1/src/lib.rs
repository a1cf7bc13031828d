//! Token-f1: an answer judge that rewards the F1 of the answer's words with a gold (SQuAD), so an
//! answer that merely contains the gold receives less.
use corver_sdk::overlap::token_f1;
use corver_sdk::prelude::*;
use corver_sdk::probability;

settings! {
    /// Rewards an answer by the overlap of its words with the nearest gold.
    pub struct TokenF1 {
        /// Reward of an answer with exactly a gold's words.
        pub best: f64 = 2.0,
        /// Reward of an answer without a gold's word, and of a missing answer.
        pub worst: f64 = -1.0,
        /// Lowest F1 with the label GOOD, 0 to 1.
        pub good: f64 = 0.8,
    }
}

impl ResponseRule for TokenF1 {
    fn grade(&self, completion: &Completion, _: &Corpus) -> Result<Grade, Pending> {
        if completion.golds.is_empty() {
            return Ok(Grade::new(0.0, "NO_GOLD"));
        }
        let answer = words(completion.answer_block().unwrap_or_default());
        if answer.is_empty()
            || ["i dont know", "i do not know"].contains(&answer.join(" ").as_str())
        {
            return Ok(Grade::new(self.worst, "NOT_ATTEMPTED"));
        }
        let f1 =
            completion.golds.iter().map(|gold| token_f1(&answer, &words(gold))).fold(0.0, f64::max);
        let label = if f1 >= self.good { "GOOD" } else { "BAD" };
        let reward = self.worst + f1 * (self.best - self.worst);
        Ok(Grade::new(reward, label).note(&format!("F1 {f1:.2}")))
    }

    fn validate(&self) -> Result<(), String> {
        finite("best", self.best)?;
        finite("worst", self.worst)?;
        probability("good", self.good)
    }
}

/// Returns the words of a text in lower case, without punctuation and articles.
fn words(text: &str) -> Vec<String> {
    let bare = |word: &str| {
        word.chars().filter(|c| c.is_alphanumeric()).collect::<String>().to_lowercase()
    };
    let words = text.split_whitespace().map(bare);
    words.filter(|word| !word.is_empty() && !["a", "an", "the"].contains(&word.as_str())).collect()
}

corver_sdk::export_response_rule!(TokenF1);

#[cfg(test)]
mod tests {
    use super::*;
    use corver_sdk::configured_response;
    use corver_sdk::testing::{check_responses, counts, response, run_response};

    fn graded(answer: &str, golds: &[&str]) -> (f32, String) {
        let text = format!("<think>I remember it.</think><answer>{answer}</answer>");
        let grade =
            run_response(&TokenF1::default(), &response("Who?", golds, &text), &counts(&[]));
        (grade.reward, grade.label)
    }

    #[test]
    fn reward_follows_token_f1_with_best_gold() {
        assert_eq!(graded("The Mario Camerini!", &["x", "mario camerini"]), (2.0, "GOOD".into()));
        // One of two words: F1 2/3.
        assert_eq!(graded("Camerini", &["Mario Camerini"]), (1.0, "BAD".into()));
        assert_eq!(graded("Rome", &["Mario Camerini"]), (-1.0, "BAD".into()));
        // Said twice, there once: 2 / 3.
        assert_eq!(graded("Rome, Rome", &["Rome"]), (1.0, "BAD".into()));
    }

    #[test]
    fn long_answer_containing_gold_scores_below_gold() {
        let long =
            graded("It was Mario Camerini or Sophia Loren or somebody else", &["Mario Camerini"]).0;
        assert!(long < 1.0, "{long}");
    }

    #[test]
    fn answer_grades_zero_without_golds() {
        assert_eq!(graded("Rome", &[]), (0.0, "NO_GOLD".into()));
    }

    #[test]
    fn refusals_are_labelled_not_attempted() {
        for refusal in ["", "I don't know", "I do not know.", "..."] {
            assert_eq!(graded(refusal, &["know"]).1, "NOT_ATTEMPTED", "{refusal:?}");
        }
    }

    #[test]
    fn text_without_answer_block_is_not_attempted() {
        for text in ["Rome", "<think> Rome </think>", "<think> Rome"] {
            let completion = response("Where?", &["Rome"], text);
            let grade = run_response(&TokenF1::default(), &completion, &counts(&[]));
            assert_eq!((grade.reward, grade.label.as_str()), (-1.0, "NOT_ATTEMPTED"), "{text:?}");
        }
    }

    #[test]
    fn settings_are_read_and_checked() {
        let rule: TokenF1 = configured_response(r#"{"good": 0.5}"#).unwrap();
        let completion = response("Who?", &["Mario Camerini"], "<answer>Camerini</answer>");
        assert_eq!(run_response(&rule, &completion, &counts(&[])).label, "GOOD");
        assert!(configured_response::<TokenF1>(r#"{"good": 2}"#).unwrap_err().contains("`good`"));
    }

    #[test]
    fn grades_stay_in_range_for_any_completion() {
        check_responses(&TokenF1::default(), -1.0..=2.0);
    }
}
