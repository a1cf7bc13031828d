//! The folder of a small policy, for tests.

use std::path::Path;

use corver_learn::Model;
use corver_pretrained::ModelConfig;
use serde_json::json;
use tch::Device;

/// Writes a random model, and a tokenizer with letters, a few words and two special tokens.
pub fn write_folder(folder: &Path, config: &ModelConfig) {
    let words = ["a", "b", "c", "d", "e", "Ġ", "Ċ", "Q"];
    let mut vocab: serde_json::Map<_, _> =
        words.iter().enumerate().map(|(id, w)| (w.to_string(), json!(id))).collect();
    let mark = |id: usize, content: &str| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
               "normalized": false, "special": true})
    };
    vocab.insert("<|im_start|>".into(), json!(8));
    vocab.insert("<|im_end|>".into(), json!(9));
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null,
        "added_tokens": [mark(8, "<|im_start|>"), mark(9, "<|im_end|>")],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                  "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": vocab, "merges": []}
    });
    let template =
        "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}<|im_start|>";
    std::fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    std::fs::write(
        folder.join("tokenizer_config.json"),
        json!({"chat_template": template}).to_string(),
    )
    .unwrap();
    assert_eq!(config.vocab_size, 12);
    Model::random(config.clone(), 5, Device::Cpu).unwrap().save(folder).unwrap();
}
