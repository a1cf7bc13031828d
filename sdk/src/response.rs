//! Rules for whole completions: judges of the answer, checks of the format.

use crate::{Completion, Grade, Settings};

/// A reward for whole completions. The implementing type holds the rule's settings; [`crate::settings!`] declares it.
///
/// A judge that wants the gold itself, and nothing else:
///
/// ```
/// use corver_sdk::prelude::*;
///
/// settings! {
///     /// Pays an answer that is a gold, letter by letter.
///     pub struct Verbatim {
///         /// What a right answer earns.
///         pub reward: f64 = 2.0,
///     }
/// }
///
/// impl ResponseRule for Verbatim {
///     fn grade(&self, completion: &Completion) -> Grade {
///         if completion.golds.contains(&completion.answer) { grade(self.reward, "GOOD") } else { grade(-1.0, "BAD") }
///     }
/// }
///
/// corver_sdk::export_response_rule!(Verbatim);
/// ```
pub trait ResponseRule: Settings {
    /// Grades one completion, from its arguments alone.
    fn grade(&self, completion: &Completion) -> Grade;

    /// Refuses settings that do not make sense, beyond what their types say. Called once, before anything is graded.
    ///
    /// # Errors
    /// A message that names the setting.
    fn validate(&self) -> Result<(), String> {
        Ok(())
    }
}

/// A reward for the whole completion, and one word for it, such as GOOD or BROKEN. The number must be finite as a 32-bit float,
/// or the host refuses the whole batch.
#[must_use]
pub fn grade(reward: f64, label: &str) -> Grade {
    Grade { reward: reward as f32, label: label.to_owned(), note: None }
}

impl Grade {
    /// Adds words for the trace.
    #[must_use]
    pub fn note(mut self, note: &str) -> Self {
        self.note = Some(note.to_owned());
        self
    }
}
