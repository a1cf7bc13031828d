//! A rule that uses every part of the contract, written against nothing but `corver.wit`.

wit_bindgen::generate!({ path: "../../../../../wit", world: "sentence-rule" });

use corver::reward::diagnostics::report;
use corver::reward::types::{Query, Section, Verdict};
use exports::corver::reward::sentence_scoring::{Guest, Manifest, Outcome, Sentence};

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

    fn score(batch: Vec<Sentence>) -> Vec<Outcome> {
        batch.into_iter().map(judge).collect()
    }
}

/// Asks for “HEAD OR (text) AND TAIL”, then pays what was found; every field of a sentence matters.
fn judge(sentence: Sentence) -> Outcome {
    if sentence.section == Section::Body {
        report("a sentence without a block");
        core::arch::wasm32::unreachable();
    }
    let Some(triplet) = sentence.triplets.into_iter().next() else {
        return Outcome::Abstain((sentence.section == Section::Answer).then(|| "no triplet".into()));
    };
    match sentence.counts.as_slice() {
        [] => {
            let either = vec![triplet.head, sentence.text];
            Outcome::Ask(vec![Query { all_of: vec![either, vec![triplet.tail]], enough: Some(9) }])
        }
        [count, ..] => Outcome::Score(Verdict {
            reward: (sentence.completion * 10 + sentence.index) as f32 + if count.exact { 0.5 } else { 0.25 },
            count: count.occurrences,
            triplet: Some(0),
            note: Some([&triplet.relation, " ", &sentence.text].concat()),
        }),
    }
}

export!(Frozen);
