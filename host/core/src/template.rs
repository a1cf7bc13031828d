//! The template of completions: `<think>reasoning</think><answer>answer</answer>`.

use crate::text::strip;

/// One block of the template.
#[derive(Debug, Clone, Copy)]
pub struct Tags {
    /// Tag that opens the block.
    pub open: &'static str,
    /// Tag that closes the block.
    pub close: &'static str,
}

/// Tags of the reasoning block.
pub const THINK: Tags = Tags { open: "<think>", close: "</think>" };

/// Tags of the answer block.
pub const ANSWER: Tags = Tags { open: "<answer>", close: "</answer>" };

/// All tags of the template.
pub const ALL_TAGS: [&str; 4] = [THINK.open, THINK.close, ANSWER.open, ANSWER.close];

/// Least number of characters of reasoning that the format check accepts.
pub const MIN_REASONING: usize = 30;

/// Returns the text after the first `<answer>`, up to `</answer>` or the end, trimmed; `None` if
/// there is no such tag.
#[must_use]
pub fn answer_block(completion: &str) -> Option<&str> {
    let (_, rest) = completion.split_once(ANSWER.open)?;
    Some(strip(rest.split(ANSWER.close).next().unwrap_or(rest)))
}

/// True if the first `<answer>` is inside a closed think block, which the prompt may have opened.
#[must_use]
pub fn answers_in_think(completion: &str) -> bool {
    let Some((before, after)) = completion.split_once(ANSWER.open) else { return false };
    let is_open = match before.split_once(THINK.open) {
        Some((_, thought)) => !thought.contains(THINK.close),
        // Without any `<think>`, the text begins in a block that the prompt opened.
        None => !before.contains(THINK.close) && !after.contains(THINK.open),
    };
    is_open && after.contains(THINK.close)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TextSettings;
    use crate::sentence::Section;
    use crate::split::split;

    #[test]
    fn answer_in_think_block_is_detected() {
        for (text, expected) in [
            ("<think>a <answer>b</answer> c</think><answer>d</answer>", true),
            ("<think>a <answer>b</think>", true),
            ("a <answer>b</answer> c</think><answer>d</answer>", true),
            ("<think>a</think><answer>b</answer>", false),
            ("a</think><answer>b</answer>", false),
            ("<think>a</think><answer>b</answer></think>", false),
            ("<answer>b</answer><think>a</think>", false),
            ("<think>a <answer>b</answer>", false),
            ("<answer>b</answer>", false),
            ("<think>a</think>", false),
            ("", false),
        ] {
            assert_eq!(answers_in_think(text), expected, "{text}");
            let sentences = split(text, TextSettings::default()).sentences;
            let is_reasoning =
                sentences.iter().any(|one| one.section == Section::Think && one.text == "b");
            assert_eq!(is_reasoning, expected, "the splitter, of {text}");
        }
    }
}
