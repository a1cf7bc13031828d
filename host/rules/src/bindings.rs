//! The contract's types, generated from `wit/corver.wit`, and conversions from the host's types.
//! They borrow every text, so that a call copies it only once: into the rule's memory.

use corver_core::template::answer_block;
use corver_core::text::strip;
use corver_core::{Completion, CorpusInfo, CountMode, Section, Sentence, Triplet};

#[allow(missing_docs, unused_qualifications, reason = "generated from wit/corver.wit")]
mod generated {
    // No component has this world. It joins both exports, so that there is one set of types.
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

/// Version of the contract that this host runs.
pub const VERSION: &str = "0.1.0";

/// Returns the description of the corpus in the contract's types.
pub fn wire_info(info: CorpusInfo) -> types::CorpusInfo {
    let CorpusInfo { tokens, documents, window, mode } = info;
    let mode = mode.map(|mode| match mode {
        CountMode::Compatible => types::CountMode::Compatible,
        CountMode::Exact => types::CountMode::Exact,
        CountMode::Span => types::CountMode::Span,
    });
    types::CorpusInfo { tokens, documents, window, mode }
}

/// Calls `call` with completions in the contract's types, which borrow their texts.
pub fn with_wire_completions<T>(
    completions: &[Completion<'_>],
    call: impl FnOnce(&[types::Completion<'_>]) -> T,
) -> T {
    // The lists of all completions are joined, so that each kind takes one allocation.
    let mut all_triplets = Vec::new();
    let mut all_golds = Vec::new();
    let mut all_evidence = Vec::new();
    for completion in completions {
        all_golds.extend(completion.golds.iter().map(String::as_str));
        all_evidence.extend(completion.evidence.iter().map(String::as_str));
        for sentence in completion.sentences {
            all_triplets.extend(sentence.triplets.iter().map(wire_triplet));
        }
    }

    let mut triplets = &all_triplets[..];
    let mut all_sentences = Vec::new();
    for completion in completions {
        for sentence in completion.sentences {
            let own_triplets = split_front(&mut triplets, sentence.triplets.len());
            all_sentences.push(wire_sentence(sentence, own_triplets));
        }
    }

    let mut sentences = &all_sentences[..];
    let mut golds = &all_golds[..];
    let mut evidence = &all_evidence[..];
    let mut wire_completions = Vec::with_capacity(completions.len());
    for completion in completions {
        wire_completions.push(types::Completion {
            question: completion.question,
            golds: split_front(&mut golds, completion.golds.len()),
            title: completion.title,
            evidence: split_front(&mut evidence, completion.evidence.len()),
            text: completion.text,
            answer: answer_block(completion.text).unwrap_or(strip(completion.text)),
            sentences: split_front(&mut sentences, completion.sentences.len()),
        });
    }
    call(&wire_completions)
}

/// Removes and returns the first `length` elements of a list that has at least as many.
fn split_front<'a, T>(list: &mut &'a [T], length: usize) -> &'a [T] {
    list.split_off(..length).expect("the list joins those of all completions")
}

fn wire_triplet(Triplet { head, relation, tail }: &Triplet) -> types::Triplet<'_> {
    types::Triplet { head, relation, tail }
}

fn wire_sentence<'a>(
    sentence: &'a Sentence,
    triplets: &'a [types::Triplet<'a>],
) -> types::Sentence<'a> {
    let section = match sentence.section {
        Section::Think => types::Section::Think,
        Section::Answer => types::Section::Answer,
        Section::Body => types::Section::Body,
    };
    types::Sentence { text: &sentence.text, section, triplets }
}
