//! Runs that tests make up.

use std::fmt::Write as _;
use std::fs;

use corver_core::response::Grade;
use corver_core::split::split;
use corver_core::{ResponseGrades, SentenceTrace, SentenceVerdict, TextSettings, Trace};
use serde_json::json;
use tempfile::TempDir;

/// A completion whose sentences all earned 0.1, and that was judged right.
pub fn trace(question: &str, completion: &str, mean_return: f64) -> Trace {
    let sentence = |sentence: corver_core::Sentence| SentenceTrace {
        text: sentence.text,
        section: sentence.section,
        triplets: Vec::new(),
        verdict: Some(SentenceVerdict {
            reward: Some(0.1),
            count: Some(34),
            ..SentenceVerdict::default()
        }),
        tokens: sentence.span,
    };
    Trace {
        question: question.into(),
        completion: completion.into(),
        response: ResponseGrades { judge: Grade::new(2.0, "GOOD"), format: Grade::new(1.0, "OK") },
        alignment_rate: 1.0,
        fallback: false,
        sentences: split(completion, TextSettings::default())
            .sentences
            .into_iter()
            .map(sentence)
            .collect(),
        mean_return,
    }
}

/// A run that has taken some steps with these completions, and has not finished.
pub fn run_folder(steps: usize, completions: impl Fn(usize) -> Vec<Trace>) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write(
        "config.toml",
        "run = { seed = 7, steps = 9 }\nrule.plugin = \"first.wasm\"\nrollout.num_generations = 2\n",
    );
    write("manifest.json", "{\"seed\": \"7\", \"plugin\": \"0123\"}");
    let (mut metrics, mut traces) = (String::new(), String::new());
    for step in 1..=steps {
        let line = json!({
            "step": step, "reward": step, "completions/mean_length": 20.0, "rewards/first/mean": 0.1, "rewards/judge/mean": 2.0,
            "seconds/rollout": 1.0, "step_time": 2.0,
        });
        writeln!(metrics, "{line}").unwrap();
        for trace in completions(step) {
            writeln!(traces, "{}", json!({"step": step, "trace": trace})).unwrap();
        }
    }
    write("metrics.jsonl", &metrics);
    write("traces.jsonl", &traces);
    folder
}
