//! Opens, asks and verifies indexes that the input has damaged: nothing may panic, hang or leave
//! its memory.
#![no_main]

mod damage;

use std::sync::LazyLock;

use damage::Indexes;
use libfuzzer_sys::fuzz_target;

static INDEXES: LazyLock<Indexes> = LazyLock::new(Indexes::new);

fuzz_target!(|input: &[u8]| INDEXES.damage(input));
