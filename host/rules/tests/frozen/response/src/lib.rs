//! A response rule that uses every part of its world, written against nothing but `corver.wit`.

wit_bindgen::generate!({ path: "../../../../../wit", world: "response-rule" });

use corver::reward::diagnostics::report;
use corver::reward::types::Section;
use exports::corver::reward::response_grading::{Grade, Guest, Manifest, Response};

struct Frozen;

impl Guest for Frozen {
    fn describe() -> Manifest {
        Manifest {
            name: env!("CARGO_PKG_NAME").into(),
            version: env!("CARGO_PKG_VERSION").into(),
            summary: env!("CARGO_PKG_DESCRIPTION").into(),
            settings_schema: r#"{"type":"object","additionalProperties":false}"#.into(),
        }
    }

    fn configure(settings: String) -> Result<(), String> {
        if settings == "{}" { Ok(()) } else { Err(["there are no settings; got ", &settings].concat()) }
    }

    fn assess(batch: Vec<Response>) -> Vec<Grade> {
        batch.into_iter().map(grade).collect()
    }
}

/// Ten for every sentence before the answer, one for every gold; every field of a response matters.
fn grade(response: Response) -> Grade {
    if response.text.is_empty() {
        report("a response without text");
        core::arch::wasm32::unreachable();
    }
    let thoughts = response.sentences.iter().filter(|passage| passage.section == Section::Think);
    let words: Vec<&str> = response.sentences.iter().map(|passage| passage.text.as_str()).collect();
    let is_gold = response.golds.contains(&response.answer);
    Grade {
        reward: (10 * thoughts.count() + response.golds.len()) as f32,
        label: if is_gold { "GOLD" } else { "OTHER" }.into(),
        note: is_gold.then(|| [&response.question, " ", &words.join("|")].concat()),
    }
}

export!(Frozen);
