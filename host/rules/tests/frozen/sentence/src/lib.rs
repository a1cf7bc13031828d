//! A rule that uses every part of the contract, written against nothing but `corver.wit`.

use std::sync::Mutex;

wit_bindgen::generate!({ path: "../../../../../wit", world: "sentence-rule" });

use corver::reward::diagnostics::report;
use corver::reward::types::{Batch, Count, Query, Section, Sentence, Verdict};
use exports::corver::reward::sentence_scoring::{Guest, Manifest, Outcome};

struct Frozen;

/// The batch, which the tests keep to one completion.
static BATCH: Mutex<Option<Batch>> = Mutex::new(None);

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

    fn score(batch: Batch) -> Vec<Outcome> {
        let outcomes = read(&batch).map(|(sentence, pieces)| first_look(sentence, &pieces)).collect();
        *BATCH.lock().unwrap() = Some(batch);
        outcomes
    }

    fn resume(counts: Vec<Count>) -> Vec<Outcome> {
        let batch = BATCH.lock().unwrap().take().unwrap();
        let mut counts = counts.into_iter();
        read(&batch).map(|(sentence, pieces)| second_look(sentence, &pieces, &mut counts)).collect()
    }
}

/// Each sentence with its text, and head, relation and tail of its triplets.
fn read(Batch { sentences, text, lengths }: &Batch) -> impl Iterator<Item = (&Sentence, Vec<&str>)> {
    let mut start = 0;
    let mut pieces = lengths.iter().map(move |&length| {
        start += length as usize;
        &text[start - length as usize..start]
    });
    sentences.iter().map(move |sentence| (sentence, pieces.by_ref().take(1 + 3 * sentence.num_triplets as usize).collect()))
}

/// Asks for “HEAD OR (text) AND TAIL”, in none of which the tests have tabs or line feeds.
fn first_look(sentence: &Sentence, pieces: &[&str]) -> Outcome {
    if sentence.section == Section::Body {
        report("a sentence without a block");
        core::arch::wasm32::unreachable();
    }
    let [text, head, _, tail, ..] = pieces else {
        return Outcome::Abstain((sentence.section == Section::Answer).then(|| "no triplet".into()));
    };
    let all_of = [head, "\t", text, "\n", tail].concat();
    Outcome::Ask(vec![Query { all_of, enough: Some(9) }])
}

/// Pays what was found; every field of a sentence matters.
fn second_look(sentence: &Sentence, pieces: &[&str], counts: &mut impl Iterator<Item = Count>) -> Outcome {
    let [text, _, relation, ..] = pieces else { return first_look(sentence, pieces) };
    let count = counts.next().unwrap();
    Outcome::Score(Verdict {
        reward: (sentence.completion * 10 + sentence.index) as f32 + if count.exact { 0.5 } else { 0.25 },
        count: count.occurrences,
        triplet: Some(0),
        note: Some([relation, " ", text].concat()),
    })
}

export!(Frozen);
