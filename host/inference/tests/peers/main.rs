//! The models against `transformers`: `make test-peers`.

mod extract;
#[path = "../nli/golden.rs"]
mod golden;
mod nli;
