//! The demo's policy: its beliefs, its tokenizer and its training.

mod belief;
mod measure;
mod tokenizer;
mod train;

pub use train::{SHIPPED, train_and_measure};
