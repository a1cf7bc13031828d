//! Counts of n-grams that occur near each other.

mod batch;
mod boundary;
mod clause;
pub(crate) mod cnf;
mod count;
mod cpp_uniform;
mod join;
mod plan;
mod scan;
mod span;
mod starts;
