//! Small random models and tokenizers for this crate's tests.

#[path = "../../../tests/golden.rs"]
pub(crate) mod golden;

use std::path::Path;
use std::sync::LazyLock;

use corver_core::update::LoraSettings;
use serde_json::{Value, json};
use tch::{Device, Tensor};

use crate::config::{Family, ModelConfig};
use crate::model::Model;
use crate::random::Stream;
use crate::tokenizer::PolicyTokenizer;

pub(crate) fn tiny_config(family: &str) -> ModelConfig {
    ModelConfig {
        family: match family {
            "llama" => Family::Llama,
            "qwen2" => Family::Qwen2,
            "qwen3" => Family::Qwen3,
            "olmo2" => Family::Olmo2,
            other => panic!("{other}"),
        },
        vocab_size: 23,
        hidden_size: 16,
        intermediate_size: 24,
        num_layers: 2,
        num_heads: 4,
        num_kv_heads: 2,
        head_dim: 4,
        max_positions: 64,
        norm_eps: 1e-6,
        rope_theta: 10_000.0,
        rope_scaling: None,
        tie_embeddings: family != "llama",
    }
}

pub(crate) fn tiny(family: &str, seed: u64) -> Model {
    Model::random(tiny_config(family), seed, Device::Cpu).unwrap()
}

/// The tiny model of seed 1 with adapters that do something: B is drawn too.
pub(crate) fn stirred(family: &str, lora: &LoraSettings) -> Model {
    let mut model = tiny(family, 1);
    model.add_lora(lora, 2).unwrap();
    let _guard = tch::no_grad_guard();
    for (name, tensor) in model.lora_parameters() {
        if name.contains("lora_B") {
            let mut stream = Stream::new(9, &name, &[]);
            let draws: Vec<f32> = (0..tensor.numel()).map(|_| 0.3 * stream.normal()).collect();
            tensor.shallow_clone().copy_(&Tensor::from_slice(&draws).view_as(tensor));
        }
    }
    model
}

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

fn load(tokenizer: &Value) -> PolicyTokenizer {
    let dir = tempfile::tempdir().unwrap();
    write_tokenizer(dir.path(), tokenizer);
    PolicyTokenizer::load(dir.path()).unwrap()
}

/// GPT-2's byte alphabet and two special tokens, no merges: one token per byte.
pub(crate) fn byte_level_json() -> Value {
    let printable = (b'!'..=b'~').chain(0xA1..=0xAC).chain(0xAE..=0xFF);
    let printable: Vec<u8> = printable.collect();
    let others = (0..=255u8).filter(|b| !printable.contains(b)).count() as u32;
    let alphabet = printable.iter().map(|&b| u32::from(b)).chain(256..256 + others);
    let mut vocab: serde_json::Map<_, _> =
        alphabet.enumerate().map(|(id, c)| (char::from_u32(c).unwrap().to_string(), json!(id))).collect();
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

pub(crate) fn byte_level_tokenizer() -> &'static PolicyTokenizer {
    static TOKENIZER: LazyLock<PolicyTokenizer> = LazyLock::new(|| load(&byte_level_json()));
    &TOKENIZER
}

/// Llama-2 style: metaspace with byte fallback.
pub(crate) fn metaspace_tokenizer() -> &'static PolicyTokenizer {
    static TOKENIZER: LazyLock<PolicyTokenizer> = LazyLock::new(|| load(&metaspace_json()));
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
