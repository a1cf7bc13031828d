//! The evaluation grader on completions as long as a reasoning model's: the bar is 10,000 in a
//! second.

use std::hint::black_box;
use std::time::Duration;

use corver_core::response::AnswerRule;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

const COMPLETIONS: usize = 10_000;

/// A completion of about 200 tokens and the aliases that TriviaQA has for its question. Half of the
/// answers are right.
fn completions() -> Vec<(String, Vec<String>)> {
    let sentence = "The Philadelphia Flyers joined the league in 1967 and won the Stanley Cup twice, in 1974 and 1975. ";
    let completion = |n: usize| {
        let answer = if n.is_multiple_of(2) {
            format!("the Flyers of town {n}.")
        } else {
            "I think it was Montréal".to_owned()
        };
        let golds = (0..10)
            .map(|alias| format!("The “Flyers” of Town {n}{}", ", PA".repeat(alias)))
            .collect();
        (format!("<think>{}</think><answer>{answer}</answer>", sentence.repeat(8)), golds)
    };
    (0..COMPLETIONS).map(completion).collect()
}

fn grading(criterion: &mut Criterion) {
    let completions = completions();
    let mut group = criterion.benchmark_group("grade");
    group
        .sample_size(10)
        .measurement_time(Duration::from_secs(10))
        .throughput(Throughput::Elements(COMPLETIONS as u64));
    group.bench_function("10000 completions, 10 aliases each", |bencher| {
        bencher.iter(|| {
            completions.iter().for_each(|(completion, golds)| {
                black_box(AnswerRule::default().grade(black_box(completion), golds));
            });
        });
    });
    group.finish();
}

criterion_group!(benches, grading);
criterion_main!(benches);
