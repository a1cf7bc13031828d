//! Analysis of runs and rewards.
//!
//! ```text
//! compare      runs side by side: spread over seeds, tests of significance
//! calibrate    what counts and rewards say of truth
//! judge        a chat model's second opinion of grades and labels
//! ```

pub mod calibrate;
pub mod compare;
pub mod judge;
