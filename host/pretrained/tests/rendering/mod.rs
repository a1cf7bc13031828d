//! Renders chat templates, and compares the prompts with those of `transformers`.

use corver_pretrained::{ChatTemplate, Switches};
use serde::Deserialize;
use serde_json::json;

/// A template with its prompts.
#[derive(Deserialize)]
pub struct PublishedTemplate {
    pub name: String,
    pub template: String,
    pub cases: Vec<PublishedPrompt>,
}

/// A prompt, and its text as `transformers` renders it; `None` if it refuses.
#[derive(Deserialize)]
pub struct PublishedPrompt {
    pub system: Option<String>,
    pub user: String,
    pub switches: Switches,
    pub text: Option<String>,
}

/// Renders every prompt and compares the texts.
pub fn assert_texts(templates: &[PublishedTemplate]) {
    let mut failures = Vec::new();
    for PublishedTemplate { name, template, cases } in templates {
        let folder = tempfile::tempdir().unwrap();
        let tokens = json!({"bos_token": "<s>", "eos_token": {"content": "</s>"},
                            "unk_token": "<unk>", "pad_token": "<pad>"});
        let config = folder.path().join("tokenizer_config.json");
        std::fs::write(config, tokens.to_string()).unwrap();
        std::fs::write(folder.path().join("chat_template.jinja"), template).unwrap();
        for case in cases {
            let rendered = ChatTemplate::open(folder.path(), None, case.switches.clone())
                .and_then(|chat| chat.unwrap().render(case.system.as_deref(), &case.user));
            let text = rendered.as_ref().ok();
            if text != case.text.as_ref() {
                failures.push(format!("{name}: expected {:?}, got {rendered:?}", case.text));
            }
        }
    }
    assert!(failures.is_empty(), "{} differ:\n{}", failures.len(), failures.join("\n"));
}
