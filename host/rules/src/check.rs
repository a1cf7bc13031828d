//! Bounds of what rules answer that every kind of answer has.

use crate::Fault;

pub(crate) fn check_text(what: &'static str, text: &str, limit: usize) -> Result<(), Fault> {
    if text.len() > limit { Err(Fault::Text { what, limit, got: text.len() }) } else { Ok(()) }
}
