//! The trait of response rules: answer judges and format checks.

use crate::{Capability, Completion, Corpus, Grade, Pending, RuleSettings};

/// A reward for whole completions. The type that implements it holds the rule's settings;
/// [`crate::settings!`] declares it.
///
/// An answer judge that accepts the gold and nothing else:
///
/// ```
/// use corver_sdk::prelude::*;
///
/// settings! {
///     /// Rewards an answer that equals a gold.
///     pub struct Verbatim {
///         /// Reward of a right answer.
///         pub reward: f64 = 2.0,
///     }
/// }
///
/// impl ResponseRule for Verbatim {
///     fn grade(&self, completion: &Completion, _corpus: &Corpus) -> Result<Grade, Pending> {
///         let Some(answer) = completion.answer_block() else {
///             return Ok(Grade::new(-1.0, "NOT_ATTEMPTED"));
///         };
///         if completion.golds.iter().any(|gold| gold == answer) {
///             Ok(Grade::new(self.reward, "GOOD"))
///         } else {
///             Ok(Grade::new(-1.0, "BAD"))
///         }
///     }
/// }
///
/// corver_sdk::export_response_rule!(Verbatim);
/// ```
pub trait ResponseRule: RuleSettings {
    /// As [`crate::SentenceRule::REQUIRES`].
    const REQUIRES: &'static [Capability] = &[];

    /// Grades one completion. Runs again, from the start, whenever replies have arrived. It must
    /// depend on its arguments alone and send the same requests in the same order.
    ///
    /// # Errors
    /// [`Pending`] if `corpus` does not have a reply yet; `?` returns it.
    fn grade(&self, completion: &Completion, corpus: &Corpus) -> Result<Grade, Pending>;

    /// Rejects settings that their types allow but the rule does not. Runs once, before grading. It
    /// must accept the defaults: the host loads a rule with them to learn its name.
    ///
    /// # Errors
    /// A message that names the setting.
    fn validate(&self) -> Result<(), String> {
        Ok(())
    }
}
