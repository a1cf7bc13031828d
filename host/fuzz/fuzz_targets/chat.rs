//! Renders the input as a model's chat template: a prompt within its bounds, or an error.
//!
//! Templates that allocate much memory are skipped: the limits of the rendering process stop them
//! (`tests/cli/attack.rs`).
#![no_main]

#[path = "../../pretrained/src/chat/template.rs"]
mod template;

use libfuzzer_sys::{Corpus, fuzz_target};
use template::{Messages, Switches, Template, TemplateSource};

fuzz_target!(|template: &str| -> Corpus {
    let has_large_number =
        |digits: &[u8]| digits.len() > 3 && digits.iter().all(u8::is_ascii_digit);
    if template.as_bytes().windows(4).any(has_large_number) {
        return Corpus::Reject;
    }
    let source = TemplateSource {
        template: template.into(),
        bos: "<s>".into(),
        eos: "</s>".into(),
        switches: Switches::new(),
    };
    let Ok(template) = Template::read(source) else { return Corpus::Keep };
    for system in [None, Some("Be brief.".to_owned())] {
        let messages = Messages { system, user: "Who?".into() };
        let rendered = template.render(&messages);
        assert_eq!(rendered, template.render(&messages), "equal messages gave different prompts");
        assert!(
            rendered.is_ok_and(|prompt| prompt.len() <= 4 << 20)
                || template.render(&messages).is_err()
        );
    }
    Corpus::Keep
});
