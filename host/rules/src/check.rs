//! Bounds of what rules answer that every kind of answer has.

use crate::error::Fault;

pub(crate) fn check_text(what: &'static str, text: &str, limit: usize) -> Result<(), Fault> {
    let got = text.len();
    if got > limit {
        return Err(Fault::Limit(format!(
            "gave a {what} of {got} bytes; at most {limit} are allowed (limits.text_bytes)"
        )));
    }
    Ok(())
}
