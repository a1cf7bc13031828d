//! Everything that the host passes arrives where the contract says. These rules are not
//! hostile: they read their memory.

use corver_core::{Backends, Completion, Section, Sentence, SentenceVerdict, Triplet};
use corver_rules::Limits;

use crate::guest::Guest;
use crate::{Nothing, load};

/// Judges two completions of one sentence each, by a rule that says the same about both.
fn verdict(score: &str) -> SentenceVerdict {
    // At 320 there is a second list with the outcome at 256.
    let score = format!(
        "(i32.store (i32.const 328) (i32.const 256)) (i32.store (i32.const 332) (i32.const 1))
         (i32.store (i32.const 340) (i32.const 2)) {score} i32.const 336"
    );
    let rule = load(&Guest::scoring(score.leak()).module(), Limits::default()).unwrap();
    let triplet = |head: &str, relation: &str, tail: &str| {
        let [head, relation, tail] = [head, relation, tail].map(str::to_owned);
        Triplet { head, relation, tail }
    };
    let sentence = |text: &str, section, triplets| {
        [Sentence { text: text.into(), section, span: None, triplets }]
    };
    let first = sentence("Lima.", Section::Think, vec![triplet("Lima", "is in", "Peru")]);
    let film = vec![triplet("x", "y", "z"), triplet("Dvořák", "", "東京 🎻")];
    let second = sentence("\u{feff}Größer.", Section::Answer, film);
    let golds = ["Rome".to_owned(), "Roma".to_owned()];
    let evidence = ["It is large.".to_owned(), "Größe zählt.".to_owned()];
    let text = "<think>Well.</think><answer> Größer. </answer>";
    let completions = [
        Completion {
            question: "Where?",
            text: "Lima.",
            sentences: &first,
            ..Completion::default()
        },
        Completion {
            question: "Who?",
            golds: &golds,
            title: Some("Italy"),
            evidence: &evidence,
            text,
            sentences: &second,
        },
    ];
    let verdicts = rule.score(&completions, &mut Backends::counting(Nothing)).unwrap().concat();
    assert_eq!(verdicts[0], verdicts[1]);
    verdicts[0].clone()
}

/// Abstains with the text whose address and length are at this address.
fn text_at(address: &str) -> String {
    let note = format!(
        "(i32.store8 (i32.const 256) (i32.const 1)) (i32.store8 (i32.const 264) (i32.const 1))
         (i32.store (i32.const 268) (i32.load {address})) (i32.store (i32.const 272) (i32.load offset=4 {address}))"
    );
    verdict(&note).note.expect("the rule gives one")
}

#[test]
fn texts_cross_into_guest_unchanged() {
    // A completion has six lists of an address and a length each, and a title that may be missing:
    // 60 bytes. The second one begins there.
    let completion =
        |offset: u32| format!("(i32.add (local.get $completions) (i32.const {}))", 60 + offset);
    let within =
        |list: String, offset: u32| format!("(i32.add (i32.load {list}) (i32.const {offset}))");
    assert_eq!(text_at("(local.get $completions)"), "Where?");
    assert_eq!(text_at(&completion(0)), "Who?");
    assert_eq!(text_at(&within(completion(8), 8)), "Roma");
    assert_eq!(text_at(&completion(20)), "Italy");
    assert_eq!(text_at(&within(completion(28), 8)), "Größe zählt.");
    assert_eq!(text_at(&completion(36)), "<think>Well.</think><answer> Größer. </answer>");
    assert_eq!(text_at(&completion(44)), "Größer.");
    let sentence = |offset| within(completion(52), offset);
    assert_eq!(text_at(&sentence(0)), "\u{feff}Größer.");
    // A sentence is its text, its section and its triplets; a triplet has three texts: 24 bytes.
    let triplet = |offset| within(sentence(12), offset);
    assert_eq!([0, 8, 16].map(|part| text_at(&triplet(part))), ["x", "y", "z"]);
    assert_eq!([24, 32, 40].map(|part| text_at(&triplet(part))), ["Dvořák", "", "東京 🎻"]);
}

#[test]
fn numbers_cross_into_guest_unchanged() {
    let paid = |number: &str| verdict(&format!("(f32.store (i32.const 264) {number})")).reward;
    let is_there = |option: u32| paid(&format!("(f32.convert_i32_u (local.get {option}))"));
    assert_eq!(
        [is_there(2), is_there(4)],
        [Some(1.0), Some(0.0)],
        "tokens are known, documents are not"
    );
    assert_eq!(paid("(f32.convert_i64_u (local.get $tokens))"), Some((3_u64 << 40) as f32));
    let length = |list: u32| {
        paid(&format!("(f32.convert_i32_u (i32.load offset={list} (local.get $completions)))"))
    };
    assert_eq!([length(12), length(72)], [Some(0.0), Some(2.0)], "golds");
    let is_titled = |title: u32| {
        paid(&format!("(f32.convert_i32_u (i32.load8_u offset={title} (local.get $completions)))"))
    };
    assert_eq!([is_titled(16), is_titled(76)], [Some(0.0), Some(1.0)], "titles");
    let section = "(i32.load8_u offset=8 (i32.load offset=112 (local.get $completions)))";
    assert_eq!(paid(&format!("(f32.convert_i32_u {section})")), Some(1.0), "answer");
}
