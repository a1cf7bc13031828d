//! Types generated from `wit/corver.wit`, and the glue of a WebAssembly component.
//!
//! Natively the same types are plain Rust structs.
#![allow(
    missing_docs,
    unsafe_code,
    unused_qualifications,
    clippy::all,
    reason = "generated from wit/corver.wit"
)]

wit_bindgen::generate!({
    path: "wit",
    world: "sentence-rule",
    pub_export_macro: true,
    default_bindings_module: "corver_sdk::bindings",
    additional_derives: [PartialEq],
    generate_unused_types: true,
});

/// The world of response rules, with the types of sentence rules.
pub mod response {
    wit_bindgen::generate!({
        path: "wit",
        world: "response-rule",
        pub_export_macro: true,
        default_bindings_module: "corver_sdk::bindings::response",
        with: {
            "corver:reward/types@0.1.0": super::corver::reward::types,
            "corver:reward/diagnostics@0.1.0": super::corver::reward::diagnostics,
        },
    });

    pub use exports::corver::reward::response_grading::Guest;
}

pub use corver::reward::diagnostics::report;
pub use corver::reward::types::*;
pub use exports::corver::reward::sentence_scoring::Guest;
