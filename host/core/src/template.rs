//! The tags of the template: `<think>reasoning</think><answer>answer</answer>`.

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
