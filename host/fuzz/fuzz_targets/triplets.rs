//! Reads the input as the extractor's reply: nothing may panic, overflow the stack or hang, there
//! are no more triplets than characters, and a reply that closes a list when it is cut still does
//! when it is whole.
#![no_main]

use corver_core::triplet::{closes_a_list, triplets_from_reply};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|reply: &str| {
    let triplets = triplets_from_reply(reply);
    assert!(triplets.len() <= reply.len(), "more triplets than characters");
    let mut ends = reply.char_indices().map(|(at, c)| at + c.len_utf8());
    match ends.find(|&end| closes_a_list(&reply[..end])) {
        Some(end) => assert!(reply[..end].ends_with(']') && closes_a_list(reply)),
        None => assert!(!closes_a_list(reply)),
    }
});
