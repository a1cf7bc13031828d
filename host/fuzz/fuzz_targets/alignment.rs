//! Splits the input as a completion, and aligns its sentences to tokens whose lengths the input
//! gives: every span is within the tokens.
#![no_main]

use corver_core::compat::spans_of_pieces;
use corver_core::sentence::align;
use corver_core::split::split;
use corver_core::{Compatibility, Language, SentenceSplitter, TextSettings};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&str, &[u8])| {
    let (text, cuts) = input;
    // Tokens of one to eight characters, some of which have no text.
    let mut pieces = Vec::new();
    let mut rest = text;
    for &cut in cuts {
        let length =
            rest.char_indices().nth(usize::from(cut % 8) + 1).map_or(rest.len(), |(at, _)| at);
        let (piece, after) = rest.split_at(length);
        pieces.push(Some(piece));
        if cut >= 0xf0 {
            pieces.push(None);
        }
        rest = after;
    }
    let spans = spans_of_pieces(&pieces);
    let prose = |language| TextSettings {
        sentences: SentenceSplitter::Prose,
        language,
        ..TextSettings::default()
    };
    let reference =
        TextSettings { compatibility: Compatibility::Reference, ..TextSettings::default() };
    for settings in [
        TextSettings::default(),
        reference,
        prose(Language::English),
        prose(Language::German),
        prose(Language::Chinese),
    ] {
        let split = split(text, settings);
        let alignment = align(&split, &spans);
        for tokens in alignment.token_spans(split.sentences.len()).into_iter().flatten() {
            assert!(tokens.end <= spans.len(), "{tokens:?} of {} tokens", spans.len());
        }
    }
});
