//! The template: `<think>reasoning</think><answer>answer</answer>`.

use crate::text::strip;

/// One block of the template.
#[derive(Debug, Clone, Copy)]
pub struct Tags {
    /// Where it begins.
    pub open: &'static str,
    /// Where it ends.
    pub close: &'static str,
}

/// The reasoning.
pub const THINK: Tags = Tags { open: "<think>", close: "</think>" };

/// The answer.
pub const ANSWER: Tags = Tags { open: "<answer>", close: "</answer>" };

/// Every tag there is.
pub const ALL_TAGS: [&str; 4] = [THINK.open, THINK.close, ANSWER.open, ANSWER.close];

/// Characters of reasoning below which the format is not kept.
pub const MIN_REASONING: usize = 30;

/// Returns the text behind the first `<answer>`, up to `</answer>` or the end, trimmed; `None`
/// where there is no such tag.
#[must_use]
pub fn answer_block(completion: &str) -> Option<&str> {
    let (_, rest) = completion.split_once(ANSWER.open)?;
    Some(strip(rest.split(ANSWER.close).next().unwrap_or(rest)))
}
