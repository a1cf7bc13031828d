//! The tiny policy: what it believes, what it says, and how it is trained.

mod belief;
mod measure;
mod tokenizer;
mod train;

pub use train::{SHIPPED, make};
