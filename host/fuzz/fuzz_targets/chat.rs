//! Renders the input as a model's chat template: a prompt within its bounds, or an error.
//!
//! Templates that allocate much memory are skipped: the limits of the rendering process stop them
//! (`tests/cli/attack.rs`).
#![no_main]

use std::path::Path;

use corver_pretrained::{ChatTemplate, Switches};
use libfuzzer_sys::{Corpus, fuzz_target};
use serde_json::json;

fuzz_target!(|template: &str| -> Corpus {
    let has_large_number =
        |digits: &[u8]| digits.len() > 3 && digits.iter().all(u8::is_ascii_digit);
    if template.as_bytes().windows(4).any(has_large_number) {
        return Corpus::Reject;
    }
    let config = json!({"chat_template": template, "bos_token": "<s>", "eos_token": "</s>"});
    let Ok(template) = ChatTemplate::find(Path::new("."), &config, None, Switches::new()) else {
        return Corpus::Keep;
    };
    for system in [None, Some("Be brief.")] {
        let render = || template.render(system, "Who?").map_err(|error| error.to_string());
        let rendered = render();
        assert_eq!(rendered, render(), "equal messages gave different prompts");
        assert!(rendered.is_ok_and(|prompt| prompt.len() <= 4 << 20) || render().is_err());
    }
    Corpus::Keep
});
