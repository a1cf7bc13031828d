//! Renders the input as a model's chat template: a prompt within its bounds, or an error. A text
//! that asks for memory is the limit's of the process that renders it (`tests/cli/attack.rs`), not
//! tried here.
#![no_main]

#[path = "../../pretrained/src/chat/template.rs"]
mod template;

use libfuzzer_sys::{Corpus, fuzz_target};
use template::{Messages, TemplateSource, Switches, Template};

fuzz_target!(|template: &str| -> Corpus {
    let asks_for_memory = |digits: &[u8]| digits.len() > 3 && digits.iter().all(u8::is_ascii_digit);
    if template.as_bytes().windows(4).any(asks_for_memory) {
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
        assert_eq!(rendered, template.render(&messages), "the same messages, another prompt");
        assert!(
            rendered.is_ok_and(|prompt| prompt.len() <= 4 << 20)
                || template.render(&messages).is_err()
        );
    }
    Corpus::Keep
});
