//! Replies against `transformers.generate`, in f32 and token by token: `make test-peers`.
//! `extract.py` makes the models.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use corver_core::ReplyGrammar;
use corver_core::reply::is_complete;
use corver_inference::extract::{
    Device, ExtractOptions, ExtractorSettings, OnnxExtractor, RuntimeLibrary,
};
use serde::Deserialize;

#[derive(Deserialize)]
struct Case {
    name: String,
    folder: PathBuf,
    prompt: String,
    most: usize,
    sentences: Vec<String>,
    replies: Vec<String>,
}

impl Case {
    fn replies_to(&self, prompt: &str, batch_size: usize, sentences: &[String]) -> Vec<Arc<str>> {
        let settings = ExtractorSettings {
            max_new_tokens: Some(self.most),
            batch_size: Some(batch_size),
            ..ExtractorSettings::default()
        };
        let options = ExtractOptions {
            settings,
            prompt: Some(prompt.to_owned()),
            chat: false,
            ..ExtractOptions::default()
        };
        let runtime = RuntimeLibrary::find(None).unwrap();
        let extractor = OnnxExtractor::open(&self.folder, options, Device::Cpu, &runtime).unwrap();
        extractor.replies(&sentences.iter().map(String::as_str).collect::<Vec<_>>()).unwrap()
    }

    /// `replies` belong to the sentences, in their order.
    fn check(&self, how: &str, replies: &[Arc<str>]) {
        for (reply, expected) in replies.iter().zip(&self.replies) {
            // Ours ends where its list closes.
            let is_equal = **reply == **expected
                || (is_complete(reply, ReplyGrammar::Tolerant) && expected.starts_with(&**reply));
            assert!(is_equal, "{}, {how}:\nours:   {reply:?}\ntheirs: {expected:?}", self.name);
        }
        assert_eq!(replies.len(), self.replies.len());
    }
}

#[test]
#[ignore = "needs transformers: `make test-peers`"]
fn extractor_replies_match_transformers() {
    let python = std::env::var_os("CORVER_PEERS").expect("`make test-peers` sets CORVER_PEERS");
    let folder = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/extract.py");
    let model = std::env::var_os("CORVER_MODEL").filter(|model| !model.is_empty());
    let status = Command::new(python).arg(script).arg(folder.path()).args(model).status().unwrap();
    assert!(status.success());
    let cases: Vec<Case> =
        serde_json::from_slice(&std::fs::read(folder.path().join("cases.json")).unwrap()).unwrap();
    assert!(cases.len() >= 6);
    for case in cases {
        assert!(
            case.replies.iter().any(|reply| reply.len() > 20),
            "{}: {:?}",
            case.name,
            case.replies
        );
        case.check("one batch", &case.replies_to(&case.prompt, 32, &case.sentences));
        let backwards: Vec<String> = case.sentences.iter().rev().cloned().collect();
        let mut replies = case.replies_to(&case.prompt, 3, &backwards);
        replies.reverse();
        case.check("backwards, three per batch", &replies);
        let spelt_out: Vec<String> = case
            .sentences
            .iter()
            .map(|sentence| case.prompt.replace("{sentence}", sentence))
            .collect();
        case.check("without a shared prompt", &case.replies_to("{sentence}", 32, &spelt_out));
        eprintln!(
            "{}: {} replies of at most {} tokens are equal",
            case.name,
            case.replies.len(),
            case.most
        );
    }
}
