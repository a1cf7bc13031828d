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
