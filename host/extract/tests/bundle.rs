//! The demo's bundle through the whole crate, and every way in which a bundle can be wrong.

use std::path::{Path, PathBuf};

use corver_core::{Extractor as _, Triplet};
use corver_extract::{Device, ExtractError, Extractor, RuntimeLibrary};

const FILES: [&str; 3] = ["model.onnx", "tokenizer.json", "extractor.toml"];

fn demo() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../demo/assets/extractor")
}

fn open(bundle: &Path) -> Result<Extractor, ExtractError> {
    Extractor::open(bundle, Device::Cpu, &RuntimeLibrary::find(None).unwrap())
}

/// A copy of the demo's bundle in which one file is changed.
fn with_changed(file: &str, change: impl FnOnce(Vec<u8>) -> Vec<u8>) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in FILES {
        std::fs::copy(demo().join(name), folder.path().join(name)).unwrap();
    }
    let path = folder.path().join(file);
    let changed = change(std::fs::read(&path).unwrap());
    std::fs::write(&path, changed).unwrap();
    folder
}

fn with_settings(change: impl FnOnce(&str) -> String) -> tempfile::TempDir {
    with_changed("extractor.toml", |bytes| change(std::str::from_utf8(&bytes).unwrap()).into_bytes())
}

/// The graph with a name replaced by another of the same length, wherever it stands.
fn with_renamed(from: &str, to: &str) -> tempfile::TempDir {
    assert_eq!(from.len(), to.len());
    with_changed("model.onnx", |mut bytes| {
        let places: Vec<usize> =
            (0..=bytes.len() - from.len()).filter(|&at| bytes[at..].starts_with(from.as_bytes())).collect();
        assert!(!places.is_empty(), "the graph does not name {from}");
        places.into_iter().for_each(|at| bytes[at..at + to.len()].copy_from_slice(to.as_bytes()));
        bytes
    })
}

fn failure(bundle: &tempfile::TempDir) -> (ExtractError, String) {
    let error = open(bundle.path()).err().expect("this bundle is broken");
    let text = error.to_string();
    (error, text)
}

/// Sentences of very different lengths, some without a fact.
fn sentences() -> Vec<String> {
    let names = ["Dora Fenn", "Silent Brava", "Garo Lisk", "Port Tevan", "Omira Press", "Kelda Islands", "Xqz Wpfff"];
    let name = |n: usize| names[n % names.len()];
    let mut sentences = vec!["I don't know.".to_owned(), "unknown".to_owned(), "Dora Fenn".to_owned(), String::new()];
    for n in 0..40 {
        let (a, b, c) = (name(n), name(n / 2 + 3), name(n / 3 + 5));
        sentences.push(match n % 5 {
            0 => format!("{a} was directed by {b}."),
            1 => format!("{a} married {b}, and {c} lies in {a}."),
            2 => format!("Who wrote {a}?"),
            3 => format!("The birthplace of {a} is {b}."),
            _ => format!("{a} starred {b} and was directed by {c}."),
        });
    }
    sentences
}

fn triplet(head: &str, relation: &str, tail: &str) -> Triplet {
    Triplet { head: head.to_owned(), relation: relation.to_owned(), tail: tail.to_owned() }
}

#[test]
fn sentences_become_triplets() {
    let mut extractor = open(&demo()).unwrap();
    let found = extractor
        .extract(&["Silent Brava was directed by Dora Fenn.", "I don't know.", "Who directed Silent Brava?"])
        .unwrap();
    assert_eq!(found, [vec![triplet("Silent Brava", "was directed by", "Dora Fenn")], vec![], vec![]]);
    assert!(extractor.extract(&[]).unwrap().is_empty());
}

#[test]
fn a_reply_does_not_depend_on_its_batch() {
    let mut extractor = open(&demo()).unwrap();
    let sentences = sentences();
    let texts: Vec<&str> = sentences.iter().map(String::as_str).collect();
    let together = extractor.replies(&texts).unwrap();
    for (text, reply) in texts.iter().zip(&together) {
        assert_eq!(extractor.replies(&[text]).unwrap(), [reply.as_str()], "{text}");
    }
    let backwards: Vec<&str> = texts.iter().rev().copied().collect();
    assert!(extractor.replies(&backwards).unwrap().iter().eq(together.iter().rev()));
}

#[test]
fn equal_sentences_get_equal_triplets_whether_remembered_or_not() {
    let mut extractor = open(&demo()).unwrap();
    let (a, b) = ("Silent Brava was directed by Dora Fenn.", "Dora Fenn married Garo Lisk.");
    let first = extractor.extract(&[a, a, b, a]).unwrap();
    assert_eq!((&first[0], &first[0]), (&first[1], &first[3]));
    assert_ne!(first[0], first[2]);
    let again = extractor.extract(&[b, "unknown", a]).unwrap();
    assert_eq!((&again[0], &again[2]), (&first[2], &first[0]));
}

#[test]
fn the_shared_prefix_changes_nothing() {
    let mut shared = open(&demo()).unwrap();
    let prefix = shared.bundle().settings.prompt_prefix.clone();
    let bundle = with_settings(|text| text.replacen(&format!("{prefix:?}"), "\"\"", 1));
    let mut whole = open(bundle.path()).unwrap();
    assert!(whole.bundle().settings.prompt_prefix.is_empty());
    let sentences = sentences();
    let spelt_out: Vec<String> = sentences.iter().map(|sentence| format!("{prefix}{sentence}")).collect();
    let texts: Vec<&str> = sentences.iter().map(String::as_str).collect();
    let spelt_out: Vec<&str> = spelt_out.iter().map(String::as_str).collect();
    assert_eq!(shared.replies(&texts).unwrap(), whole.replies(&spelt_out).unwrap());
}

#[test]
fn replies_and_sentences_are_bounded() {
    let bundle =
        with_settings(|text| text.replace("max_new_tokens = 256", "max_new_tokens = 3\nmax_sentence_tokens = 40"));
    let mut extractor = open(bundle.path()).unwrap();
    let sentence = "Silent Brava was directed by Dora Fenn.";
    let full = open(&demo()).unwrap().replies(&[sentence]).unwrap().remove(0);
    let long = "Silent Brava ".repeat(100);
    let replies = extractor.replies(&[&long, sentence]).unwrap();
    assert_eq!(replies[0], "");
    assert!(full.starts_with(&replies[1]) && !replies[1].is_empty() && replies[1].len() < full.len(), "{replies:?}");
}

#[test]
fn the_fingerprint_names_the_content() {
    let [same, other] = [with_settings(str::to_owned), with_settings(|text| format!("{text}\n# a remark\n"))];
    let [demo, same, other] =
        [demo().as_path(), same.path(), other.path()].map(|path| open(path).unwrap().bundle().fingerprint().to_owned());
    assert_eq!(demo, same);
    assert_ne!(demo, other);
    assert!(demo.starts_with("blake3:") && demo.len() == 71, "{demo}");
}

#[test]
fn a_missing_file_is_named() {
    for name in FILES {
        let bundle = with_settings(str::to_owned);
        std::fs::remove_file(bundle.path().join(name)).unwrap();
        let (error, text) = failure(&bundle);
        assert!(matches!(error, ExtractError::Io { .. }) && text.contains(name), "{text}");
    }
}

#[test]
fn wrong_settings_are_named() {
    let cases: [(&str, &str, &str); 5] = [
        ("batch_size", "batchsize", "batchsize"),
        ("batch_size = 32", "batch_size = 0", "batch_size above 0"),
        ("stop = [", "stop = [\"<|nope|>\", ", "<|nope|>"),
        ("stop = [\"<|endoftext|>\"]", "stop = []", "stop token"),
        // `[["` is one token of this tokenizer, and a sentence may begin with a quote.
        ("\\n\"\nprompt_suffix", "[[\"\nprompt_suffix", "ends where a token ends"),
    ];
    for (from, to, expected) in cases {
        let bundle = with_settings(|text| {
            assert!(text.contains(from), "{from}");
            text.replacen(from, to, 1)
        });
        let (error, text) = failure(&bundle);
        assert!(matches!(error, ExtractError::Malformed { .. }), "{text}");
        assert!(text.contains(expected) && text.contains("extractor.toml"), "{expected}: {text}");
    }
}

#[test]
fn a_graph_of_another_layout_is_refused() {
    for (from, to, expected) in [
        ("position_ids", "position_idz", "`position_ids`"),
        ("past_key_values.2.key", "past_key_values.7.key", "`past_key_values.2.key`"),
        ("past_key_values.2.value", "past_key_values.2.worth", "`past_key_values.2.value`"),
        ("present.1.key", "absent_.1.key", "`present.1.key`"),
        ("past_key_values.2.key", "past_key_values.2.kez", "alone"),
        ("logits", "scores", "`logits`"),
    ] {
        let (error, text) = failure(&with_renamed(from, to));
        assert!(matches!(error, ExtractError::Malformed { .. }), "{text}");
        assert!(text.contains(expected) && text.contains("model.onnx"), "{expected}: {text}");
    }
}

#[test]
fn a_damaged_graph_or_tokenizer_is_refused() {
    let (error, text) = failure(&with_changed("model.onnx", |bytes| bytes[..bytes.len() / 2].to_vec()));
    assert!(matches!(error, ExtractError::Load { .. }) && text.contains("model.onnx"), "{text}");
    let (error, text) = failure(&with_changed("tokenizer.json", |bytes| bytes[..bytes.len() / 2].to_vec()));
    assert!(matches!(error, ExtractError::Malformed { .. }) && text.contains("tokenizer.json"), "{text}");
    let declared = with_settings(|text| format!("{text}head_dim = 7\n"));
    let (_, text) = failure(&declared);
    assert!(text.contains("head_dim = 7"), "{text}");
}

#[test]
fn cuda_is_an_error_where_there_is_none() {
    let runtime = RuntimeLibrary::find(None).unwrap();
    match Extractor::open(&demo(), Device::Cuda(0), &runtime) {
        // A runtime with CUDA on a machine with a GPU: then it must work.
        Ok(mut extractor) => assert_eq!(extractor.replies(&["unknown"]).unwrap(), ["[]"]),
        Err(error) => assert!(matches!(&error, ExtractError::NoCuda { device, .. } if device == "cuda:0"), "{error}"),
    }
}
