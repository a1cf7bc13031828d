//! The contract's types, generated from `wit/corver.wit`, and how the host's own become these. They
//! borrow every text, so that calling a rule copies it once: into the rule's memory.

use corver_core::template::answer_block;
use corver_core::text::strip;
use corver_core::{Completion, Section, Sentence, Triplet};

#[allow(missing_docs, unused_qualifications, reason = "generated from wit/corver.wit")]
mod generated {
    // Both exports in one world, which no component is of, so that there is one set of types.
    wasmtime::component::bindgen!({
        path: "../../wit",
        inline: "
            package corver:host;

            world rules {
                import corver:reward/diagnostics@0.1.0;
                export corver:reward/sentence-scoring@0.1.0;
                export corver:reward/response-grading@0.1.0;
            }
        ",
        world: "corver:host/rules",
        ownership: Borrowing { duplicate_if_necessary: false },
    });
}

pub use generated::Rules;
pub use generated::corver::reward::{diagnostics, types};
pub use generated::exports::corver::reward::{response_grading, sentence_scoring};

/// The version of the contract.
pub const VERSION: &str = "0.1.0";

/// Hands `completions` over in the contract's types.
pub fn with_lowered<T>(
    completions: &[Completion<'_>],
    hand_over: impl FnOnce(&[types::Completion<'_>]) -> T,
) -> T {
    let sentences = || completions.iter().flat_map(|completion| completion.sentences);
    let triplets: Vec<types::Triplet<'_>> =
        sentences().flat_map(|sentence| &sentence.triplets).map(triplet).collect();
    let mut rest = &triplets[..];
    let sentences: Vec<types::Sentence<'_>> =
        sentences().map(|one| sentence(one, next(&mut rest, one.triplets.len()))).collect();
    let golds: Vec<&str> =
        completions.iter().flat_map(|completion| completion.golds).map(String::as_str).collect();
    let evidence: Vec<&str> =
        completions.iter().flat_map(|completion| completion.evidence).map(String::as_str).collect();
    let (mut unassigned, mut golds, mut evidence) = (&sentences[..], &golds[..], &evidence[..]);
    let completions = completions.iter().map(|completion| types::Completion {
        question: completion.question,
        golds: next(&mut golds, completion.golds.len()),
        title: completion.title,
        evidence: next(&mut evidence, completion.evidence.len()),
        text: completion.text,
        answer: answer_block(completion.text).unwrap_or(strip(completion.text)),
        sentences: next(&mut unassigned, completion.sentences.len()),
    });
    hand_over(&completions.collect::<Vec<_>>())
}

/// Takes the first `number` off a list that has at least as many.
fn next<'a, T>(list: &mut &'a [T], number: usize) -> &'a [T] {
    list.split_off(..number).expect("the list is the concatenation of what is taken")
}

fn triplet(Triplet { head, relation, tail }: &Triplet) -> types::Triplet<'_> {
    types::Triplet { head, relation, tail }
}

fn sentence<'a>(sentence: &'a Sentence, triplets: &'a [types::Triplet<'a>]) -> types::Sentence<'a> {
    let section = match sentence.section {
        Section::Think => types::Section::Think,
        Section::Answer => types::Section::Answer,
        Section::Body => types::Section::Body,
    };
    types::Sentence { text: &sentence.text, section, triplets }
}
