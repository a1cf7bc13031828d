//! Checks that apply to all texts of a rule.

use crate::error::Fault;

/// Fails if a text is longer than `limit` bytes. `name` says what it is.
pub(crate) fn check_text(name: &'static str, text: &str, limit: usize) -> Result<(), Fault> {
    let bytes = text.len();
    if bytes > limit {
        return Err(Fault::Limit(format!(
            "gave a {name} of {bytes} bytes; at most {limit} are allowed (limits.text_bytes)"
        )));
    }
    Ok(())
}
