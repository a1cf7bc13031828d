//! Reads the input as the extractor's reply: nothing may panic, overflow the stack or hang, and a triplet has both its ends.
#![no_main]

use corver_core::triplet::triplets_from_reply;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|reply: &str| {
    let triplets = triplets_from_reply(reply);
    assert!(triplets.len() <= reply.len(), "more triplets than characters");
});
