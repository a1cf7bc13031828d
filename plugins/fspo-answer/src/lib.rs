//! Fspo-answer: a judge, and FSPO's reward (Li and Ng 2025): the words that the answer has in common with a gold, if the format is
//! kept. With `fspo`, which gives the advantages of single sentences their sign.
use corver_sdk::prelude::*;
use corver_sdk::{Variant, keeps_template, token_f1};

settings! {
    /// Pays an answer by its overlap with the nearest gold, from 0 to 1, and nothing where the format is broken.
    pub struct FspoAnswer {
        /// `paper`: the format is paid in addition. `upstream`: it is not, as in the published code.
        pub variant: Variant = Variant::Paper,
        /// Paid in addition where the format is kept, with `variant = "paper"`.
        pub kept: f64 = 1.0,
        /// Paid where it is broken, with `variant = "paper"`.
        pub broken: f64 = 0.0,
    }
}

impl ResponseRule for FspoAnswer {
    fn grade(&self, completion: &Completion, _: &Corpus) -> Graded {
        let is_kept = keeps_template(&completion.text);
        let format = match (self.variant, is_kept) {
            (Variant::Upstream, _) => 0.0,
            (Variant::Paper, true) => self.kept,
            (Variant::Paper, false) => self.broken,
        };
        if !is_kept {
            return grade(format, "BROKEN");
        }
        if completion.golds.is_empty() {
            return grade(format, "NO_GOLD");
        }
        let answer = words(&completion.answer);
        let score = completion.golds.iter().map(|gold| overlap(&answer, &words(gold))).fold(0.0, f64::max);
        let label = if score == 1.0 {
            "GOOD"
        } else if score > 0.0 {
            "PARTLY"
        } else {
            "BAD"
        };
        grade(format + score, label).note(&format!("F1 {score:.2}"))
    }

    fn validate(&self) -> Result<(), String> {
        finite("kept", self.kept)?;
        finite("broken", self.broken)
    }
}

/// In lower case, cut at white space and punctuation, without articles.
fn words(text: &str) -> Vec<String> {
    let ends = |c: char| c.is_whitespace() || c.is_ascii_punctuation() || matches!(c, '‘' | '’' | '´');
    let text = text.to_lowercase();
    let words = text.split(ends).filter(|word| !matches!(*word, "" | "a" | "an" | "the"));
    words.map(str::to_owned).collect()
}

/// F1; but yes, no and “no answer” are right or wrong.
fn overlap(answer: &[String], gold: &[String]) -> f64 {
    let is_closed = |words: &[String]| matches!(words.join("").as_str(), "yes" | "no" | "noanswer");
    if is_closed(answer) || is_closed(gold) {
        return if answer == gold { 1.0 } else { 0.0 };
    }
    token_f1(answer, gold)
}

corver_sdk::export_response_rule!(FspoAnswer);

#[cfg(test)]
mod tests {
    use super::*;
    use corver_sdk::configured_response;
    use corver_sdk::testing::{check_responses, counts, response, run_response};

    fn graded(rule: &FspoAnswer, golds: &[&str], text: &str) -> (f32, String) {
        let grade = run_response(rule, &response("Who?", golds, text), &counts(&[]));
        (grade.reward, grade.label)
    }

    fn upstream() -> FspoAnswer {
        FspoAnswer { variant: Variant::Upstream, ..FspoAnswer::default() }
    }

    fn score(answer: &str, golds: &[&str]) -> f32 {
        let text = format!("<think>I remember.</think><answer>{answer}</answer>");
        let (alone, with_format) =
            (graded(&upstream(), golds, &text).0, graded(&FspoAnswer::default(), golds, &text).0);
        assert!((with_format - alone - 1.0).abs() < 1e-6, "the format is kept: {with_format}, {alone}");
        alone
    }

    #[test]
    fn the_nearest_gold_counts() {
        assert_eq!(score("The Mario Camerini!", &["x", "mario camerini"]), 1.0);
        // 1 word in common, of 1 and 2: 2 · 1 / (1 + 2).
        assert_eq!(score("Camerini", &["Mario Camerini", "Rome"]), 2.0 / 3.0);
        assert_eq!(score("Rome", &["Mario Camerini"]), 0.0);
        assert_eq!(score("", &["Rome"]), 0.0);
    }

    #[test]
    fn punctuation_and_underscores_end_words() {
        // "jean paul o brien" both ways.
        assert_eq!(score("Jean-Paul O’Brien", &["jean_paul  O'Brien."]), 1.0);
        // "u s" and "us" have no word in common.
        assert_eq!(score("U.S.", &["US"]), 0.0);
    }

    #[test]
    fn yes_and_no_are_right_or_wrong() {
        assert_eq!(score("Yes.", &["yes"]), 1.0);
        for (answer, gold) in [("yes, it is", "yes"), ("no", "no way"), ("yes", "no"), ("no answer", "answer")] {
            assert_eq!(score(answer, &[gold]), 0.0, "{answer:?} for {gold:?}");
        }
        assert_eq!(score("No answer", &["no answer"]), 1.0);
    }

    #[test]
    fn a_broken_format_has_no_answer() {
        let broken = "<think>I remember.</think><answer>Rome";
        assert_eq!(graded(&upstream(), &["Rome"], broken), (0.0, "BROKEN".into()));
        assert_eq!(graded(&FspoAnswer::default(), &["Rome"], broken), (0.0, "BROKEN".into()));
        let rule: FspoAnswer = configured_response(r#"{"kept": 0.5, "broken": -2}"#).unwrap();
        assert_eq!(graded(&rule, &["Rome"], broken), (-2.0, "BROKEN".into()));
        assert_eq!(graded(&rule, &["Rome"], &format!("{broken}</answer>")), (1.5, "GOOD".into()));
    }

    #[test]
    fn without_golds_the_format_is_paid() {
        assert_eq!(graded(&FspoAnswer::default(), &[], "a</think><answer>b</answer>"), (1.0, "NO_GOLD".into()));
        assert_eq!(graded(&upstream(), &[], "a</think><answer>b</answer>"), (0.0, "NO_GOLD".into()));
        assert!(configured_response::<FspoAnswer>(r#"{"kept": 1e39}"#).unwrap_err().contains("`kept`"));
    }

    #[test]
    fn any_completion_is_graded() {
        check_responses(&FspoAnswer::default(), 0.0..=2.0);
        check_responses(&upstream(), 0.0..=1.0);
    }
}
