//! Rules written in WebAssembly text, so that they can do what no compiler would let them.

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

const CONTRACT: &str = include_str!("../../../../wit/corver.wit");

/// A module that follows the contract; every part can be replaced by a hostile one. Its memory
/// holds texts from 0 on, prepared answers from 64 on, and what the host hands in from 65,536 on.
pub struct Guest {
    /// Further declarations.
    pub extra: &'static str,
    /// Pages of 64 KiB.
    pub pages: u32,
    /// Bodies of the exported functions; each leaves the address of its answer.
    pub describe: &'static str,
    pub configure: &'static str,
    pub score: &'static str,
    pub resume: &'static str,
    /// Body of the function that the host calls after it has read the scores.
    pub after_score: &'static str,
    /// Leaves the address of `$size` bytes for the host to write to.
    pub realloc: &'static str,
    /// Version of the contract.
    pub version: &'static str,
}

/// Address 256 holds one outcome, address 320 a list with that outcome alone, address 336 a list
/// with that list alone.
pub const SCORE_ZERO: &str = "i32.const 336";

/// A `score` that calls itself without end.
pub const RECURSION: &str =
    "(call $score (local.get 0) (local.get 1) (local.get 2) (local.get 3) (local.get 4) (local.get 5)
        (local.get 6) (local.get 7) (local.get 8) (local.get 9))
    (i32.const 1) i32.add";

impl Default for Guest {
    /// A well-behaved rule: every sentence receives 0, if there is one completion with one sentence.
    fn default() -> Self {
        Self {
            extra: "",
            pages: 4,
            describe: "i32.const 64",
            configure: "i32.const 128",
            score: SCORE_ZERO,
            resume: SCORE_ZERO,
            after_score: "",
            realloc: "(local $at i32)
                (local.set $at (i32.and (i32.add (global.get $top) (i32.const 7)) (i32.const -8)))
                (global.set $top (i32.add (local.get $at) (local.get $size)))
                (local.get $at)",
            version: "0.1.0",
        }
    }
}

impl Guest {
    /// Scores like this, and is well-behaved otherwise.
    pub fn scoring(score: &'static str) -> Self {
        Self { score, ..Self::default() }
    }

    /// The core module, contract included, as a compiler would make it.
    pub fn module(&self) -> Vec<u8> {
        let mut module = self.plain_module();
        let mut resolve = Resolve::default();
        let wit = CONTRACT.replace("@0.1.0", &format!("@{}", self.version));
        let package = resolve.push_source("corver.wit", &wit).unwrap();
        let world = resolve.select_world(&[package], Some("sentence-rule")).unwrap();
        embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).unwrap();
        module
    }

    /// The module, larger than what is compiled with inlining.
    pub fn large_module(&self) -> Vec<u8> {
        // A custom section of 2 MiB: its number, its size in LEB128, the length of its name, the
        // name, and nothing but zeros.
        let padding = [&[0, 0x80, 0x80, 0x80, 0x01, 3][..], b"pad", &[0; (2 << 20) - 4]].concat();
        [self.module(), padding].concat()
    }

    pub fn component(&self) -> Vec<u8> {
        ComponentEncoder::default().module(&self.module()).unwrap().encode().unwrap()
    }

    /// Without the contract.
    pub fn plain_module(&self) -> Vec<u8> {
        let Self {
            extra,
            pages,
            describe,
            configure,
            score,
            resume,
            after_score,
            realloc,
            version,
        } = self;
        let interface = format!("corver:reward/sentence-scoring@{version}");
        wat::parse_str(format!(
            r#"(module
                (import "corver:reward/diagnostics@{version}" "report" (func $report (param i32 i32)))
                (memory (export "memory") {pages})
                (global $top (mut i32) (i32.const 65536))
                {extra}
                (data (i32.const 0) "hostile")
                (data (i32.const 16) "1.2.3")
                (data (i32.const 32) "panicked at rule.rs:7")
                ;; the manifest: four texts, each an address and a length
                (data (i32.const 64) "\00\00\00\00\07\00\00\00\10\00\00\00\05\00\00\00\00\00\00\00\07\00\00\00\00\00\00\00\00\00\00\00")
                ;; 128: `ok`. 256: the outcome `done` with reward 0. 320: a list of one outcome, at 256. 336: a list of
                ;; one list, at 320
                (data (i32.const 320) "\00\01\00\00\01\00\00\00")
                (data (i32.const 336) "\40\01\00\00\01\00\00\00")
                (func (export "cabi_realloc") (param i32 i32 i32) (param $size i32) (result i32) {realloc})
                (func (export "{interface}#describe") (result i32) {describe})
                (func (export "{interface}#configure") (param i32 i32) (result i32) {configure})
                ;; the completions' address and number, then the corpus: four options
                (func $score (export "{interface}#score")
                    (param $completions i32) (param i32) (param i32) (param $tokens i64) (param i32) (param $documents i64)
                    (param i32) (param $window i64) (param i32) (param $mode i32) (result i32) {score})
                (func (export "{interface}#resume") (param i32 i32) (result i32) {resume})
                (func (export "cabi_post_{interface}#score") (param i32) {after_score}))"#
        ))
        .unwrap()
    }
}
