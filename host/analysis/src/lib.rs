//! Analysis of runs and rewards.
//!
//! ```text
//! compare      arms of an experiment: spread over seeds, tests of significance
//! calibrate    relation of counts and rewards to truth
//! judge        a chat model's labels, compared with grades and with people's labels
//! ```

pub mod calibrate;
pub mod compare;
pub mod judge;
