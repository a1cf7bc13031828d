//! A tokenizer of Llama 2's kind, trained on the text that it will tokenise.

use serde_json::json;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::{AddedToken, Trainer};

const MARK: char = '▁';
const IDS: usize = 32_000;

/// The content of its `tokenizer.json`.
pub fn train(texts: &[String]) -> String {
    let special = ["<unk>", "<s>", "</s>"].map(String::from);
    let bytes = (0..=255_u8).map(|byte| format!("<{byte:#04X}>"));
    let first_ids =
        special.iter().cloned().chain(bytes).map(|token| AddedToken::from(token, true)).collect();
    let mut trainer = BpeTrainer::builder()
        .vocab_size(IDS)
        .min_frequency(2)
        .show_progress(false)
        .special_tokens(first_ids)
        .build();
    trainer.feed(texts.iter(), |text| Ok(parts(text))).expect("the parts are given as they are");
    let mut model = BPE::default();
    trainer.train(&mut model).expect("the text has pairs of characters");
    let mut model = serde_json::to_value(&model).expect("a model can be saved");
    model["unk_token"] = json!("<unk>");
    model["fuse_unk"] = json!(true);
    model["byte_fallback"] = json!(true);
    let added = special.iter().enumerate().map(|(id, content)| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true})
    });
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null,
        "added_tokens": added.collect::<Vec<_>>(),
        "pre_tokenizer": {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "first", "split": false},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": MARK}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": model,
    });
    tokenizer.to_string()
}

/// Boundaries that no token may cross: words with the mark before them, digits one by one, punctuation.
/// Line ends are left to the bytes.
fn parts(text: &str) -> Vec<String> {
    let mut parts = Vec::new();
    let mut part = String::from(MARK);
    for character in text.chars() {
        let joins = character.is_alphabetic()
            && part.chars().all(|c| c == MARK || c.is_alphabetic())
            || character.is_ascii_punctuation() && part.chars().all(|c| c == MARK);
        if !joins && !part.is_empty() {
            parts.push(std::mem::take(&mut part));
        }
        match character {
            ' ' => part.push(MARK),
            '\n' => {}
            other => part.push(other),
        }
    }
    parts.push(part);
    parts.retain(|part| !part.is_empty());
    parts
}
