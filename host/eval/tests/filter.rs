//! The learning-zone filter with a stand-in for the policy: what it keeps, and that it goes on
//! where it was broken off.

use std::fs;
use std::path::Path;

use corver_core::{BoxError, Question, Rollout, Sampler, Sampling, TextSettings};
use corver_data::read_questions;
use corver_eval::filter::{ANSWERED, RETAINED};
use corver_eval::{FilterError, FilterPlan, FilterSummary, filter};
use corver_runs::{RunDir, RunManifest};
use corver_settings::FilterSettings;

/// Knows the answer to question `n` in `n` of ten samples, and which ten depends on the seed.
#[derive(Default)]
struct Pupil {
    calls_left: Option<usize>,
}

impl Sampler for Pupil {
    fn sample(
        &mut self,
        questions: &[Question],
        sampling: &Sampling,
        seed: u64,
        _: &mut dyn FnMut(usize, &Rollout),
    ) -> Result<Vec<Rollout>, BoxError> {
        if let Some(left) = &mut self.calls_left {
            *left = left.checked_sub(1).ok_or("the power went out")?;
        }
        let rollout = |index: usize| {
            let question = index / sampling.num_generations;
            let skill: u64 = questions[question].question.parse().unwrap();
            let right = (index as u64 % 10 * 7 + seed % 3) % 10 < skill;
            let text = format!(
                "<think>So.</think><answer>{}</answer>",
                if right { "AC;DC" } else { "Rome" }
            );
            Rollout {
                question,
                text,
                tokens: Vec::new(),
                log_probs: Vec::new(),
                token_spans: Vec::new(),
                finished: true,
            }
        };
        Ok((0..questions.len() * sampling.num_generations).map(rollout).collect())
    }
}

fn questions() -> Vec<Question> {
    let question = |skill: usize| Question {
        question: skill.to_string(),
        golds: vec!["AC;DC".into(), "acdc".into()],
        title: (skill == 5).then(|| "Music".into()),
        popularity: (skill == 5).then_some(12),
        ..Question::default()
    };
    [0, 1, 5, 9, 10, 10, 10].map(question).to_vec()
}

fn plan(anchors: usize) -> FilterPlan {
    let settings =
        FilterSettings { num_generations: 10, anchors, batch: 2, ..FilterSettings::default() };
    FilterPlan {
        settings,
        sampling: settings.sampling(Sampling::default()),
        text: TextSettings::default(),
        seed: 7,
    }
}

fn run(folder: &Path, pupil: &mut Pupil, plan: &FilterPlan) -> Result<FilterSummary, FilterError> {
    let manifest = RunManifest::default();
    let run = RunDir::resume(folder, &manifest)
        .or_else(|_| RunDir::create(folder, "", &manifest))
        .unwrap();
    filter(pupil, &questions(), plan, &run, &mut |_| {})
}

#[test]
fn filtered_questions_are_readable_for_training() {
    let folder = tempfile::tempdir().unwrap();
    let filtered = run(folder.path(), &mut Pupil::default(), &plan(2)).unwrap();
    assert_eq!((filtered.questions, filtered.retained, filtered.anchors), (7, 5, 2));
    assert_eq!(filtered.by_num_correct, [1, 1, 0, 0, 0, 1, 0, 0, 0, 1, 3]);
    let retained = read_questions(&folder.path().join(RETAINED)).unwrap();
    assert_eq!(
        retained.iter().map(|question| question.question.as_str()).collect::<Vec<_>>(),
        ["1", "5", "9", "10", "10"]
    );
    assert_eq!(retained[1], questions()[2], "all that is known of a question survives");
}

#[test]
fn resumed_filter_matches_uninterrupted_filter() {
    let (whole, broken) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    run(whole.path(), &mut Pupil::default(), &plan(1)).unwrap();

    let error = run(broken.path(), &mut Pupil { calls_left: Some(2) }, &plan(1)).unwrap_err();
    assert!(error.to_string().contains("number 5"), "{error}");
    // Killed in the third batch: one line of two, and a torn one.
    let log = broken.path().join(ANSWERED);
    let torn = fs::read_to_string(&log).unwrap()
        + "{\"step\":5,\"question\":\"10\",\"num_correct\":0,\"zone\":\"zero\"}\n{\"step\":6,\"qu";
    fs::write(&log, torn).unwrap();
    assert!(!broken.path().join("summary.json").exists());
    run(broken.path(), &mut Pupil { calls_left: Some(2) }, &plan(1)).unwrap();
    for name in [ANSWERED, RETAINED, "summary.json"] {
        let [whole, broken] =
            [&whole, &broken].map(|folder| fs::read_to_string(folder.path().join(name)).unwrap());
        assert_eq!(whole, broken, "{name}");
    }

    let again = run(broken.path(), &mut Pupil { calls_left: Some(0) }, &plan(3)).unwrap();
    assert_eq!(
        (again.retained, again.anchors),
        (6, 3),
        "nothing is sampled again for another choice"
    );
}
