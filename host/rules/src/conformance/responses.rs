//! Conformance test of response rules: a grade must not depend on time or on the other completions
//! of the batch.

use corver_core::split::split;
use corver_core::{Backends, Completion, Grade, TextSettings};
use serde::Serialize;
use serde_json::json;

use super::oracle::Oracle;
use super::{ConformanceError, located};
use crate::{ResponseRule, RuleError};

/// Blocks that are closed, left open, doubled or missing, in any script.
const BEGINNINGS: [&str; 6] = [
    "",
    "<think>",
    "<think>Rome is the capital city of Italy. I read it.</think>",
    "Well. ",
    "<think></think>\n",
    "東京は日本の首都です。 ",
];
const ENDS: [&str; 8] = [
    "",
    "<answer>",
    "<answer>Rome</answer>",
    "<answer> The Rome! ",
    "<answer>I don\u{2019}t know</answer>",
    "Rome",
    "<answer>Rome</answer><answer>İ ß e\u{301}\u{202e}\0</answer>",
    "</think></answer>",
];

/// Result of a response rule's conformance test.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ResponseConformance {
    /// Number of completions graded.
    pub completions: usize,
    /// Labels of the grades, each once, sorted.
    pub labels: Vec<String>,
    /// Smallest reward of a grade.
    pub lowest: f64,
    /// Largest reward of a grade.
    pub highest: f64,
}

impl ResponseRule {
    /// Grades a fixed batch of unusual completions: together, again, in the opposite order and one
    /// by one. The grades must be equal. With a corpus that stops counting at the limit of a query,
    /// rewards and labels must be equal. With one of unknown size, grades may differ, but must
    /// satisfy the contract.
    ///
    /// # Errors
    /// Fails if the grades differ, or the rule breaks its contract or a limit.
    pub fn conform(&self) -> Result<ResponseConformance, ConformanceError> {
        conform(|completions, backends| self.grade(completions, backends))
    }
}

fn conform(
    grade: impl Fn(&[Completion<'_>], &mut Backends<'_>) -> Result<Vec<Grade>, RuleError>,
) -> Result<ResponseConformance, ConformanceError> {
    let texts: Vec<String> = BEGINNINGS
        .iter()
        .flat_map(|start| ENDS.iter().map(move |end| format!("{start}{end}")))
        .flat_map(|text| [text.repeat(100), text])
        .collect();
    let splits: Vec<_> = texts.iter().map(|text| split(text, TextSettings::default())).collect();
    let golds = [
        vec!["Rome".to_owned()],
        vec![String::new(), "the".to_owned(), "Roma".to_owned()],
        Vec::new(),
    ];
    let completions: Vec<Completion<'_>> = texts
        .iter()
        .zip(&splits)
        .zip(golds.iter().cycle())
        .map(|((text, split), golds)| Completion {
            question: "What is the capital of Italy?",
            golds,
            text,
            sentences: &split.sentences,
            ..Completion::default()
        })
        .collect();

    let grade_with = |batch: &[Completion<'_>], oracle: Oracle| {
        grade(batch, &mut oracle.backends()).map_err(|error| {
            let grade_alone = |single: &[Completion<'_>]| grade(single, &mut oracle.backends());
            located(error, batch, grade_alone, completion_line)
        })
    };
    let grades = grade_with(&completions, Oracle::Exact)?;
    let inconsistent = |when, completion: &Completion<'_>, first: &Grade, then: &Grade| {
        let text: String = completion.text.chars().take(80).collect();
        Err(ConformanceError::Inconsistent(format!(
            "the completion {text:?} is graded {:+} {}; {when} it is {:+} {}. A rule must decide \
             from the completion and its counts alone",
            first.reward, first.label, then.reward, then.label
        )))
    };
    let check_same = |when, completion: &Completion<'_>, first: &Grade, then: &Grade| {
        if first == then { Ok(()) } else { inconsistent(when, completion, first, then) }
    };
    for (index, then) in grade_with(&completions, Oracle::Exact)?.iter().enumerate() {
        check_same("graded again", &completions[index], &grades[index], then)?;
    }
    let reversed: Vec<Completion<'_>> = completions.iter().rev().copied().collect();
    for (index, then) in grade_with(&reversed, Oracle::Exact)?.iter().rev().enumerate() {
        check_same("after other completions", &completions[index], &grades[index], then)?;
    }
    for (completion, first) in completions.iter().zip(&grades) {
        check_same(
            "without the other completions",
            completion,
            first,
            &grade_with(std::slice::from_ref(completion), Oracle::Exact)?[0],
        )?;
    }
    for (index, then) in grade_with(&completions, Oracle::Stopping)?.iter().enumerate() {
        let first = &grades[index];
        // The note may have the count, which is another one here.
        if then.reward != first.reward || then.label != first.label {
            inconsistent("if counting stops at the limit", &completions[index], first, then)?;
        }
    }
    grade_with(&completions, Oracle::OfUnknownSize)?;

    let mut labels: Vec<String> = grades.iter().map(|graded| graded.label.clone()).collect();
    labels.sort_unstable();
    labels.dedup();
    let rewards = || grades.iter().map(|graded| graded.reward);
    Ok(ResponseConformance {
        completions: grades.len(),
        labels,
        lowest: rewards().fold(f64::INFINITY, f64::min),
        highest: rewards().fold(f64::NEG_INFINITY, f64::max),
    })
}

/// Returns a completion as `corver-host plugin run` reads it.
fn completion_line(completion: &Completion<'_>) -> String {
    let Completion { question, golds, text, .. } = completion;
    json!({"question": question, "answers": golds, "completion": text}).to_string()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use corver_core::Query;

    use super::*;

    /// Returns true if the test reports that the rule decides differently in this case.
    fn is_inconsistent(
        when: &str,
        grade: impl Fn(&[Completion<'_>], &mut Backends<'_>) -> Result<Vec<Grade>, RuleError>,
    ) -> bool {
        match conform(grade) {
            Err(ConformanceError::Inconsistent(message)) => {
                message.contains(&format!("; {when} it is "))
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn state_and_neighbour_dependence_are_detected() {
        let calls = Cell::new(0);
        let with_memory = |completions: &[Completion<'_>], _: &mut Backends<'_>| {
            calls.set(calls.get() + 1);
            Ok(vec![Grade::new(f64::from(calls.get()), "X"); completions.len()])
        };
        assert!(is_inconsistent("graded again", with_memory));
        let by_position = |completions: &[Completion<'_>], _: &mut Backends<'_>| {
            Ok((0..completions.len()).map(|index| Grade::new(index as f64, "X")).collect())
        };
        assert!(is_inconsistent("after other completions", by_position));
        let by_size = |completions: &[Completion<'_>], _: &mut Backends<'_>| {
            Ok(vec![Grade::new(completions.len() as f64, "X"); completions.len()])
        };
        assert!(is_inconsistent("without the other completions", by_size));
    }

    #[test]
    fn too_small_limit_is_detected() {
        let hasty = |completions: &[Completion<'_>], backends: &mut Backends<'_>| {
            let mut grades = Vec::new();
            for completion in completions {
                let query = Query::new([[completion.text]]).with_limit(Some(5));
                let count = backends.count(&[query]).unwrap()[0].occurrences.unwrap_or(0);
                grades.push(Grade::new(count as f64, "X"));
            }
            Ok(grades)
        };
        assert!(is_inconsistent("if counting stops at the limit", hasty));
    }

    #[test]
    fn rule_requiring_corpus_size_is_detected() {
        let needs_size = |completions: &[Completion<'_>], backends: &mut Backends<'_>| {
            if backends.info().tokens.is_none() {
                return Err(RuleError::Backend { plugin: "a".into(), source: "no size".into() });
            }
            Ok(vec![Grade::new(0.0, "X"); completions.len()])
        };
        assert!(matches!(conform(needs_size), Err(ConformanceError::Rule(_))));
    }

    #[test]
    fn first_completion_that_fails_alone_is_shown() {
        let broken = |completions: &[Completion<'_>], _: &mut Backends<'_>| {
            if completions.iter().any(|completion| completion.text == "東京は日本の首都です。 Rome")
            {
                let message = format!("breaks in a batch of {}", completions.len());
                return Err(RuleError::Broken(message));
            }
            Ok(vec![Grade::new(0.0, "X"); completions.len()])
        };
        let message = conform(broken).unwrap_err().to_string();
        assert!(message.starts_with("breaks in a batch of 1; this is the completion: "));
        assert!(message.contains(r#""completion":"東京は日本の首都です。 Rome""#), "{message}");
    }

    #[test]
    fn stateless_response_rule_conforms() {
        let by_golds = |completions: &[Completion<'_>], _: &mut Backends<'_>| {
            let grade =
                |completion: &Completion<'_>| Grade::new(completion.golds.len() as f64, "X");
            Ok(completions.iter().map(grade).collect())
        };
        let conformance = conform(by_golds).unwrap();
        assert_eq!(
            (conformance.lowest, conformance.highest, conformance.completions),
            (0.0, 3.0, 96)
        );
        assert_eq!(conformance.labels, ["X"]);
    }
}
