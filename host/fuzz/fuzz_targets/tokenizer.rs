//! Reads the input as a tokenizer.json: it is an error, or a tokenizer that encodes equal texts to
//! equal ids, and decodes any id.
#![no_main]

use libfuzzer_sys::fuzz_target;

const TEXTS: [&str; 4] = ["", "ab <s>ab-ab", "é 1967\n日本", "a\u{301}\0x"];

fuzz_target!(|content: &[u8]| {
    let Ok(file) = corver_tokenizer::parse(content) else { return };
    for text in TEXTS {
        let Ok(encoding) = file.tokenizer.encode_fast(text, true) else { continue };
        let again = file.tokenizer.encode_fast(text, true).expect("it was encoded before");
        assert_eq!(encoding.get_ids(), again.get_ids(), "{text:?}");
        let _ = file.tokenizer.decode(encoding.get_ids(), false);
    }
    let _ = file.tokenizer.decode(&[0, 1, 7, u32::MAX], true);
});
