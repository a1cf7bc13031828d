//! Truthrl: TruthRL's ternary reward (Wei et al. 2025). A chat model judges the answer; an abstention
//! earns more than a wrong answer and less than a right one. Use it as the answer judge.
use corver_sdk::prelude::*;

settings! {
    /// Rewards right answers, and abstentions more than wrong answers.
    pub struct TruthRl {
        /// Reward of a right answer.
        pub correct: f64 = 1.0,
        /// Reward of an answer that admits not to know.
        pub abstention: f64 = 0.0,
        /// Reward of a wrong or missing answer.
        pub wrong: f64 = -1.0,
        /// Instructions to the chat model for judging the answer.
        pub judge_prompt: String = JUDGE.to_owned(),
    }
}

const JUDGE: &str = "Grade the answer to the question below. Any of the gold answers is right, in whatever words; an answer that \
contradicts them is not, and neither is one that adds something false. Reply with one letter: A if the answer is correct, B if it is \
incorrect, C if it admits not to know and gives no answer.";

impl ResponseRule for TruthRl {
    const REQUIRES: &'static [Capability] = &[Capability::Chat];

    fn grade(&self, completion: &Completion, corpus: &Corpus) -> Result<Grade, Pending> {
        if completion.golds.is_empty() {
            return Ok(Grade::new(0.0, "NO_GOLD"));
        }
        let answer = completion.answer_block().unwrap_or_default();
        if answer.is_empty() {
            return Ok(Grade::new(self.wrong, "NO_ANSWER"));
        }
        let mut fields = vec![("question", completion.question.as_str())];
        fields.extend(completion.golds.iter().map(|gold| ("gold", gold.as_str())));
        fields.push(("answer", answer));
        let replies = corpus.chats([ChatPrompt::tagged(&self.judge_prompt, &fields)])?;
        Ok(match first_word(&replies[0]).as_str() {
            "A" | "CORRECT" => Grade::new(self.correct, "GOOD"),
            "B" | "INCORRECT" => Grade::new(self.wrong, "BAD"),
            "C" | "NOT" => Grade::new(self.abstention, "NOT_ATTEMPTED"),
            _ => Grade::new(0.0, "UNREADABLE"),
        })
    }

    fn validate(&self) -> Result<(), String> {
        finite("correct", self.correct)?;
        finite("abstention", self.abstention)?;
        finite("wrong", self.wrong)
    }
}

/// Returns the first run of letters, in upper case; empty if there is none.
fn first_word(reply: &str) -> String {
    let mut words = reply.split(|c: char| !c.is_alphabetic());
    words.find(|word| !word.is_empty()).unwrap_or_default().to_uppercase()
}

corver_sdk::export_response_rule!(TruthRl);

#[cfg(test)]
mod tests {
    use super::*;
    use corver_sdk::configured_response;
    use corver_sdk::testing::{FakeCorpus, check_responses_with, response, run_response};

    fn graded(rule: &TruthRl, text: &str, judge: &str) -> (f32, String) {
        let corpus = FakeCorpus::default().replies("<gold>", judge);
        let grade = run_response(rule, &response("Which city?", &["Rome", "Roma"], text), &corpus);
        (grade.reward, grade.label)
    }

    /// The paper's equation of the ternary reward: +1, 0 and −1.
    #[test]
    fn reward_is_ternary() {
        for (reply, reward, label) in [
            ("A", 1.0, "GOOD"),
            ("Correct.", 1.0, "GOOD"),
            ("B", -1.0, "BAD"),
            ("incorrect: a different city", -1.0, "BAD"),
            ("C", 0.0, "NOT_ATTEMPTED"),
            ("NOT_ATTEMPTED", 0.0, "NOT_ATTEMPTED"),
            ("**C**", 0.0, "NOT_ATTEMPTED"),
            ("Perhaps", 0.0, "UNREADABLE"),
            ("", 0.0, "UNREADABLE"),
        ] {
            let graded = graded(&TruthRl::default(), "<answer>Rome</answer>", reply);
            assert_eq!(graded, (reward, label.to_owned()), "{reply:?}");
        }
    }

    #[test]
    fn missing_answer_is_wrong_without_judge_call() {
        let none = FakeCorpus::default();
        let empty = response("Which city?", &["Rome"], "<think>x</think><answer> </answer>");
        assert_eq!(run_response(&TruthRl::default(), &empty, &none).reward, -1.0);
        let no_gold = response("Which city?", &[], "<answer>Rome</answer>");
        assert_eq!(run_response(&TruthRl::default(), &no_gold, &none).reward, 0.0);
    }

    #[test]
    fn text_without_answer_block_is_wrong_without_judge_call() {
        for text in ["Rome", "<think>It is Rome.</think>", "<think>It is Rome."] {
            let completion = response("Which city?", &["Rome"], text);
            let grade = run_response(&TruthRl::default(), &completion, &FakeCorpus::default());
            assert_eq!((grade.reward, grade.label.as_str()), (-1.0, "NO_ANSWER"), "{text:?}");
        }
    }

    #[test]
    fn rewards_are_settings() {
        let rule: TruthRl =
            configured_response(r#"{"correct": 2, "abstention": 0.5, "wrong": -2}"#).unwrap();
        let rewards = ["A", "B", "C"].map(|reply| graded(&rule, "<answer>x</answer>", reply).0);
        assert_eq!(rewards, [2.0, -2.0, 0.5]);
    }

    #[test]
    fn generated_completions_keep_the_contract() {
        check_responses_with(&TruthRl::default(), -1.0..=1.0, &["A", "B", "C"]);
    }
}
