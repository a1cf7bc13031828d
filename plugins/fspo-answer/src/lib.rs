//! Fspo-answer: FSPO's answer reward (Li and Ng 2025): the word overlap of the answer with a gold,
//! if the format is right. For use with `fspo`, which sets the sign of the advantages of single
//! sentences.
//!
//! The score is `f1_score` of the published code (github.com/nusnlp/FSPO at 7f5e4f9,
//! verl/utils/reward_score/hotpot.py).
use corver_sdk::Variant;
use corver_sdk::overlap::token_f1;
use corver_sdk::prelude::*;
use corver_sdk::tags::has_template;

settings! {
    /// Rewards an answer by its overlap with the nearest gold, 0 to 1; 0 if the format is broken.
    pub struct FspoAnswer {
        /// `paper`: adds a format reward. `upstream`: does not, as in the published code.
        pub variant: Variant = Variant::Paper,
        /// Format reward of a well-formed completion, with `variant = "paper"`.
        pub well_formed: f64 = 1.0,
        /// Format reward of another one, with `variant = "paper"`.
        pub broken: f64 = 0.0,
    }
}

impl ResponseRule for FspoAnswer {
    fn grade(&self, completion: &Completion, _: &Corpus) -> Result<Grade, Pending> {
        let is_well_formed = has_template(&completion.text);
        let format = match (self.variant, is_well_formed) {
            (Variant::Upstream, _) => 0.0,
            (Variant::Paper, true) => self.well_formed,
            (Variant::Paper, false) => self.broken,
        };
        if !is_well_formed {
            return Ok(Grade::new(format, "BROKEN"));
        }
        if completion.golds.is_empty() {
            return Ok(Grade::new(format, "NO_GOLD"));
        }
        let answer = normalized(&completion.answer);
        let score = completion
            .golds
            .iter()
            .map(|gold| overlap(&answer, &normalized(gold)))
            .fold(0.0, f64::max);
        let label = if score == 1.0 {
            "GOOD"
        } else if score > 0.0 {
            "PARTLY"
        } else {
            "BAD"
        };
        Ok(Grade::new(format + score, label).note(&format!("F1 {score:.2}")))
    }

    fn validate(&self) -> Result<(), String> {
        finite("well_formed", self.well_formed)?;
        finite("broken", self.broken)
    }
}

/// Returns the words of a text in lower case, cut at white space and punctuation, without articles.
/// A text that is exactly `True` is a yes, `False` a no.
fn normalized(text: &str) -> Vec<String> {
    let text = match text {
        "True" => "yes",
        "False" => "no",
        other => other,
    };
    let is_cut = |c: char| c.is_ascii_punctuation() || matches!(c, '‘' | '’' | '´');
    let text = text.to_lowercase().replace(is_cut, " ");
    without_articles(&text).split_whitespace().map(str::to_owned).collect()
}

/// Returns the text with a space for each run of letters and digits that is an article.
fn without_articles(text: &str) -> String {
    let mut cleaned = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (word, behind) =
            rest.split_at(rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len()));
        let (between, next) =
            behind.split_at(behind.find(char::is_alphanumeric).unwrap_or(behind.len()));
        cleaned.push_str(if matches!(word, "a" | "an" | "the") { " " } else { word });
        cleaned.push_str(between);
        rest = next;
    }
    cleaned
}

/// Returns F1; but where either text is “yes”, “no” or “no answer”, 1 if one of the texts is a word
/// of the other, else 0. So “yes, it is” is a yes, and “no answer”, being two words, does not even
/// match itself.
fn overlap(answer: &[String], gold: &[String]) -> f64 {
    let answer_text = answer.join(" ");
    let gold_text = gold.join(" ");
    let is_special = |text: &str| matches!(text, "yes" | "no" | "no answer");
    if !is_special(&answer_text) && !is_special(&gold_text) {
        return token_f1(answer, gold);
    }
    if gold.contains(&answer_text) || answer.contains(&gold_text) { 1.0 } else { 0.0 }
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
        assert!(
            (with_format - alone - 1.0).abs() < 1e-6,
            "the format is right: {with_format}, {alone}"
        );
        alone
    }

    #[test]
    fn best_matching_gold_sets_f1() {
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

    /// What the published `f1_score` gave for these texts.
    #[test]
    fn yes_no_matching_follows_reference_f1() {
        for (answer, gold) in [
            ("Yes.", "yes"),
            ("yes, it is", "yes"),
            ("yes", "yes, it is"),
            ("no", "no way"),
            ("no", "no answer"),
            ("no answer", "answer"),
            ("True", "yes"),
            ("yes", "True"),
            ("False", "no"),
        ] {
            assert_eq!(score(answer, &[gold]), 1.0, "{answer:?} for {gold:?}");
        }
        for (answer, gold) in [
            ("yes", "no"),
            ("maybe", "yes"),
            ("No answer", "no answer"),
            ("There is no answer", "no answer"),
            ("true", "yes"),
            ("True.", "yes"),
        ] {
            assert_eq!(score(answer, &[gold]), 0.0, "{answer:?} for {gold:?}");
        }
    }

    #[test]
    fn quoted_article_is_dropped_from_normalised_words() {
        assert_eq!(normalized("“A” b the_an"), ["“", "”", "b"]);
    }

    #[test]
    fn broken_format_is_graded_without_answer() {
        let broken = "<think>I remember.</think><answer>Rome";
        assert_eq!(graded(&upstream(), &["Rome"], broken), (0.0, "BROKEN".into()));
        assert_eq!(graded(&FspoAnswer::default(), &["Rome"], broken), (0.0, "BROKEN".into()));
        let rule: FspoAnswer =
            configured_response(r#"{"well_formed": 0.5, "broken": -2}"#).unwrap();
        assert_eq!(graded(&rule, &["Rome"], broken), (-2.0, "BROKEN".into()));
        assert_eq!(graded(&rule, &["Rome"], &format!("{broken}</answer>")), (1.5, "GOOD".into()));
    }

    #[test]
    fn without_golds_only_format_is_rewarded() {
        assert_eq!(
            graded(&FspoAnswer::default(), &[], "a</think><answer>b</answer>"),
            (1.0, "NO_GOLD".into())
        );
        assert_eq!(
            graded(&upstream(), &[], "a</think><answer>b</answer>"),
            (0.0, "NO_GOLD".into())
        );
        assert!(
            configured_response::<FspoAnswer>(r#"{"well_formed": 1e39}"#)
                .unwrap_err()
                .contains("`well_formed`")
        );
    }

    #[test]
    fn grades_stay_in_range_for_any_completion() {
        check_responses(&FspoAnswer::default(), 0.0..=2.0);
        check_responses(&upstream(), 0.0..=1.0);
    }
}
