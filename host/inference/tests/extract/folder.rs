//! Replies of an exported graph, and the errors of an extractor's folder.

use std::path::{Path, PathBuf};

use corver_core::{Extractor as _, ExtractorInput, Triplet};
use corver_inference::extract::{
    Device, ExtractError, ExtractOptions, ExtractorSettings, OnnxExtractor, RuntimeLibrary,
};
use corver_inference::onnx::OnnxError;
use corver_pretrained::{PretrainedError, Switches};

const FILES: [&str; 3] = ["model.onnx", "tokenizer.json", "extractor.toml"];

/// The demo's extractor as Optimum would export it.
fn exported() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/extract/exported")
}

/// The demo's extractor.
fn pretrained() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../demo/assets/extractor")
}

fn open_with(folder: &Path, options: ExtractOptions) -> Result<OnnxExtractor, ExtractError> {
    OnnxExtractor::open(folder, options, Device::Cpu, &RuntimeLibrary::find(None).unwrap())
}

fn open(folder: &Path) -> Result<OnnxExtractor, ExtractError> {
    open_with(folder, ExtractOptions::default())
}

/// A copy of the exported extractor in which one file is changed.
fn with_changed(file: &str, change: impl FnOnce(Vec<u8>) -> Vec<u8>) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in FILES {
        std::fs::copy(exported().join(name), folder.path().join(name)).unwrap();
    }
    let path = folder.path().join(file);
    let changed = change(std::fs::read(&path).unwrap());
    std::fs::write(&path, changed).unwrap();
    folder
}

fn with_settings(change: impl FnOnce(&str) -> String) -> tempfile::TempDir {
    with_changed("extractor.toml", |bytes| {
        change(std::str::from_utf8(&bytes).unwrap()).into_bytes()
    })
}

/// The graph with a name replaced by another of the same length, wherever it occurs.
fn with_renamed(from: &str, to: &str) -> tempfile::TempDir {
    assert_eq!(from.len(), to.len());
    with_changed("model.onnx", |mut bytes| {
        let indices: Vec<usize> = (0..=bytes.len() - from.len())
            .filter(|&at| bytes[at..].starts_with(from.as_bytes()))
            .collect();
        assert!(!indices.is_empty(), "the graph does not name {from}");
        indices.into_iter().for_each(|at| bytes[at..at + to.len()].copy_from_slice(to.as_bytes()));
        bytes
    })
}

fn is_malformed(error: &ExtractError) -> bool {
    matches!(error, ExtractError::Pretrained(PretrainedError::InvalidModel(_)))
}

fn failure(bundle: &tempfile::TempDir) -> (ExtractError, String) {
    let error = open(bundle.path()).expect_err("this folder is broken");
    let text = error.to_string();
    (error, text)
}

/// Sentences of very different lengths, some without a fact.
fn sentences() -> Vec<String> {
    let names = [
        "Dora Fenn",
        "Silent Brava",
        "Garo Lisk",
        "Port Tevan",
        "Omira Press",
        "Kelda Islands",
        "Xqz Wpfff",
    ];
    let name = |n: usize| names[n % names.len()];
    let mut sentences = vec![
        "I don't know.".to_owned(),
        "unknown".to_owned(),
        "Dora Fenn".to_owned(),
        String::new(),
    ];
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
    for folder in [exported(), pretrained()] {
        let mut extractor = open(&folder).unwrap();
        let found = extractor
            .extract(
                &[
                    "Silent Brava was directed by Dora Fenn.",
                    "I don't know.",
                    "Who directed Silent Brava?",
                ]
                .map(ExtractorInput::of_sentence),
            )
            .unwrap();
        assert_eq!(
            found,
            [vec![triplet("Silent Brava", "was directed by", "Dora Fenn")], vec![], vec![]]
        );
        assert!(extractor.extract(&[]).unwrap().is_empty());
    }
}

#[test]
fn exported_and_pretrained_models_reply_alike() {
    let sentences = sentences();
    let texts: Vec<&str> = sentences.iter().map(String::as_str).collect();
    let [exported, pretrained] =
        [exported(), pretrained()].map(|folder| open(&folder).unwrap().replies(&texts).unwrap());
    assert_eq!(exported, pretrained);
    assert!(exported.iter().any(|reply| reply.len() > 40));
}

#[test]
fn reply_is_independent_of_batch() {
    for folder in [exported(), pretrained()] {
        let sentences = sentences();
        let texts: Vec<&str> = sentences.iter().map(String::as_str).collect();
        let together = open(&folder).unwrap().replies(&texts).unwrap();
        let alone = open_with(&folder, batches_of(1)).unwrap();
        assert_eq!(alone.replies(&texts).unwrap(), together);
        assert_eq!(alone.stats().rows, 1);
        let backwards: Vec<&str> = texts.iter().rev().copied().collect();
        let backwards = open_with(&folder, batches_of(7)).unwrap().replies(&backwards).unwrap();
        assert!(backwards.iter().eq(together.iter().rev()));
    }
}

fn batches_of(rows: usize) -> ExtractOptions {
    ExtractOptions {
        settings: ExtractorSettings { batch_size: Some(rows), ..ExtractorSettings::default() },
        ..ExtractOptions::default()
    }
}

#[test]
fn repeated_sentence_is_decoded_once() {
    let mut extractor = open(&pretrained()).unwrap();
    let (a, b) = ("Silent Brava was directed by Dora Fenn.", "Dora Fenn married Garo Lisk.");
    let first = extractor.extract(&[a, a, b, a].map(ExtractorInput::of_sentence)).unwrap();
    assert_eq!((&first[0], &first[0]), (&first[1], &first[3]));
    assert_ne!(first[0], first[2]);
    let again = extractor.extract(&[b, "unknown", a].map(ExtractorInput::of_sentence)).unwrap();
    assert_eq!((&again[0], &again[2]), (&first[2], &first[0]));
    let stats = extractor.stats();
    assert_eq!((stats.sentences, stats.hits, stats.decoded), (7, 4, 3));
}

#[test]
fn streamed_sentences_give_batch_replies() {
    let mut extractor = open(&pretrained()).unwrap();
    let sentences = sentences();
    let texts: Vec<&str> = sentences.iter().map(String::as_str).collect();
    let inputs: Vec<ExtractorInput<'_>> =
        texts.iter().map(|sentence| ExtractorInput::of_sentence(sentence)).collect();
    let whole = open(&pretrained()).unwrap().extract(&inputs).unwrap();
    let mut batch = extractor.start();
    for &input in &inputs {
        batch.push(input);
    }
    assert_eq!(batch.finish().unwrap().triplets, whole);

    // Two concurrent clients, one of which leaves.
    let mut patient = extractor.stream();
    let mut gone = extractor.stream();
    for n in 0..50 {
        gone.submit(n, &format!("Port Tevan {n} was written by Omira Press.")).unwrap();
    }
    patient.submit(7, "Port Tevan was written by Omira Press.").unwrap();
    drop(gone);
    let (id, reply) = patient.next_reply().unwrap().unwrap();
    assert!(id == 7 && reply.contains("Omira Press"), "{reply}");
    assert!(patient.next_reply().unwrap().is_none());
    assert!(extractor.stats().decoded < sentences.len() + 51);
}

#[test]
fn shared_prompt_prefix_preserves_replies() {
    for folder in [exported(), pretrained()] {
        let prefix =
            ExtractorSettings::read(&folder.join("extractor.toml")).unwrap().prompt_prefix.unwrap();
        let settings = ExtractorSettings {
            prompt_prefix: Some(String::new()),
            ..ExtractorSettings::default()
        };
        let whole =
            open_with(&folder, ExtractOptions { settings, ..ExtractOptions::default() }).unwrap();
        let sentences = sentences();
        let spelt_out: Vec<String> =
            sentences.iter().map(|sentence| format!("{prefix}{sentence}")).collect();
        let texts: Vec<&str> = sentences.iter().map(String::as_str).collect();
        let spelt_out: Vec<&str> = spelt_out.iter().map(String::as_str).collect();
        assert_eq!(
            open(&folder).unwrap().replies(&texts).unwrap(),
            whole.replies(&spelt_out).unwrap()
        );
    }
}

#[test]
fn prompt_prefix_may_end_within_token() {
    // `[["` is one token of this tokenizer, and a sentence may begin with a quote.
    let prompt = |before: &str| ExtractOptions {
        prompt: Some(format!("{before}{{sentence}}\n")),
        ..ExtractOptions::default()
    };
    let settings = ExtractorSettings {
        prompt_prefix: Some("Of a sentence:\n[[".to_owned()),
        ..ExtractorSettings::default()
    };
    let quoted = ["\"So\" was directed by Dora Fenn.", "Silent Brava"];
    let shared =
        open_with(&pretrained(), ExtractOptions { settings, ..ExtractOptions::default() }).unwrap();
    let whole = open_with(&pretrained(), prompt("")).unwrap();
    let spelt_out = quoted.map(|sentence| format!("Of a sentence:\n[[{sentence}"));
    let spelt_out: Vec<&str> = spelt_out.iter().map(String::as_str).collect();
    assert_eq!(shared.replies(&quoted).unwrap(), whole.replies(&spelt_out).unwrap());
}

#[test]
fn custom_prompt_needs_single_sentence_slot() {
    let with_prompt = |prompt: &str| {
        open_with(
            &pretrained(),
            ExtractOptions { prompt: Some(prompt.to_owned()), ..ExtractOptions::default() },
        )
    };
    let sentences = ["Silent Brava was directed by Dora Fenn."];
    let same = with_prompt("The triplets of a sentence:\n{sentence}\n").unwrap();
    assert_eq!(
        same.replies(&sentences).unwrap(),
        open(&pretrained()).unwrap().replies(&sentences).unwrap()
    );
    for (prompt, slots) in [("no marker", 0), ("{sentence} and {sentence}", 2)] {
        let error = with_prompt(prompt).err().unwrap();
        assert!(
            error.to_string().contains(&format!("has {slots} markers {{sentence}}; it needs one")),
            "{error}"
        );
    }
}

#[test]
fn chat_option_applies_chat_template() {
    let folder = tempfile::tempdir().unwrap();
    for file in ["config.json", "model.safetensors", "tokenizer.json", "extractor.toml"] {
        std::fs::copy(pretrained().join(file), folder.path().join(file)).unwrap();
    }
    let template =
        "{% for m in messages %}The triplets of a sentence:\n{{ m.content }}\n{% endfor %}";
    std::fs::write(folder.path().join("chat_template.jinja"), template).unwrap();
    let sentences = ["Silent Brava was directed by Dora Fenn."];
    let expected = open(&pretrained()).unwrap().replies(&sentences).unwrap();
    let prompted = |chat| {
        let options = ExtractOptions {
            prompt: Some("{sentence}".to_owned()),
            chat,
            ..ExtractOptions::default()
        };
        open_with(folder.path(), options).unwrap().replies(&sentences).unwrap()
    };
    assert_eq!(prompted(true), expected);
    assert_ne!(prompted(false), expected);
}

#[test]
fn switches_reach_chat_template() {
    let folder = configured("", "");
    let template = "{% if enable_thinking is false %}The triplets of a sentence:\n\
                    {{ messages[0].content }}\n{% else %}{{ messages[0].content }}{% endif %}";
    std::fs::write(folder.path().join("chat_template.jinja"), template).unwrap();
    let sentences = ["Silent Brava was directed by Dora Fenn."];
    let expected = open(&pretrained()).unwrap().replies(&sentences).unwrap();
    let prompted = |model: &Path, switches: Switches| {
        let options = ExtractOptions {
            prompt: Some("{sentence}".to_owned()),
            switches,
            ..ExtractOptions::default()
        };
        open_with(model, options)
    };
    let off = Switches::from_iter([("enable_thinking".to_owned(), false.into())]);
    let with_switch = prompted(folder.path(), off.clone()).unwrap();
    assert_eq!(with_switch.replies(&sentences).unwrap(), expected);
    let without_switch = prompted(folder.path(), Switches::new()).unwrap();
    assert_ne!(without_switch.replies(&sentences).unwrap(), expected);
    let error = prompted(&pretrained(), off).err().unwrap();
    assert!(
        matches!(&error, ExtractError::InvalidPrompt(message)
            if message.contains("extract.chat_variables is set")),
        "{error}"
    );
}

#[test]
fn replies_and_sentences_are_bounded() {
    for folder in [exported(), pretrained()] {
        let settings = ExtractorSettings {
            max_new_tokens: Some(3),
            max_sentence_tokens: Some(40),
            ..ExtractorSettings::default()
        };
        let extractor =
            open_with(&folder, ExtractOptions { settings, ..ExtractOptions::default() }).unwrap();
        let sentence = "Silent Brava was directed by Dora Fenn.";
        let full = open(&folder).unwrap().replies(&[sentence]).unwrap().remove(0);
        let long = "Silent Brava ".repeat(100);
        let replies = extractor.replies(&[&long, sentence]).unwrap();
        assert_eq!(&*replies[0], "");
        assert!(
            full.starts_with(&*replies[1])
                && !replies[1].is_empty()
                && replies[1].len() < full.len(),
            "{replies:?}"
        );
    }
}

/// A copy of the demo's extractor, whose configuration is changed.
fn configured(from: &str, to: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in ["config.json", "model.safetensors", "tokenizer.json", "extractor.toml"] {
        std::fs::copy(pretrained().join(file), folder.path().join(file)).unwrap();
    }
    let path = folder.path().join("config.json");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{from}");
    std::fs::write(&path, text.replace(from, to)).unwrap();
    folder
}

#[test]
fn rows_are_limited_to_model_positions() {
    let ids = |text: &str| {
        let tokenizer =
            corver_pretrained::read_tokenizer(&pretrained().join("tokenizer.json")).unwrap();
        tokenizer.encode(text, false).unwrap().len()
    };
    let prompt = ids("The triplets of a sentence:\n");
    let sentence = "Silent Brava was directed by Dora Fenn.";
    let full = open(&pretrained()).unwrap().replies(&[sentence]).unwrap().remove(0);
    let of_positions = |positions: usize| configured(": 512", &format!(": {positions}"));

    let folder = of_positions(prompt + ids(&format!("{sentence}\n")) + 4);
    let replies = open(folder.path()).unwrap().replies(&[sentence, &sentence.repeat(2)]).unwrap();
    assert!(full.starts_with(&*replies[0]) && ids(&replies[0]) == 4, "{replies:?}");
    assert_eq!(&*replies[1], "", "a sentence without room for a reply");

    let message = failure(&of_positions(prompt)).1;
    assert!(
        message.contains(&format!("{prompt} tokens")) && message.contains("positions"),
        "{message}"
    );
}

#[test]
fn non_finite_weights_fail_every_request() {
    // A norm with NaN weights.
    let folder = configured("", "");
    let path = folder.path().join("model.safetensors");
    let mut bytes = std::fs::read(&path).unwrap();
    let end = bytes.len();
    bytes[end - 512..].fill(0xff);
    std::fs::write(&path, bytes).unwrap();
    let extractor = open(folder.path()).unwrap();
    for sentence in ["Silent Brava", "Dora Fenn"] {
        let error = extractor.replies(&[sentence]).unwrap_err();
        assert!(
            matches!(&error, ExtractError::Stopped(cause) if matches!(**cause, ExtractError::NotFinite { .. })),
            "{error}"
        );
    }
}

#[test]
fn folder_without_model_or_prompt_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let (_, text) = failure(&folder);
    assert!(text.contains("config.json") && text.contains("model.onnx"), "{text}");
    for file in ["config.json", "model.safetensors", "tokenizer.json"] {
        std::fs::copy(pretrained().join(file), folder.path().join(file)).unwrap();
    }
    std::fs::write(folder.path().join("generation_config.json"), "{\"eos_token_id\": 0}").unwrap();
    let (error, text) = failure(&folder);
    assert!(
        matches!(error, ExtractError::InvalidPrompt(_))
            && text.contains("the instructions and {sentence} where"),
        "{text}"
    );
}

#[test]
fn model_mismatching_config_is_rejected() {
    let changed = |from: &str, to: &str| failure(&configured(from, to)).1;
    let message = changed("\"num_hidden_layers\": 3", "\"num_hidden_layers\": 4");
    assert!(message.contains("model.layers.3") && message.contains("no such tensor"), "{message}");
    // Sizes for which a graph would exhaust memory.
    let message = changed("\"num_hidden_layers\": 3", "\"num_hidden_layers\": 4000000");
    assert!(message.contains("at most 4,096 layers"), "{message}");
    let message =
        changed("\"num_hidden_layers\": 3", "\"num_hidden_layers\": 3, \"head_dim\": 4000");
    assert!(message.contains("q_proj") && message.contains("[32000, 128]"), "{message}");
    let message = changed("\"intermediate_size\": 256", "\"intermediate_size\": 255");
    assert!(
        message.contains("up_proj")
            && message.contains("[255, 128]")
            && message.contains("[256, 128]"),
        "{message}"
    );
    let message = changed("qwen2", "qwen3");
    assert!(message.contains("k_norm.weight") && message.contains("no such weight"), "{message}");
    let message = changed(": 516", ": 515");
    assert!(message.contains("the id 515") && message.contains("515 rows"), "{message}");
    let message = changed("qwen2", "gpt2");
    let expected = "`gpt2` is not supported; supported are llama, qwen2, qwen3, olmo2";
    assert!(message.contains(expected), "{message}");
}

#[test]
fn missing_file_is_named_in_error() {
    let bundle = with_settings(str::to_owned);
    std::fs::remove_file(bundle.path().join("tokenizer.json")).unwrap();
    assert!(failure(&bundle).1.contains("tokenizer.json"));
}

#[test]
fn invalid_settings_are_named_in_error() {
    let (toml, tokenizer) = ("extractor.toml", "tokenizer.json");
    let cases = [
        ("batch_size", "batchsize", toml, "batchsize"),
        ("batch_size = 32", "batch_size = 0", toml, "batch_size from 1 to 65536"),
        ("stop = [", "stop = [\"<|nope|>\", ", tokenizer, "the stop token `<|nope|>`"),
        ("stop = [\"<|endoftext|>\"]", "stop = []", toml, "stop token"),
    ];
    for (from, to, file, expected) in cases {
        let bundle = with_settings(|text| {
            assert!(text.contains(from), "{from}");
            text.replacen(from, to, 1)
        });
        let (error, text) = failure(&bundle);
        assert!(is_malformed(&error), "{text}");
        assert!(text.contains(expected) && text.contains(file), "{expected}: {text}");
    }
}

#[test]
fn graph_with_unknown_layout_is_rejected() {
    for (from, to, expected) in [
        ("position_ids", "position_idz", "`position_ids`"),
        ("past_key_values.2.key", "past_key_values.7.key", "`past_key_values.2.key`"),
        ("past_key_values.2.value", "past_key_values.2.worth", "`past_key_values.2.value`"),
        ("present.1.key", "absent_.1.key", "`present.1.key`"),
        ("past_key_values.2.key", "past_key_values.2.kez", "alone"),
        ("logits", "scores", "`logits`"),
    ] {
        let (error, text) = failure(&with_renamed(from, to));
        assert!(is_malformed(&error), "{text}");
        assert!(text.contains(expected) && text.contains("model.onnx"), "{expected}: {text}");
    }
}

#[test]
fn damaged_graph_or_tokenizer_is_rejected() {
    let (error, text) =
        failure(&with_changed("model.onnx", |bytes| bytes[..bytes.len() / 2].to_vec()));
    assert!(
        matches!(error, ExtractError::Onnx(OnnxError::Load { .. })) && text.contains("model.onnx"),
        "{text}"
    );
    let (_, text) =
        failure(&with_changed("tokenizer.json", |bytes| bytes[..bytes.len() / 2].to_vec()));
    assert!(text.contains("tokenizer.json"), "{text}");
    let declared = with_settings(|text| format!("{text}head_dim = 7\n"));
    let (_, text) = failure(&declared);
    assert!(text.contains("head_dim = 7"), "{text}");
}

#[test]
fn cuda_extractor_works_or_reports_missing_device() {
    let runtime = RuntimeLibrary::find(None).unwrap();
    for folder in [exported(), pretrained()] {
        match OnnxExtractor::open(&folder, ExtractOptions::default(), Device::Cuda(0), &runtime) {
            // A runtime with CUDA on a machine with a GPU: then it must work.
            Ok(extractor) => assert_eq!(&*extractor.replies(&["unknown"]).unwrap()[0], "[]"),
            Err(error) => {
                let (ExtractError::Onnx(OnnxError::NoCuda { device, .. })
                | ExtractError::Onnx(OnnxError::CpuBuild { device, .. })) = &error
                else {
                    panic!("{error}")
                };
                assert_eq!(device, "cuda:0");
            }
        }
    }
}
