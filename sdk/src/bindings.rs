//! The types of `wit/corver.wit`, generated, and the glue that a WebAssembly component needs.
//!
//! Natively the same types are plain Rust structs.
#![allow(missing_docs, unsafe_code, unused_qualifications, clippy::all, reason = "generated from wit/corver.wit")]

wit_bindgen::generate!({
    path: "../wit",
    world: "sentence-rule",
    pub_export_macro: true,
    default_bindings_module: "corver_sdk::bindings",
    additional_derives: [PartialEq],
});

pub use corver::reward::diagnostics::report;
pub use corver::reward::types::{Count, Manifest, Outcome, Query, Section, Sentence, Triplet, Verdict};
pub use exports::corver::reward::sentence_scoring::Guest;
