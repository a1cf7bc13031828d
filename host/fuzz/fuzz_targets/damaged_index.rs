//! Opens, queries and verifies indexes that the input has damaged: nothing may panic, hang or
//! access memory out of bounds.
#![no_main]

mod damage;

use std::sync::LazyLock;

use damage::Indexes;
use libfuzzer_sys::fuzz_target;

static INDEXES: LazyLock<Indexes> = LazyLock::new(Indexes::new);

fuzz_target!(|input: &[u8]| INDEXES.damage(input));
