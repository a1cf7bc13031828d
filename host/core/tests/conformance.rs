//! The pure stages against vectors from the authors' published code. `make conformance` runs them.

#[path = "../../../tests/golden.rs"]
mod golden;

use corver_core::advantage::normalize;
use corver_core::compat::spans_of_pieces;
use corver_core::response::{self, AnswerRule, format_reward};
use corver_core::returns::{SentenceReward, token_returns};
use corver_core::sentence::{align, split_sentences};
use corver_core::split::split;
use corver_core::{
    AdvantageSettings, Alignment, Compatibility, Estimator, Grade, Granularity, Label, Language,
    ResponseGrades, RewardSettings, ScaleRewards, ScoredCompletion, SentenceMean, TextSettings,
    question,
};
use golden::{check_all, close, numbers, same, strings, token_map};
use serde_json::Value;

/// Settings of the published code.
fn reference() -> TextSettings {
    TextSettings { compatibility: Compatibility::Reference, ..TextSettings::default() }
}

fn text<'a>(row: &'a Value, field: &str) -> &'a str {
    row[field].as_str().unwrap_or_else(|| panic!("{field} is no string"))
}

#[test]
#[ignore = "needs CORVER_SHARED: `make conformance`"]
fn sentence_split_matches_reference() {
    check_all("split_sentences", |row| {
        let got: Vec<&str> = split_sentences(text(row, "text")).collect();
        same("sentences", got, strings(&row["sentences"]).iter().map(String::as_str).collect())
    });
}

#[test]
#[ignore = "needs CORVER_SHARED: `make conformance`"]
fn answer_normalisation_matches_reference() {
    check_all("normalize", |row| {
        let normalized = response::normalize(text(row, "text"), Language::English);
        same("normalized", normalized.as_str(), text(row, "normalized"))
    });
}

#[test]
#[ignore = "needs CORVER_SHARED: `make conformance`"]
fn answer_judge_matches_reference() {
    check_all("judge", |row| {
        let completion = text(row, "completion");
        let rule = AnswerRule::of_training(reference());
        let label = rule.grade(completion, &question::split_golds(text(row, "gold")));
        let expected = match text(row, "label") {
            "GOOD" => Label::Good,
            "BAD" => Label::Bad,
            _ => Label::NotAttempted,
        };
        same("extracted", rule.extract(completion), text(row, "extracted"))?;
        same("label", label, expected)?;
        same("reward", label.reward(), row["reward"].as_f64().unwrap())
    });
}

#[test]
#[ignore = "needs CORVER_SHARED: `make conformance`"]
fn format_check_matches_reference() {
    check_all("format_reward", |row| {
        same(
            "reward",
            format_reward(text(row, "completion"), Compatibility::Reference),
            row["reward"].as_f64().unwrap(),
        )
    });
}

#[test]
#[ignore = "needs CORVER_SHARED: `make conformance`"]
fn token_alignment_matches_reference() {
    check_all("alignment", |row| {
        let pieces: Vec<Option<&str>> =
            row["token_texts"].as_array().unwrap().iter().map(Value::as_str).collect();
        let mask = numbers(&row["mask"]);
        // Masked positions are no tokens of the completion; here they can only stand at the end or
        // be skipped alike.
        let kept: Vec<usize> = (0..pieces.len()).filter(|at| mask[*at] != 0.0).collect();
        let spans = spans_of_pieces(&kept.iter().map(|at| pieces[*at]).collect::<Vec<_>>());
        let split = split(text(row, "decoded"), reference());
        let alignment = align(&split, &spans);
        let expected_map = token_map(&row["map"]);
        same("map", alignment.sentence_of, kept.iter().map(|at| expected_map[*at]).collect())?;
        let sentences: Vec<String> =
            split.sentences.into_iter().map(|sentence| sentence.text).collect();
        same("sentences", sentences, strings(&row["sentences"]))?;
        close("rate", alignment.rate, row["alignment_rate"].as_f64().unwrap(), 1e-12, 1e-9)
    });
}

/// `[B][T]`, cut where the mask ends.
fn unpadded(values: &Value, mask: &Value) -> Vec<Vec<f64>> {
    let rows = values.as_array().unwrap().iter().zip(mask.as_array().unwrap());
    rows.map(|(row, mask)| {
        let mask = numbers(mask);
        numbers(row)
            .into_iter()
            .zip(mask)
            .filter(|(_, mask)| *mask != 0.0)
            .map(|(value, _)| value)
            .collect()
    })
    .collect()
}

#[test]
#[ignore = "needs CORVER_SHARED: `make conformance`"]
fn group_advantages_match_reference() {
    check_all("advantages", |row| {
        let settings = AdvantageSettings {
            scale_rewards: serde_json::from_value::<ScaleRewards>(row["scale_rewards"].clone())
                .unwrap(),
            min_spread: 0.0,
        };
        let num_generations = row["num_generations"].as_u64().unwrap() as usize;
        let returns = unpadded(&row["returns"], &row["mask"]);
        let advantages = normalize(&returns, num_generations, &settings);
        let expected = unpadded(&row["advantages"], &row["mask"]);
        // Where the spread is rounding noise, the quotient by 1e-4 is noise as well.
        let absolute = if row["kind"] == "equal_rk" { 1e-6 } else { 1e-9 };
        for (got, expected) in advantages.iter().flatten().zip(expected.iter().flatten()) {
            close("advantage", *got, *expected, absolute, 1e-9)?;
        }
        let mut completions = Vec::new();
        for returns in returns {
            completions.push(ScoredCompletion { returns, ..ScoredCompletion::default() });
        }
        let stats = Estimator::Grpo(settings).return_stats(&completions, num_generations);
        close(
            "reward_std",
            stats.reward_std,
            row["reward_std_mean"].as_f64().unwrap(),
            1e-9,
            1e-6,
        )?;
        close(
            "frac_zero_std",
            stats.frac_reward_zero_std,
            row["frac_zero_std"].as_f64().unwrap(),
            1e-9,
            1e-6,
        )
    });
}

#[test]
#[ignore = "needs CORVER_SHARED: `make conformance`"]
fn response_level_advantages_match_reference() {
    check_all("a3_advantages", |row| {
        let readings = [
            ("mean_over_sentences", Granularity::Response, SentenceMean::OverSentences),
            ("mean_over_counted", Granularity::Response, SentenceMean::OverCounted),
            ("token_weighted", Granularity::Response, SentenceMean::TokenWeighted),
            ("total_over_sentences", Granularity::Response, SentenceMean::Total),
            ("full", Granularity::Token, SentenceMean::OverSentences),
        ];
        let num_generations = row["num_generations"].as_u64().unwrap() as usize;
        for (name, granularity, sentence_mean) in readings {
            let settings =
                RewardSettings { granularity, sentence_mean, ..RewardSettings::default() };
            let completions = row["completions"].as_array().unwrap();
            let returns: Vec<Vec<f64>> =
                completions.iter().map(|completion| a3_returns(completion, &settings)).collect();
            let got = normalize(&returns, num_generations, &AdvantageSettings::default());
            let expected =
                row["advantages"][name].as_array().unwrap_or_else(|| panic!("no {name}"));
            for (got, expected) in got.iter().zip(expected) {
                let expected = numbers(expected);
                for (got, expected) in got.iter().zip(&expected) {
                    close(name, *got, *expected, 1e-6, 1e-6)?;
                }
                if expected[got.len()..].iter().any(|padding| *padding != 0.0) {
                    return Err(format!("{name}: padding is not zero"));
                }
            }
        }
        Ok(())
    });
}

fn a3_returns(completion: &Value, settings: &RewardSettings) -> Vec<f64> {
    let (judge, format) = (
        completion["judge_reward"].as_f64().unwrap(),
        completion["format_reward"].as_f64().unwrap(),
    );
    let counted =
        completion["counted"].as_array().unwrap().iter().map(|counted| counted.as_bool().unwrap());
    let sentences: Vec<SentenceReward> = numbers(&completion["sentence_rewards"])
        .into_iter()
        .zip(counted)
        .map(|(reward, counted)| SentenceReward { reward, counted, shares: None })
        .collect();
    let alignment = Alignment { sentence_of: token_map(&completion["map"]), rate: 1.0 };
    let response = ResponseGrades { judge: Grade::new(judge, ""), format: Grade::new(format, "") };
    token_returns(&response, &alignment, &sentences, settings)
}
