//! The pure stages against `tests/vectors/reference.py`, an independent implementation of the
//! paper's formulas.

#[path = "../../../tests/vectors/mod.rs"]
mod vectors;

use std::ops::Range;

use corver_core::advantage::normalize;
use corver_core::response::{self, AnswerRule, format_reward};
use corver_core::returns::{SentenceReward, token_returns};
use corver_core::sentence::{align, split_sentences};
use corver_core::split::split;
use corver_core::triplet::{Element, Triplet, read_reply};
use corver_core::{
    AdvantageSettings, Alignment, Compatibility, Grade, Granularity, Label, Language, ReplyGrammar,
    ResponseGrades, RewardSettings, ScaleRewards, Section, SentenceMean, TextSettings, question,
    reply,
};
use serde::Deserialize;
use vectors::{cases, close};

/// Half-open, in characters.
type Span = (usize, usize);

fn span(range: Range<usize>) -> Span {
    (range.start, range.end)
}

#[test]
fn sentence_splits_match_vectors() {
    #[derive(Deserialize)]
    struct Case {
        text: String,
        sentences: Vec<String>,
    }
    for case in cases::<Case>(include_str!("../../../tests/vectors/sentences.json")) {
        assert_eq!(
            split_sentences(&case.text).collect::<Vec<_>>(),
            case.sentences,
            "{:?}",
            case.text
        );
    }
}

#[test]
fn token_alignment_matches_vectors() {
    #[derive(Deserialize)]
    struct Case {
        completion: String,
        paper: Expected,
        reference: Expected,
    }
    #[derive(Deserialize)]
    struct Expected {
        tokens: Vec<Option<Span>>,
        sentences: Vec<(Section, String, Option<Span>)>,
        sections: Vec<Span>,
        sentence_of: Vec<Option<usize>>,
        rate: f64,
    }
    for Case { completion, paper, reference } in
        cases(include_str!("../../../tests/vectors/alignment.json"))
    {
        for (compatibility, expected) in
            [(Compatibility::Paper, paper), (Compatibility::Reference, reference)]
        {
            let context = format!("{compatibility:?}: {completion:?}");
            let split =
                split(&completion, TextSettings { compatibility, ..TextSettings::default() });
            let tokens: Vec<Option<Range<usize>>> =
                expected.tokens.iter().map(|token| token.map(|(start, end)| start..end)).collect();
            let alignment = align(&split, &tokens);
            let sentences: Vec<_> = split
                .sentences
                .into_iter()
                .map(|s| (s.section, s.text, s.span.map(span)))
                .collect();
            assert_eq!(sentences, expected.sentences, "{context}");
            assert_eq!(
                split.sections.into_iter().map(span).collect::<Vec<_>>(),
                expected.sections,
                "{context}"
            );
            assert_eq!(alignment.sentence_of, expected.sentence_of, "{context}");
            assert!(
                close(&[alignment.rate], &[expected.rate], 1e-11),
                "{context}: {}",
                alignment.rate
            );
        }
    }
}

#[test]
fn response_grades_match_vectors() {
    #[derive(Deserialize)]
    struct Case {
        completion: String,
        golds: String,
        paper: Expected,
        published_training: Expected,
        published_evaluation: Expected,
        format: Formats,
    }
    #[derive(Deserialize)]
    struct Expected {
        answer: String,
        normalized: String,
        label: Label,
        judge: f64,
    }
    #[derive(Deserialize)]
    struct Formats {
        paper: f64,
        reference: f64,
    }
    for case in cases::<Case>(include_str!("../../../tests/vectors/grades.json")) {
        let Case { completion, golds, .. } = &case;
        for (rule, expected) in [
            (AnswerRule::default(), &case.paper),
            (AnswerRule::PublishedTraining, &case.published_training),
            (AnswerRule::PublishedEvaluation, &case.published_evaluation),
        ] {
            let answer = rule.extract(completion);
            assert_eq!(answer, expected.answer, "{rule:?}: {completion:?}");
            assert_eq!(
                response::normalize(answer, Language::English),
                expected.normalized,
                "{rule:?}: {completion:?}"
            );
            let label = rule.grade(completion, &question::split_golds(golds));
            let got = (label, label.reward());
            assert_eq!(
                got,
                (expected.label, expected.judge),
                "{rule:?}: {completion:?}, golds {golds:?}"
            );
        }
        assert_eq!(
            format_reward(completion, Compatibility::Paper),
            case.format.paper,
            "{completion:?}"
        );
        assert_eq!(
            format_reward(completion, Compatibility::Reference),
            case.format.reference,
            "{completion:?}"
        );
    }
}

#[test]
fn reply_triplets_match_vectors() {
    #[derive(Deserialize)]
    struct Case {
        reply: String,
        elements: Vec<Element>,
        triplets: Vec<[String; 3]>,
    }
    for case in cases::<Case>(include_str!("../../../tests/vectors/replies.json")) {
        assert_eq!(read_reply(&case.reply), case.elements, "{:?}", case.reply);
        let parts = |Triplet { head, relation, tail }| [head, relation, tail];
        let read = reply::read(&case.reply, ReplyGrammar::Reference);
        let triplets: Vec<[String; 3]> = read.into_triplets().into_iter().map(parts).collect();
        assert_eq!(triplets, case.triplets, "{:?}", case.reply);
    }
}

#[test]
fn token_returns_match_vectors() {
    #[derive(Deserialize)]
    struct Case {
        judge: f64,
        format: f64,
        sentence_of: Vec<Option<usize>>,
        sentences: Vec<(f64, bool)>,
        ablation: String,
        mean: SentenceMean,
        lambdas: [f64; 3],
        returns: Vec<f64>,
    }
    for (number, case) in
        cases::<Case>(include_str!("../../../tests/vectors/returns.json")).into_iter().enumerate()
    {
        let [mut lambda_judge, lambda_format, mut lambda_corver] = case.lambdas;
        let mut granularity = Granularity::Token;
        match case.ablation.as_str() {
            "none" => {}
            "no_cooccurrence" => lambda_corver = 0.0,
            "no_judge" => lambda_judge = 0.0,
            "response_level" => granularity = Granularity::Response,
            other => panic!("{other}"),
        }
        let settings = RewardSettings {
            lambda_judge,
            lambda_format,
            lambda_corver,
            granularity,
            sentence_mean: case.mean,
            ..RewardSettings::default()
        };
        let grades = ResponseGrades {
            judge: Grade::new(case.judge, ""),
            format: Grade::new(case.format, ""),
        };
        let alignment = Alignment { sentence_of: case.sentence_of, rate: 1.0 };
        let sentences: Vec<SentenceReward> = case
            .sentences
            .iter()
            .map(|&(reward, counted)| SentenceReward { reward, counted, shares: None })
            .collect();
        let returns = token_returns(&grades, &alignment, &sentences, &settings);
        assert!(
            close(&returns, &case.returns, 1e-11),
            "case {number}: {returns:?}, expected {:?}",
            case.returns
        );
    }
}

#[test]
fn group_advantages_match_vectors() {
    #[derive(Deserialize)]
    struct Case {
        returns: Vec<Vec<f64>>,
        num_generations: usize,
        scale_rewards: ScaleRewards,
        advantages: Vec<Vec<f64>>,
    }
    for case in cases::<Case>(include_str!("../../../tests/vectors/advantages.json")) {
        let settings = AdvantageSettings { scale_rewards: case.scale_rewards, min_spread: 0.0 };
        let advantages = normalize(&case.returns, case.num_generations, &settings);
        // Where the spread is zero, rounding errors of the mean are divided by 1e-4.
        let agree = advantages.len() == case.advantages.len()
            && advantages
                .iter()
                .zip(&case.advantages)
                .all(|(got, expected)| close(got, expected, 1e-9));
        assert!(agree, "{settings:?}: {advantages:?}, expected {:?}", case.advantages);
    }
}
