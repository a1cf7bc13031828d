//! Rules for whole completions: judges of the answer, checks of the format.

use crate::{Ask, Completion, Corpus, Grade, Settings, Verifier};

/// A rule's answer for one completion: a grade, or the replies it still needs. `?` on
/// [`Corpus::chats`], for example, makes the latter.
pub type Graded = Result<Grade, Ask>;

/// A reward for whole completions. The implementing type holds the rule's settings;
/// [`crate::settings!`] declares it.
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
///     fn grade(&self, completion: &Completion, _: &Corpus) -> Graded {
///         if completion.golds.contains(&completion.answer) { grade(self.reward, "GOOD") } else { grade(-1.0, "BAD") }
///     }
/// }
///
/// corver_sdk::export_response_rule!(Verbatim);
/// ```
pub trait ResponseRule: Settings {
    /// As [`crate::SentenceRule::ASKS`].
    const ASKS: &'static [Verifier] = &[];

    /// A response rule sees triplets where the run's sentence rule reads them.
    #[doc(hidden)]
    const READS_TRIPLETS: bool = false;

    /// Grades one completion. Called again with more answers until it no longer asks; each call
    /// must decide, and ask, from its arguments alone.
    ///
    /// # Errors
    /// [`Ask`] where `corpus` does not hold an answer yet; `?` passes it on.
    fn grade(&self, completion: &Completion, corpus: &Corpus) -> Graded;

    /// Refuses settings that do not make sense, beyond what their types say. Called once, before
    /// anything is graded.
    ///
    /// # Errors
    /// A message that names the setting.
    fn validate(&self) -> Result<(), String> {
        Ok(())
    }
}

/// A reward for the whole completion, and one word for it, such as GOOD or BROKEN. The number must
/// be finite as a 32-bit float, or the host refuses the whole batch.
#[expect(
    clippy::missing_errors_doc,
    reason = "never an error: the type is what `ResponseRule::grade` returns"
)]
pub fn grade(reward: f64, label: &str) -> Graded {
    Ok(Grade { reward: reward as f32, label: label.to_owned(), note: None })
}

/// Adds to a grade. Leaves asks as they are.
#[expect(clippy::missing_errors_doc, reason = "an ask stays an ask; no error of its own")]
pub trait GradedExt {
    /// Words for the trace.
    fn note(self, note: &str) -> Graded;
}

impl GradedExt for Graded {
    fn note(self, note: &str) -> Graded {
        self.map(|grade| Grade { note: Some(note.to_owned()), ..grade })
    }
}
