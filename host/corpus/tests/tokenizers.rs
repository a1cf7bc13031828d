//! Tokenizers of many kinds: the count of a word is the number of times that it is in the text.

use corver_corpus::{BuildOptions, CnfOptions, Error, TextIndex, Tokenizer, build_from_documents};
use serde_json::{Value, json};
use tokenizers::Model;
use tokenizers::models::TrainerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;

/// Words of which none begins with another, so that a word's ids are in no other word.
const WORDS: [&str; 8] = ["heron", "waits", "by", "canal", "Über", "1984", "old", "lock"];

/// Texts of these words, in an order without a pattern. The first word of a text is asked for by no
/// test: it is not after a space.
fn texts() -> Vec<String> {
    let mut state = 7_usize;
    let mut texts = Vec::new();
    for length in [5, 80, 1, 33] {
        let mut text = "Then".to_owned();
        for _ in 0..length {
            state = state * 1_103_515_245 % 2_147_483_647;
            text = format!("{text} {}", WORDS[state % WORDS.len()]);
        }
        texts.push(text);
    }
    texts
}

/// Trains byte-pair encoding on the texts, with the words split by a pre-tokenizer, and then replaces
/// the components around the model.
fn train(split: Value, components: Value) -> Value {
    let empty = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": split, "post_processor": null, "decoder": null,
        "model": {"type": "BPE", "vocab": {}, "merges": []},
    });
    let mut tokenizer = tokenizers::Tokenizer::from_bytes(empty.to_string()).unwrap();
    let mut trainer = tokenizer.get_model().get_trainer();
    if let TrainerWrapper::BpeTrainer(trainer) = &mut trainer {
        trainer.vocab_size = 60;
        trainer.show_progress = false;
    }
    tokenizer.train(&mut trainer, texts().into_iter()).unwrap();
    let mut json: Value = serde_json::from_str(&tokenizer.to_string(false).unwrap()).unwrap();
    for (name, component) in components.as_object().unwrap() {
        json[name] = component.clone();
    }
    json
}

fn metaspace(scheme: &str, split: bool) -> Value {
    json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split})
}

fn byte_level(prefix: bool, regex: bool) -> Value {
    json!({"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": true, "use_regex": regex})
}

/// The components of a tokenizer, by the family that has them.
fn kinds() -> Vec<(&'static str, Value)> {
    let replace = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
    let strip = json!({"type": "Strip", "strip_left": true, "strip_right": true});
    let prepend = json!({"type": "Prepend", "prepend": "▁"});
    let split = json!({"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": false});
    let regex = json!({"type": "Split", "pattern": {"Regex": " ?\\p{L}+| ?\\p{N}+|\\s+"}, "behavior": "Isolated", "invert": false});
    let sequence = |name: &str, steps: [&Value; 2]| json!({"type": "Sequence", name: steps});
    let metaspaced = |components: Value| train(metaspace("always", true), components);
    let byte_levelled = |components: Value| train(byte_level(false, true), components);
    vec![
        (
            "Llama 2",
            metaspaced(
                json!({"pre_tokenizer": null, "normalizer": sequence("normalizers", [&prepend, &replace])}),
            ),
        ),
        ("Metaspace, first", metaspaced(json!({"pre_tokenizer": metaspace("first", false)}))),
        ("Metaspace, always", metaspaced(json!({"pre_tokenizer": metaspace("always", true)}))),
        ("Metaspace, never", metaspaced(json!({"pre_tokenizer": metaspace("never", false)}))),
        ("Metaspace, never, split", metaspaced(json!({"pre_tokenizer": metaspace("never", true)}))),
        ("Gemma", metaspaced(json!({"pre_tokenizer": split, "normalizer": replace}))),
        ("Replace alone", metaspaced(json!({"pre_tokenizer": null, "normalizer": replace}))),
        (
            "Strip and Replace",
            metaspaced(
                json!({"pre_tokenizer": null, "normalizer": sequence("normalizers", [&strip, &replace])}),
            ),
        ),
        ("GPT-2", byte_levelled(json!({}))),
        ("RoBERTa", byte_levelled(json!({"pre_tokenizer": byte_level(true, true)}))),
        (
            "Llama 3",
            byte_levelled(
                json!({"pre_tokenizer": sequence("pretokenizers", [&regex, &byte_level(false, false)])}),
            ),
        ),
        (
            "ByteLevel as normalizer",
            byte_levelled(json!({"pre_tokenizer": null, "normalizer": {"type": "ByteLevel"}})),
        ),
        ("whitespace", train(json!({"type": "WhitespaceSplit"}), json!({}))),
        (
            "lower case",
            train(json!({"type": "Whitespace"}), json!({"normalizer": {"type": "NFC"}})),
        ),
    ]
}

#[test]
fn word_is_counted_as_often_as_it_is_in_the_text() {
    let texts = texts();
    for (kind, json) in kinds() {
        let tokenizer = Tokenizer::from_bytes(json.to_string()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index");
        let documents = texts.iter().map(String::as_str);
        build_from_documents(documents, &tokenizer, &path, &BuildOptions::default()).unwrap();
        let corpus = TextIndex::open(&path).unwrap();
        for word in WORDS.into_iter().chain(["old lock", "canal by", "absent"]) {
            let expected: usize =
                texts.iter().map(|text| text.matches(&format!(" {word}")).count()).sum();
            let words = [vec![word.to_owned()]];
            let count = corpus.count_words(&words, &CnfOptions::default(), None).unwrap();
            let count = count.map_or(0, |count| count.count);
            assert_eq!(count, expected as u64, "{kind}: {word}");
        }
    }
}

/// In scripts without spaces a word is found between others, in byte-level vocabularies too.
#[test]
fn word_of_a_script_without_spaces_is_counted() {
    let text = "巴黎是法国的首都。巴黎在法国。 東京タワーは東京にある。".repeat(9);
    for (kind, mut json) in kinds() {
        if !["Llama 2", "Gemma", "GPT-2", "Llama 3"].contains(&kind) {
            continue;
        }
        // Single bytes and characters are in the vocabulary, and none of them merge.
        let vocab = json["model"]["vocab"].as_object_mut().unwrap();
        let characters = text.chars().map(String::from);
        for piece in ByteLevel::alphabet().into_iter().map(String::from).chain(characters) {
            let id = vocab.values().filter_map(Value::as_u64).max().unwrap() + 1;
            vocab.entry(piece).or_insert(id.into());
        }
        let tokenizer = Tokenizer::from_bytes(json.to_string()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index");
        build_from_documents([text.as_str()], &tokenizer, &path, &BuildOptions::default()).unwrap();
        let corpus = TextIndex::open(&path).unwrap();
        for (word, expected) in [("巴黎", 18), ("東京", 18), ("タワー", 9), ("首都", 9)] {
            let words = [vec![word.to_owned()]];
            let count = corpus.count_words(&words, &CnfOptions::default(), None).unwrap();
            assert_eq!(count.map(|count| count.count), Some(expected), "{kind}: {word}");
        }
    }
}

#[test]
fn tokenizer_whose_tokens_cross_spaces_is_refused() {
    // Trained without a pre-tokenizer, so that words merge with their neighbours.
    let json = train(Value::Null, json!({}));
    let error = Tokenizer::from_bytes(json.to_string()).unwrap_err();
    assert!(matches!(error, Error::InvalidInput(_)), "{error}");
    assert!(error.to_string().contains("depend on the word"), "{error}");
}

#[test]
fn word_outside_the_vocabulary_has_no_ids() {
    let model = json!({"type": "WordLevel", "vocab": {"[UNK]": 0, "red": 1, "fox": 2}, "unk_token": "[UNK]"});
    let json = json!({"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"}, "model": model});
    let tokenizer = Tokenizer::from_bytes(json.to_string()).unwrap();
    assert_eq!(tokenizer.encode_document("red hen").unwrap(), [1, 0]);
    assert_eq!(tokenizer.encode_word("hen").unwrap(), [] as [u32; 0]);
    assert_eq!(tokenizer.encode_word("red fox").unwrap(), [1, 2]);
}
