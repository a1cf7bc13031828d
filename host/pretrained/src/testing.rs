//! Tokenizers for this crate's tests.

use std::path::Path;
use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::tokenizer::ChatTokenizer;

const CHATML: &str = "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}\
                      {%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}";

fn special(id: usize, content: &str) -> Value {
    json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
           "normalized": false, "special": true})
}

/// Writes the files of a tokenizer folder.
pub(crate) fn write_tokenizer(folder: &Path, tokenizer: &Value) {
    std::fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    let config = json!({"chat_template": CHATML, "eos_token": "<|im_end|>"});
    std::fs::write(folder.join("tokenizer_config.json"), config.to_string()).unwrap();
}

pub(crate) fn load(tokenizer: &Value) -> ChatTokenizer {
    let dir = tempfile::tempdir().unwrap();
    write_tokenizer(dir.path(), tokenizer);
    ChatTokenizer::load(dir.path()).unwrap()
}

/// A tokenizer with GPT-2's byte alphabet, two special tokens and no merges: one token per byte.
pub(crate) fn byte_level_json() -> Value {
    let printable: Vec<u8> = (b'!'..=b'~').chain(0xA1..=0xAC).chain(0xAE..=0xFF).collect();
    let others = (0..=255u8).filter(|b| !printable.contains(b)).count() as u32;
    let alphabet = printable.iter().map(|&b| u32::from(b)).chain(256..256 + others);
    let mut vocab: serde_json::Map<_, _> = alphabet
        .enumerate()
        .map(|(id, c)| (char::from_u32(c).unwrap().to_string(), json!(id)))
        .collect();
    vocab.insert("<|im_start|>".into(), json!(256));
    vocab.insert("<|im_end|>".into(), json!(257));
    json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null,
        "added_tokens": [special(256, "<|im_start|>"), special(257, "<|im_end|>")],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                  "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": vocab, "merges": []}
    })
}

pub(crate) fn byte_level_tokenizer() -> &'static ChatTokenizer {
    static TOKENIZER: LazyLock<ChatTokenizer> = LazyLock::new(|| load(&byte_level_json()));
    &TOKENIZER
}

/// A tokenizer in the style of Llama 2: metaspace with byte fallback.
pub(crate) fn metaspace_tokenizer() -> &'static ChatTokenizer {
    static TOKENIZER: LazyLock<ChatTokenizer> = LazyLock::new(|| load(&metaspace_json()));
    &TOKENIZER
}

fn metaspace_json() -> Value {
    let words = ["▁he", "▁", "h", "e", "l", "o", "llo", "▁the", "\u{FFFD}"].map(str::to_owned);
    let bytes = (0..256).map(|b| format!("<0x{b:02X}>"));
    let mut vocab: serde_json::Map<_, _> =
        words.into_iter().chain(bytes).enumerate().map(|(id, token)| (token, json!(id))).collect();
    let end = vocab.len();
    vocab.insert("<|im_end|>".into(), json!(end));
    json!({
        "version": "1.0", "truncation": null, "padding": null, "pre_tokenizer": null, "post_processor": null,
        "added_tokens": [special(end, "<|im_end|>")],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                  "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "vocab": vocab, "merges": []}
    })
}
