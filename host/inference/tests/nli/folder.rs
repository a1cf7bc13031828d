//! Errors of a model's folder and of its settings.

use std::path::{Path, PathBuf};

use corver_inference::nli::{Nli, NliError, NliSettings};
use corver_inference::onnx::{Device, OnnxError, RuntimeLibrary};
use corver_pretrained::PretrainedError;
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;

const FILES: [&str; 3] = ["config.json", "model.safetensors", "tokenizer.json"];

fn small(family: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nli/small").join(family)
}

fn copy(family: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in FILES {
        std::fs::copy(small(family).join(name), folder.path().join(name)).unwrap();
    }
    folder
}

fn failure(folder: &Path, settings: &NliSettings) -> (NliError, String) {
    let settings = NliSettings { device: Device::Cpu, ..settings.clone() };
    let Err(error) = Nli::open(folder, &settings, &RuntimeLibrary::find(None).unwrap()) else {
        panic!("this folder is broken")
    };
    let text = error.to_string();
    (error, text)
}

/// Whether it is an error of the model's files.
fn is_model(error: &NliError) -> bool {
    matches!(error, NliError::Pretrained(PretrainedError::InvalidModel(_)))
}

fn broken(folder: &tempfile::TempDir) -> (NliError, String) {
    failure(folder.path(), &NliSettings::default())
}

/// A copy whose config.json is changed.
fn configured(family: &str, from: &str, to: &str) -> tempfile::TempDir {
    let folder = copy(family);
    let path = folder.path().join("config.json");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{from}");
    std::fs::write(&path, text.replace(from, to)).unwrap();
    folder
}

/// A copy in which one tensor is gone, or has other rows.
fn without(family: &str, name: &str, rows: Option<usize>) -> tempfile::TempDir {
    let folder = copy(family);
    let path = folder.path().join("model.safetensors");
    let bytes = std::fs::read(&path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    assert!(file.tensor(name).is_ok(), "{name}");
    let tensors = file.iter().filter_map(|(found, view)| {
        if found != name {
            return Some((found.to_owned(), view));
        }
        let mut shape = view.shape().to_vec();
        let row = view.data().len() / shape[0];
        shape[0] = rows?;
        Some((
            found.to_owned(),
            TensorView::new(view.dtype(), shape.clone(), &view.data()[..row * shape[0]]).unwrap(),
        ))
    });
    std::fs::write(path, safetensors::serialize(tensors, None).unwrap()).unwrap();
    folder
}

#[test]
fn missing_file_is_named_in_error() {
    let empty = tempfile::tempdir().unwrap();
    let (error, message) = broken(&empty);
    assert!(is_model(&error) && message.contains(": no NLI model here. "), "{message}");
    for family in ["hhem", "deberta"] {
        for (file, named) in
            [("model.safetensors", "model.safetensors"), ("tokenizer.json", "tokenizer.json")]
        {
            let folder = copy(family);
            std::fs::remove_file(folder.path().join(file)).unwrap();
            assert!(broken(&folder).1.contains(named), "{family} {file}");
        }
    }
    let folder = copy("hhem");
    std::fs::remove_file(folder.path().join("tokenizer.json")).unwrap();
    let (error, message) = broken(&folder);
    assert!(is_model(&error) && message.contains("google/flan-t5-base"), "{message}");
}

#[test]
fn unsupported_model_family_is_rejected() {
    for (family, from) in [
        ("hhem", "HHEMv2ForSequenceClassification\""),
        ("deberta", "DebertaV2ForSequenceClassification"),
    ] {
        let to = from.replace("ForSequence", "ForToken");
        let (error, message) = broken(&configured(family, from, &to));
        assert!(is_model(&error) && message.contains(" is not supported; "), "{message}");
        let known = [
            "HHEMv2ForSequenceClassification",
            "DebertaV2ForSequenceClassification",
            "ForTokenClassification",
        ];
        assert!(known.iter().all(|name| message.contains(name)), "{message}");
    }
    let changed = |from: &str, to: &str| broken(&configured("deberta", from, to)).1;
    for (from, to, named) in [
        ("\"relative_attention\": true", "\"relative_attention\": false", "relative_attention"),
        ("\"share_att_key\": true,", "", "share_att_key"),
        (
            "\"position_biased_input\": false",
            "\"position_biased_input\": true",
            "position_biased_input",
        ),
        ("\"hidden_act\": \"gelu\"", "\"hidden_act\": \"relu\"", "hidden_act"),
        ("\"c2p\"", "\"p2p\"", "pos_att_type"),
        ("\"type_vocab_size\": 0", "\"type_vocab_size\": 2", "type_vocab_size"),
        ("\"num_attention_heads\": 4", "\"num_attention_heads\": 5", "num_attention_heads"),
        // Sizes for which a graph would exhaust memory, or overflow.
        (
            "\"num_hidden_layers\": 2",
            "\"num_hidden_layers\": 4000000000",
            "`num_hidden_layers` from 1 to 4096",
        ),
        ("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 4000", "encoder.layer.2."),
        (
            "\"position_buckets\": ",
            "\"position_buckets\": 9223372036854775808, \"was\": ",
            "`position_buckets` from 1 to ",
        ),
        ("\"position_buckets\": ", "\"position_buckets\": 33, \"was\": ", "rel_embeddings"),
        ("\"vocab_size\": ", "\"vocab_size\": 16000000, \"was\": ", "word_embeddings"),
        ("\"layer_norm_eps\": 1e-07", "\"layer_norm_eps\": \"small\"", "DeBERTa"),
    ] {
        let message = changed(from, to);
        assert!(message.contains("config.json") && message.contains(named), "{message}");
    }
}

#[test]
fn label_names_are_required() {
    for (from, to, named) in [
        ("\"1\": \"entailment\"", "\"1\": \"LABEL_1\"", "contradiction, LABEL_1, neutral"),
        ("\"id2label\"", "\"id3label\"", "nothing"),
        ("\"id2label\": {", "\"id2label\": {\"x\": {},", "id2label"),
    ] {
        let (error, message) = broken(&configured("deberta", from, to));
        assert!(
            is_model(&error) && message.contains("config.json") && message.contains(named),
            "{message}"
        );
    }
}

#[test]
fn mismatching_weights_are_rejected() {
    let embedding = "t5.transformer.shared.weight";
    let norm = "deberta.encoder.layer.1.output.LayerNorm.bias";
    for (folder, named) in [
        (without("hhem", embedding, None), embedding),
        (without("hhem", "t5.classifier.bias", None), "t5.classifier.bias"),
        (without("hhem", "t5.classifier.weight", Some(1)), "expected shape [2, 32], got [1, 32]"),
        (
            without(
                "hhem",
                "t5.transformer.encoder.block.1.layer.0.SelfAttention.k.weight",
                Some(8),
            ),
            "[8, 32]",
        ),
        (without("deberta", norm, None), norm),
        (without("deberta", "classifier.weight", Some(2)), "expected shape [3, 32], got [2, 32]"),
        (
            configured("deberta", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3"),
            "deberta.encoder.layer.2",
        ),
        (
            configured("deberta", "\"position_buckets\": 16", "\"position_buckets\": 8"),
            "rel_embeddings",
        ),
    ] {
        let (error, message) = broken(&folder);
        assert!(
            matches!(error, NliError::Onnx(OnnxError::Pretrained(_)) | NliError::Pretrained(_)),
            "{error:?}"
        );
        assert!(message.contains(named), "{message}");
    }
    let (_, message) = broken(&without("hhem", embedding, Some(50)));
    assert!(message.contains("tokenizer") && message.contains("50 rows"), "{message}");
}

#[test]
fn mismatching_exported_graph_is_rejected() {
    let with = |graph: &[u8]| {
        let folder = copy("hhem");
        std::fs::write(folder.path().join("model.onnx"), graph).unwrap();
        broken(&folder)
    };
    let (_, message) = with(&std::fs::read(small("deberta").join("onnx/model.onnx")).unwrap());
    assert!(message.contains("model.onnx") && message.contains("logits of 2 classes"), "{message}");
    let (error, message) = with(b"no graph");
    assert!(
        matches!(error, NliError::Onnx(OnnxError::Load { .. })) && message.contains("model.onnx"),
        "{message}"
    );
    let (_, message) =
        with(&std::fs::read(small("").join("../../extract/exported/model.onnx")).unwrap());
    assert!(message.contains("inputs input_ids and attention_mask alone"), "{message}");
}

#[test]
fn damaged_files_are_named() {
    for (file, named) in [
        ("config.json", "JSON"),
        ("tokenizer.json", "a tokenizer"),
        ("model.safetensors", "a safetensors file"),
    ] {
        for family in ["hhem", "deberta"] {
            let folder = copy(family);
            let path = folder.path().join(file);
            let bytes = std::fs::read(&path).unwrap();
            std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
            let (_, message) = broken(&folder);
            assert!(message.contains(file) && message.contains(named), "{message}");
        }
    }
}

#[test]
fn non_finite_weights_fail_on_use() {
    let folder = copy("deberta");
    let path = folder.path().join("model.safetensors");
    let mut bytes = std::fs::read(&path).unwrap();
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize + 8;
    bytes[header + 600..].fill(0xff);
    std::fs::write(&path, bytes).unwrap();
    let settings = NliSettings { device: Device::Cpu, ..NliSettings::default() };
    let mut model =
        Nli::open(folder.path(), &settings, &RuntimeLibrary::find(None).unwrap()).unwrap();
    let pair = corver_core::NliPair { premise: "a".into(), hypothesis: "b".into() };
    assert!(matches!(model.answers(&[pair]), Err(NliError::NotFinite)));
}

#[test]
fn invalid_settings_are_rejected() {
    let parse = |text: &str| toml::from_str::<NliSettings>(text);
    let settings = parse("model = \"a\"\ndevice = \"cpu\"\nmax_tokens = 300").unwrap();
    assert_eq!(
        (settings.device, settings.max_tokens, settings.batch_size),
        (Device::Cpu, Some(300), 32)
    );
    assert_eq!(parse(&toml::to_string(&settings).unwrap()).unwrap(), settings);
    assert!(parse("batchsize = 3").unwrap_err().to_string().contains("batchsize"));
    assert!(parse("device = \"gpu\"").unwrap_err().to_string().contains("auto, cpu, cuda"));

    let message_of = |settings| failure(&small("hhem"), &settings).1;
    assert!(
        message_of(NliSettings { batch_size: 0, ..NliSettings::default() })
            .contains("backends.nli.batch_size")
    );
    let cramped = message_of(NliSettings { max_tokens: Some(30), ..NliSettings::default() });
    assert!(cramped.contains("max_tokens is 30") && cramped.contains("raise it"), "{cramped}");
}
