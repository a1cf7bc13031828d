//! Brief: a format reward for completions with closed think and answer blocks, within a length.
use corver_sdk::at_least_one;
use corver_sdk::prelude::*;

settings! {
    /// Rewards a completion that follows the template, less the longer it is.
    pub struct Brief {
        /// Reward of a completion that follows the template within `limit`.
        pub well_formed: f64 = 1.0,
        /// Reward of one that does not, or is twice as long as `limit`.
        pub broken: f64 = -1.0,
        /// Length with the full reward, characters; beyond, the reward falls in a straight line.
        pub limit: u64 = 2_000,
        /// Shortest reasoning, characters.
        pub min_reasoning: u64 = 30,
    }
}

impl ResponseRule for Brief {
    fn grade(&self, completion: &Completion, _: &Corpus) -> Result<Grade, Pending> {
        let Some(reasoning) = reasoning(&completion.text) else {
            return Ok(Grade::new(self.broken, "BROKEN"));
        };
        if (reasoning.chars().count() as u64) < self.min_reasoning {
            return Ok(Grade::new(self.broken, "BROKEN").note("too little reasoning"));
        }
        let length = completion.text.chars().count() as f64;
        let over = (length / self.limit as f64 - 1.0).clamp(0.0, 1.0);
        let label = if over > 0.0 { "LONG" } else { "OK" };
        let reward = self.well_formed + over * (self.broken - self.well_formed);
        Ok(Grade::new(reward, label).note(&format!("{length} characters")))
    }

    fn validate(&self) -> Result<(), String> {
        finite("well_formed", self.well_formed)?;
        finite("broken", self.broken)?;
        at_least_one("limit", self.limit)
    }
}

const TAGS: [&str; 4] = ["<think>", "</think>", "<answer>", "</answer>"];

/// Returns the content of the think block if the text is a think and an answer block, both closed.
/// The prompt may have opened the think block.
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
        assert_eq!(of(REASONED), "OK");
        assert_eq!(
            of(&REASONED.replace("<think>", "")),
            "OK",
            "a chat template may open the block"
        );
        for (from, to) in
            [("</answer>", ""), ("</think>", ""), ("Mario Camerini", " "), ("1954", "<think>")]
        {
            assert_eq!(of(&REASONED.replace(from, to)), "BROKEN", "{from} → {to}");
        }
        assert_eq!(of(&REASONED.replace("1954", "1954 < 1955")), "OK");
        assert_eq!(of("<think>Sure.</think><answer>Rome</answer>"), "BROKEN");
        assert_eq!(of(&format!("{REASONED} Goodbye.")), "BROKEN");
    }

    #[test]
    fn length_above_limit_lowers_reward() {
        let rule = Brief { limit: REASONED.chars().count() as u64, ..Brief::default() };
        assert_eq!(graded(&rule, REASONED), (1.0, "OK".into()));
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
