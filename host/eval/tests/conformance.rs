//! Grading, filtering and intervals against vectors from the authors' published code.
//! `make conformance` runs them.

#[path = "../../../tests/golden.rs"]
mod golden;

use corver_core::question::split_golds;
use corver_core::response::AnswerRule;
use corver_core::{Compatibility, Label, TextSettings};
use corver_eval::grade::{Grades, keeps_format};
use corver_eval::{Zone, wilson};
use corver_settings::FilterSettings;
use golden::{check_all, close, same, strings};

fn label(name: &str) -> Label {
    match name {
        "CORRECT" => Label::Good,
        "INCORRECT" => Label::Bad,
        "NOT_ATTEMPTED" => Label::NotAttempted,
        other => panic!("unknown grade {other}"),
    }
}

#[test]
#[ignore = "needs CORVER_SHARED: `make conformance`"]
fn evaluation_grades_match_reference() {
    check_all("eval_grader", |row| {
        let completion = row["completion"].as_str().unwrap();
        let mut golds = vec![row["answer"].as_str().unwrap().to_owned()];
        golds.extend(strings(&row["aliases"]));
        for (compatibility, extracted, graded) in [
            (Compatibility::Reference, "extracted", "grade"),
            (Compatibility::Paper, "regrade_extracted", "regrade_grade"),
        ] {
            let rule = AnswerRule::of_evaluation(TextSettings {
                compatibility,
                ..TextSettings::default()
            });
            same(extracted, rule.extract(completion), row[extracted].as_str().unwrap())?;
            same(graded, rule.grade(completion, &golds), label(row[graded].as_str().unwrap()))?;
        }
        same(
            "format_ok",
            keeps_format(completion, Compatibility::Reference),
            row["format_ok"].as_bool().unwrap(),
        )
    });
}

#[test]
#[ignore = "needs CORVER_SHARED: `make conformance`"]
fn evaluation_rates_and_f1_match_reference() {
    check_all("eval_metrics", |row| {
        let count = |field: &str| row[field].as_u64().unwrap() as usize;
        let grades = Grades {
            correct: count("correct"),
            incorrect: count("incorrect"),
            not_attempted: count("not_attempted"),
        };
        let expect =
            |field: &str, got: f64| close(field, got, row[field].as_f64().unwrap(), 1e-12, 1e-12);
        expect("correct_rate", grades.rate(grades.correct))?;
        expect("incorrect_rate", grades.rate(grades.incorrect))?;
        expect("not_attempted_rate", grades.rate(grades.not_attempted))?;
        expect("f1_eval", grades.f1())
    });
}

#[test]
#[ignore = "needs CORVER_SHARED: `make conformance`"]
fn learning_zone_filter_matches_reference() {
    check_all("selffilter_rule", |row| {
        let number = |field: &str| row[field].as_u64().map(|number| number as usize);
        let (num_correct, num_generations) =
            (number("n_correct").unwrap(), number("num_gen").unwrap());
        let settings = FilterSettings {
            num_generations,
            min_correct: number("min_correct").unwrap(),
            max_correct: number("max_correct"),
            ..FilterSettings::default()
        };
        let zone = Zone::new(num_correct, num_generations);
        same("keep", settings.keeps(num_correct), row["keep"].as_bool().unwrap())?;
        same("category", serde_json::to_value(zone).unwrap(), row["category"].clone())?;
        same("anchor_candidate", zone == Zone::Mastered, row["anchor_candidate"].as_bool().unwrap())
    });
}

#[test]
#[ignore = "needs CORVER_SHARED: `make conformance`"]
fn filter_correct_counts_match_reference() {
    let rule = AnswerRule::of_training(TextSettings {
        compatibility: Compatibility::Reference,
        ..TextSettings::default()
    });
    check_all("selffilter_e2e", |row| {
        let num_generations = row["num_gen"].as_u64().unwrap() as usize;
        let settings = FilterSettings { num_generations, ..FilterSettings::default() };
        let answers = strings(&row["answers"]);
        let completions: Vec<Vec<String>> =
            row["completions"].as_array().unwrap().iter().map(strings).collect();
        let right = |(completions, answers): (&Vec<String>, &String)| {
            let golds = split_golds(answers);
            completions
                .iter()
                .filter(|completion| rule.grade(completion, &golds) == Label::Good)
                .count()
        };
        let num_correct: Vec<usize> = completions.iter().zip(&answers).map(right).collect();
        same("n_correct", serde_json::to_value(&num_correct).unwrap(), row["n_correct"].clone())?;
        let kept: Vec<bool> = num_correct.iter().map(|n| settings.keeps(*n)).collect();
        same("kept", serde_json::to_value(&kept).unwrap(), row["kept"].clone())
    });
}

#[test]
#[ignore = "needs CORVER_SHARED: `make conformance`"]
fn wilson_intervals_match_reference() {
    check_all("wilson", |row| {
        let (low, high) = wilson(row["correct"].as_u64().unwrap(), row["n"].as_u64().unwrap());
        close("low", low, row["low"].as_f64().unwrap(), 1e-12, 1e-9)?;
        close("high", high, row["high"].as_f64().unwrap(), 1e-12, 1e-9)
    });
}
