//! Reads the input as the extractor's reply, in either grammar: nothing may panic, overflow the stack
//! or hang, and there are no more claims than characters. In the published grammar, a reply that
//! closes a list when it is cut closes one in full.
#![no_main]

use corver_core::ReplyGrammar;
use corver_core::reply::{is_complete, read};
use corver_core::triplet::closes_a_list;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|reply: &str| {
    for grammar in [ReplyGrammar::Tolerant, ReplyGrammar::Reference] {
        let claims = read(reply, grammar).claims;
        assert!(claims.len() <= reply.len(), "more claims than characters");
        let _ = is_complete(reply, grammar);
    }
    let mut ends = reply.char_indices().map(|(at, c)| at + c.len_utf8());
    match ends.find(|&end| closes_a_list(&reply[..end])) {
        Some(end) => assert!(reply[..end].ends_with(']') && closes_a_list(reply)),
        None => assert!(!closes_a_list(reply)),
    }
});
