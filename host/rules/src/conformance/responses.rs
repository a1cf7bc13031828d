//! The same for response rules: whatever a completion looks like, it earns the same whenever and
//! with whomever it is graded.

use corver_core::split::split;
use corver_core::{Compatibility, Completion, Grade};
use serde::Serialize;

use super::NotConformant;
use super::oracle::Oracle;
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

/// What a rule made of the batch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ResponseConformance {
    /// Completions graded.
    pub completions: usize,
    /// Labels given, each once, in order.
    pub labels: Vec<String>,
    /// Smallest reward.
    pub lowest: f64,
    /// Largest reward.
    pub highest: f64,
}

impl ResponseRule {
    /// Grades a fixed batch of odd completions: all at once, again, in the opposite order and one
    /// by one. The grades must be the same.
    ///
    /// # Errors
    /// Where they are not, or the rule breaks its contract.
    pub fn conform(&self) -> Result<ResponseConformance, NotConformant> {
        conform(|completions| self.grade(completions, &mut Oracle::Exact.verifiers()))
    }
}

fn conform(
    grade: impl Fn(&[Completion<'_>]) -> Result<Vec<Grade>, RuleError>,
) -> Result<ResponseConformance, NotConformant> {
    let texts: Vec<String> = BEGINNINGS
        .iter()
        .flat_map(|start| ENDS.iter().map(move |end| format!("{start}{end}")))
        .flat_map(|text| [text.repeat(100), text])
        .collect();
    let splits: Vec<_> = texts.iter().map(|text| split(text, Compatibility::Paper)).collect();
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

    let grades = grade(&completions)?;
    let same = |when, completion: &Completion<'_>, first: &Grade, then: &Grade| {
        if first == then {
            return Ok(());
        }
        let shown = |graded: &Grade| format!("{:+} {}", graded.reward, graded.label);
        let text: String = completion.text.chars().take(80).collect();
        Err(NotConformant::Unsteady(format!(
            "the completion {text:?} is graded {}; {when} it is {}. A rule must decide from the \
             completion alone",
            shown(first),
            shown(then)
        )))
    };
    for (place, then) in grade(&completions)?.iter().enumerate() {
        same("graded again", &completions[place], &grades[place], then)?;
    }
    let reversed: Vec<Completion<'_>> = completions.iter().rev().copied().collect();
    for (place, then) in grade(&reversed)?.iter().rev().enumerate() {
        same("after other completions", &completions[place], &grades[place], then)?;
    }
    for (completion, first) in completions.iter().zip(&grades) {
        same(
            "without the other completions",
            completion,
            first,
            &grade(std::slice::from_ref(completion))?[0],
        )?;
    }

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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Whether the rule is found to decide otherwise then.
    fn is_unsteady(
        when: &str,
        grade: impl Fn(&[Completion<'_>]) -> Result<Vec<Grade>, RuleError>,
    ) -> bool {
        match conform(grade) {
            Err(NotConformant::Unsteady(message)) => message.contains(&format!("; {when} it is ")),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn state_and_neighbour_dependence_are_detected() {
        let calls = Cell::new(0);
        let with_memory = |completions: &[Completion<'_>]| {
            calls.set(calls.get() + 1);
            Ok(vec![Grade::new(f64::from(calls.get()), "X"); completions.len()])
        };
        assert!(is_unsteady("graded again", with_memory));
        let by_place = |completions: &[Completion<'_>]| {
            Ok((0..completions.len()).map(|place| Grade::new(place as f64, "X")).collect())
        };
        assert!(is_unsteady("after other completions", by_place));
        let by_size = |completions: &[Completion<'_>]| {
            Ok(vec![Grade::new(completions.len() as f64, "X"); completions.len()])
        };
        assert!(is_unsteady("without the other completions", by_size));
    }

    #[test]
    fn stateless_response_rule_conforms() {
        let by_golds = |completions: &[Completion<'_>]| {
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
