//! Large batches: several instances of a rule at the same time.

use std::path::Path;

use corver_core::{Count, Counter, PartError, Query, RuleSentence, Section, Triplet, Verdict};
use corver_rules::{LoadOptions, Rule};

/// Every sentence has a fact of its own, every second completion a neighbour.
fn sentences(completions: u32) -> Vec<RuleSentence> {
    let places = (0..completions).flat_map(|completion| (0..=completion % 2).map(move |index| (completion, index)));
    places
        .map(|(completion, index)| RuleSentence {
            completion,
            index,
            text: "It is so.".into(),
            section: Section::Think,
            triplets: vec![Triplet {
                head: format!("Head{completion}"),
                relation: String::new(),
                tail: format!("Tail{index}"),
            }],
        })
        .collect()
}

fn first() -> Rule {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins/dist/first.wasm");
    Rule::load(&path, LoadOptions::default()).unwrap()
}

fn answer(query: &Query) -> Count {
    let occurrences = query.to_string().bytes().map(u64::from).sum::<u64>() % 30;
    Count { query: query.clone(), occurrences: Some(occurrences), exact: true }
}

struct Sums;

impl Counter for Sums {
    fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, PartError> {
        Ok(queries.iter().map(answer).collect())
    }
}

#[test]
fn a_large_batch_is_judged_as_its_completions_are_alone() {
    let rule = first();
    // More than wait at the same time on a machine with few cores.
    let batch = sentences(3_200);
    let verdicts = rule.judge(&batch, &mut Sums).unwrap();
    let alone = batch.chunk_by(|a, b| a.completion == b.completion).step_by(97);
    let mut judged = 0;
    for completion in alone {
        let start = batch.iter().position(|sentence| sentence == &completion[0]).unwrap();
        let expected: Vec<Verdict> = rule.judge(completion, &mut Sums).unwrap();
        assert_eq!(verdicts[start..][..completion.len()], expected);
        judged += completion.len();
    }
    assert_eq!(judged, 49);
    assert!(verdicts.iter().all(|verdict| verdict.counts.len() == 1));
}

/// An index that judges a batch of its own whenever it is asked.
struct Nested<'a> {
    rule: &'a Rule,
    batch: &'a [RuleSentence],
    depth: usize,
}

impl Counter for Nested<'_> {
    fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, PartError> {
        let Self { rule, batch, depth } = *self;
        if depth > 0 {
            rule.judge(batch, &mut Nested { rule, batch, depth: depth - 1 })?;
        }
        Ok(queries.iter().map(answer).collect())
    }
}

#[test]
fn too_many_batches_at_once_are_told_from_a_broken_rule() {
    let rule = first();
    let batch = sentences(1_000 * std::thread::available_parallelism().unwrap().get().max(16) as u32 / 4);
    rule.judge(&batch, &mut Nested { rule: &rule, batch: &batch, depth: 1 }).unwrap();
    let error = rule.judge(&batch, &mut Nested { rule: &rule, batch: &batch, depth: 5 }).unwrap_err();
    let mut cause: &dyn std::error::Error = &error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    let cause = cause.to_string();
    assert!(cause.contains("instances are at work") && cause.contains("judge fewer large batches"), "{cause}");
    // All of them are free again.
    rule.judge(&batch, &mut Sums).unwrap();
}
