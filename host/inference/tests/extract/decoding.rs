//! Replies of tiny random models against the same models written out as sums.

use std::path::Path;

use corver_core::ReplyGrammar;
use corver_core::reply::is_complete;
use corver_inference::extract::{
    Device, ExtractOptions, ExtractorSettings, OnnxExtractor, RuntimeLibrary,
};
use corver_pretrained::{Llama3Scaling, ModelConfig, ModelFamily};
use serde_json::json;

use crate::reference::Decoder;

/// Bytes, and a token that ends a reply.
const VOCABULARY: usize = 97;

fn config(
    family: ModelFamily,
    num_heads: usize,
    tied: bool,
    rope_scaling: Option<Llama3Scaling>,
) -> ModelConfig {
    ModelConfig {
        family,
        vocab_size: VOCABULARY,
        hidden_size: 24,
        intermediate_size: 20,
        num_layers: 3,
        num_heads,
        num_kv_heads: 2,
        head_dim: 8,
        max_positions: 1024,
        norm_eps: 1e-6,
        rope_theta: 10_000.0,
        rope_scaling,
        tie_embeddings: tied,
    }
}

/// Space to ~, a token for each; the last one ends a reply.
fn write_tokenizer(folder: &Path) {
    let mut vocabulary: serde_json::Map<_, _> = (b' '..=b'~')
        .enumerate()
        .map(|(id, byte)| (char::from(byte).to_string(), json!(id)))
        .collect();
    vocabulary.insert("\n".to_owned(), json!(95));
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "pre_tokenizer": null,
        "post_processor": null, "decoder": {"type": "Fuse"},
        "added_tokens": [{"id": 96, "content": "<end>", "single_word": false, "lstrip": false, "rstrip": false,
                          "normalized": false, "special": true}],
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                  "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": vocabulary, "merges": []}
    });
    std::fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).unwrap();
}

fn ids(text: &str) -> Vec<i64> {
    text.bytes().map(|byte| if byte == b'\n' { 95 } else { i64::from(byte - b' ') }).collect()
}

/// Greedy, until the end token, a list that closes, or `most` tokens.
fn expected(decoder: &Decoder, prompt: &str, most: usize) -> String {
    let mut tokens = ids(prompt);
    let mut reply = String::new();
    for _ in 0..most {
        let logits = decoder.logits(&tokens).pop().unwrap();
        let best = (0..VOCABULARY).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap();
        if best == 96 {
            break;
        }
        reply.push(if best == 95 { '\n' } else { char::from(b' ' + best as u8) });
        tokens.push(best as i64);
        if is_complete(&reply, ReplyGrammar::Tolerant) {
            break;
        }
    }
    reply
}

#[test]
fn extractor_replies_match_plain_decoder() {
    let stretched = Llama3Scaling {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_max_position_embeddings: 64.0,
    };
    let configs = [
        config(ModelFamily::Qwen2, 4, true, None),
        config(ModelFamily::Qwen2, 2, false, None),
        config(ModelFamily::Llama, 6, true, Some(stretched)),
        config(ModelFamily::Llama, 4, false, None),
        config(ModelFamily::Qwen3, 4, true, None),
        config(ModelFamily::Qwen3, 2, false, None),
        config(ModelFamily::Olmo2, 4, false, None),
        config(ModelFamily::Olmo2, 2, true, None),
    ];
    let sentences = [
        "A",
        "Ada was born.",
        "Some of these are much longer than others are",
        "x y z",
        "Ada was born",
        "!?",
    ];
    for (n, config) in configs.into_iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        write_tokenizer(folder.path());
        let decoder = Decoder::new(config);
        decoder.write(folder.path());
        check(&decoder, folder.path(), "Triplets of\n", &sentences);
        check(&decoder, folder.path(), "", &sentences);
        if n == 0 {
            // Too long to be run in one piece.
            check(&decoder, folder.path(), &"to and fro, ".repeat(45), &sentences[..2]);
        }
    }
}

fn check(decoder: &Decoder, folder: &Path, prompt: &str, sentences: &[&str]) {
    let most = if prompt.len() > 500 { 3 } else { 12 };
    let expected: Vec<String> = sentences
        .iter()
        .map(|sentence| expected(decoder, &format!("{prompt}{sentence}."), most))
        .collect();
    for batch_size in [1, 4] {
        let settings = ExtractorSettings {
            prompt_prefix: Some(prompt.to_owned()),
            prompt_suffix: Some(".".to_owned()),
            stop: Some(vec!["<end>".to_owned()]),
            max_new_tokens: Some(most),
            batch_size: Some(batch_size),
            ..ExtractorSettings::default()
        };
        let options = ExtractOptions { settings, ..ExtractOptions::default() };
        let runtime = RuntimeLibrary::find(None).unwrap();
        let extractor = OnnxExtractor::open(folder, options, Device::Cpu, &runtime).unwrap();
        for ((sentence, reply), expected) in
            sentences.iter().zip(extractor.replies(sentences).unwrap()).zip(&expected)
        {
            assert_eq!(
                *reply, **expected,
                "{:?} {prompt:?} {sentence:?} {batch_size}",
                decoder.config
            );
        }
    }
}
