//! Brief: a format reward for completions that think, answer, close both blocks, and do not ramble.
use corver_sdk::at_least_one;
use corver_sdk::prelude::*;

settings! {
    /// Pays a completion that keeps the template, less the longer it gets.
    pub struct Brief {
        /// The reward of a completion that keeps the template within `limit`.
        pub kept: f64 = 1.0,
        /// The reward of one that does not keep it, or is twice as long as `limit`.
        pub broken: f64 = -1.0,
        /// Characters up to which nothing is taken off; beyond, the reward falls in a straight
        /// line.
        pub limit: u64 = 2_000,
        /// Characters of reasoning that the think block must have.
        pub min_reasoning: u64 = 30,
    }
}

impl ResponseRule for Brief {
    fn grade(&self, completion: &Completion, _: &Corpus) -> Graded {
        let Some(reasoning) = reasoning(&completion.text) else {
            return grade(self.broken, "BROKEN");
        };
        if (reasoning.chars().count() as u64) < self.min_reasoning {
            return grade(self.broken, "BROKEN").note("too little reasoning");
        }
        let length = completion.text.chars().count() as f64;
        let over = (length / self.limit as f64 - 1.0).clamp(0.0, 1.0);
        let label = if over > 0.0 { "LONG" } else { "KEPT" };
        grade(self.kept + over * (self.broken - self.kept), label)
            .note(&format!("{length} characters"))
    }

    fn validate(&self) -> Result<(), String> {
        finite("kept", self.kept)?;
        finite("broken", self.broken)?;
        at_least_one("limit", self.limit)
    }
}

const TAGS: [&str; 4] = ["<think>", "</think>", "<answer>", "</answer>"];

/// What stands in the think block, where think and answer are all there is and both are closed. The
/// prompt may have opened the think block.
fn reasoning(text: &str) -> Option<&str> {
    let text = text.trim();
    let (reasoning, rest) = text.strip_prefix("<think>").unwrap_or(text).split_once("</think>")?;
    let answer = rest.trim_start().strip_prefix("<answer>")?.strip_suffix("</answer>")?;
    let is_plain =
        |part: &str| !part.trim().is_empty() && !TAGS.iter().any(|tag| part.contains(tag));
    (is_plain(reasoning) && is_plain(answer)).then(|| reasoning.trim())
}

corver_sdk::export_response_rule!(Brief);

#[cfg(test)]
mod tests {
    use super::*;
    use corver_sdk::configured_response;
    use corver_sdk::testing::{check_responses, counts, response, run_response};

    const REASONED: &str =
        "<think>Camerini made it in 1954, I am sure.</think>\n<answer>Mario Camerini</answer>";

    fn graded(rule: &Brief, text: &str) -> (f32, String) {
        let grade = run_response(rule, &response("Who?", &["x"], text), &counts(&[]));
        (grade.reward, grade.label)
    }

    #[test]
    fn format_check_distinguishes_valid_and_broken_templates() {
        let of = |text: &str| graded(&Brief::default(), text).1;
        assert_eq!(of(REASONED), "KEPT");
        assert_eq!(
            of(&REASONED.replace("<think>", "")),
            "KEPT",
            "a chat template may open the block"
        );
        for (from, to) in
            [("</answer>", ""), ("</think>", ""), ("Mario Camerini", " "), ("1954", "<think>")]
        {
            assert_eq!(of(&REASONED.replace(from, to)), "BROKEN", "{from} → {to}");
        }
        assert_eq!(of(&REASONED.replace("1954", "1954 < 1955")), "KEPT");
        assert_eq!(of("<think>Sure.</think><answer>Rome</answer>"), "BROKEN");
        assert_eq!(of(&format!("{REASONED} Goodbye.")), "BROKEN");
    }

    #[test]
    fn length_above_limit_lowers_reward() {
        let rule = Brief { limit: REASONED.chars().count() as u64, ..Brief::default() };
        assert_eq!(graded(&rule, REASONED), (1.0, "KEPT".into()));
        let half_more = Brief { limit: 2 * rule.limit / 3, ..Brief::default() };
        let (reward, label) = graded(&half_more, REASONED);
        assert!((reward - 0.0).abs() < 0.05 && label == "LONG", "{reward} {label}");
        assert_eq!(
            graded(&Brief { limit: 1, ..Brief::default() }, REASONED),
            (-1.0, "LONG".into())
        );
        assert!(configured_response::<Brief>(r#"{"limit": 0}"#).unwrap_err().contains("`limit`"));
    }

    #[test]
    fn grades_stay_in_range_for_any_completion() {
        check_responses(&Brief::default(), -1.0..=1.0);
    }
}
