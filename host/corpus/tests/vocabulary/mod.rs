//! A tokenizer for small test corpora, which the tests of passages share.

use corver_corpus::Tokenizer;
use serde_json::{Map, json};

/// Returns a tokenizer whose vocabulary is the words of `texts` after `▁`. As in the Llama 2 family,
/// a decoded word carries the space before it.
pub fn tokenizer(texts: &[&str]) -> Tokenizer {
    let mut vocab = Map::from_iter([("<unk>".to_owned(), json!(0))]);
    for word in texts.iter().flat_map(|text| text.split(' ')) {
        let id = vocab.len();
        vocab.entry(format!("▁{word}")).or_insert(json!(id));
    }
    let json = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": null,
        "pre_tokenizer": {
            "type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true,
        },
        "post_processor": null,
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ]},
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "<unk>"},
    });
    Tokenizer::from_bytes(json.to_string()).unwrap()
}
