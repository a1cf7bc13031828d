//! A rule that uses every part of the contract, written against nothing but `corver.wit`.

use std::sync::Mutex;

wit_bindgen::generate!({ path: "../../../../../wit", world: "sentence-rule" });

use corver::reward::diagnostics::report;
use corver::reward::types::{Count, Query, Section, Verdict};
use exports::corver::reward::sentence_scoring::{Guest, Manifest, Outcome, Sentence};

struct Frozen;

/// The batch, which the tests keep to one completion.
static BATCH: Mutex<Vec<Sentence>> = Mutex::new(Vec::new());

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
        let outcomes = batch.iter().map(first_look).collect();
        *BATCH.lock().unwrap() = batch;
        outcomes
    }

    fn resume(counts: Vec<Count>) -> Vec<Outcome> {
        let batch = std::mem::take(&mut *BATCH.lock().unwrap());
        let mut counts = counts.into_iter();
        batch.into_iter().map(|sentence| second_look(sentence, &mut counts)).collect()
    }
}

/// Asks for “HEAD OR (text) AND TAIL”, in none of which the tests have tabs or line feeds.
fn first_look(sentence: &Sentence) -> Outcome {
    if sentence.section == Section::Body {
        report("a sentence without a block");
        core::arch::wasm32::unreachable();
    }
    let Some(triplet) = sentence.triplets.first() else {
        return Outcome::Abstain((sentence.section == Section::Answer).then(|| "no triplet".into()));
    };
    let all_of = [&triplet.head, "\t", &sentence.text, "\n", &triplet.tail].concat();
    Outcome::Ask(vec![Query { all_of, enough: Some(9) }])
}

/// Pays what was found; every field of a sentence matters.
fn second_look(sentence: Sentence, counts: &mut impl Iterator<Item = Count>) -> Outcome {
    let Some(triplet) = sentence.triplets.first() else { return first_look(&sentence) };
    let count = counts.next().unwrap();
    Outcome::Score(Verdict {
        reward: (sentence.completion * 10 + sentence.index) as f32 + if count.exact { 0.5 } else { 0.25 },
        count: count.occurrences,
        triplet: Some(0),
        note: Some([&triplet.relation, " ", &sentence.text].concat()),
    })
}

export!(Frozen);
