//! Large batches: several instances of a rule at the same time.

use std::path::Path;

use corver_core::{
    Backends, BoxError, Completion, CorpusInfo, Count, Counter, Query, Section, Sentence, Triplet,
};
use corver_rules::{LoadOptions, Rule};

/// Every sentence has a fact of its own; every second completion has two.
fn sentences(completions: usize) -> Vec<Vec<Sentence>> {
    let sentence = |completion, index| Sentence {
        text: "It is so.".into(),
        section: Section::Think,
        span: None,
        triplets: vec![Triplet {
            head: format!("Head{completion}"),
            relation: String::new(),
            tail: format!("Tail{index}"),
        }],
    };
    (0..completions).map(|i| (0..=i % 2).map(|index| sentence(i, index)).collect()).collect()
}

fn batch(sentences: &[Vec<Sentence>]) -> Vec<Completion<'_>> {
    sentences
        .iter()
        .map(|sentences| Completion { question: "", text: "", sentences, ..Completion::default() })
        .collect()
}

fn first() -> Rule {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins/dist/first.wasm");
    Rule::load(&path, LoadOptions::default()).unwrap()
}

fn answer(query: &Query) -> Count {
    let occurrences = query.to_string().bytes().map(u64::from).sum::<u64>() % 30;
    Count::exact(Some(occurrences))
}

struct Sums;

impl Counter for Sums {
    fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, BoxError> {
        Ok(queries.iter().map(answer).collect())
    }

    fn info(&self) -> CorpusInfo {
        CorpusInfo::default()
    }
}

#[test]
fn large_batch_verdicts_equal_single_completion_verdicts() {
    let rule = first();
    // More than wait at the same time on a machine with few cores.
    let sentences = sentences(3_200);
    let batch = batch(&sentences);
    let verdicts = rule.score(&batch, &mut Backends::counting(Sums)).unwrap();
    for (place, completion) in batch.iter().enumerate().step_by(97) {
        let alone = rule.score(&[*completion], &mut Backends::counting(Sums)).unwrap();
        assert_eq!(alone, [verdicts[place].clone()]);
    }
    assert!(verdicts.iter().flatten().all(|verdict| verdict.lookups.len() == 1));
}

/// A corpus that scores another batch for every request.
struct Nested<'a> {
    rule: &'a Rule,
    batch: &'a [Completion<'a>],
    depth: usize,
}

impl Counter for Nested<'_> {
    fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, BoxError> {
        let Self { rule, batch, depth } = *self;
        if depth > 0 {
            rule.score(batch, &mut Backends::counting(Nested { rule, batch, depth: depth - 1 }))?;
        }
        Ok(queries.iter().map(answer).collect())
    }

    fn info(&self) -> CorpusInfo {
        CorpusInfo::default()
    }
}

#[test]
fn too_many_nested_batches_report_busy_instances() {
    let rule = first();
    let sentences =
        sentences(1_000 * std::thread::available_parallelism().unwrap().get().max(16) / 4);
    let batch = batch(&sentences);
    rule.score(&batch, &mut Backends::counting(Nested { rule: &rule, batch: &batch, depth: 1 }))
        .unwrap();
    let error = rule
        .score(&batch, &mut Backends::counting(Nested { rule: &rule, batch: &batch, depth: 5 }))
        .unwrap_err();
    let mut cause: &dyn std::error::Error = &error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    let cause = cause.to_string();
    assert!(
        cause.contains("instances are in use") && cause.contains("score fewer large batches"),
        "{cause}"
    );
    // All of them are free again.
    rule.score(&batch, &mut Backends::counting(Sums)).unwrap();
}
