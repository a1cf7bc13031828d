//! A cold start with a plain stand-in: what it is shown, and that an interrupted one ends where it
//! would have.

use std::path::Path;

use corver_core::{
    BoxError, Demonstration, Learner, Question, Rollout, Sampler, Sampling, Signal, TrainingBatch,
    UpdateReport,
};
use corver_runs::{RunDir, RunManifest};
use corver_settings::SftSettings;
use corver_train::sft::{SftError, SftPlan, SftSummary, sft};

/// Notes what it is shown.
#[derive(Default)]
struct Pupil(Vec<Vec<String>>);

impl Sampler for Pupil {
    fn sample(
        &mut self,
        _: &[Question],
        _: &Sampling,
        _: u64,
        _: &mut dyn FnMut(usize, &Rollout),
    ) -> Result<Vec<Rollout>, BoxError> {
        Err("a cold start samples nothing".into())
    }
}

impl Learner for Pupil {
    fn set_system_prompt(&mut self, _: &str) {}

    fn update(&mut self, _: &TrainingBatch<'_>, _: &Signal) -> Result<UpdateReport, BoxError> {
        Err("a cold start has no rewards".into())
    }

    fn imitate(&mut self, demonstrations: &[Demonstration]) -> Result<UpdateReport, BoxError> {
        self.0.push(demonstrations.iter().map(|one| one.question.clone()).collect());
        Ok(UpdateReport { loss: 1.0 / self.0.len() as f64, ..UpdateReport::default() })
    }

    fn save(&mut self, folder: &Path, _: usize) -> Result<(), BoxError> {
        std::fs::create_dir_all(folder.join(format!("step-{:06}", self.0.len())))?;
        Ok(())
    }
}

fn plan() -> SftPlan {
    let demonstration =
        |n: usize| Demonstration { question: n.to_string(), completion: "yes".into() };
    SftPlan {
        demonstrations: (0..5).map(demonstration).collect(),
        settings: SftSettings { epochs: 3, per_step: 4, ..SftSettings::default() },
        seed: 7,
        checkpoint_every: 2,
        checkpoints_kept: 9,
    }
}

fn whole(path: &Path) -> (Pupil, SftSummary) {
    let run = RunDir::create(path, "", &RunManifest::default()).unwrap();
    let mut pupil = Pupil::default();
    let summary = sft(&mut pupil, &plan(), &run, 0, &mut |_| true).unwrap();
    (pupil, summary)
}

#[test]
fn every_demonstration_is_shown_once_an_epoch() {
    let folder = tempfile::tempdir().unwrap();
    let (pupil, summary) = whole(&folder.path().join("run"));
    assert_eq!(pupil.0.iter().map(Vec::len).collect::<Vec<_>>(), [4, 4, 4, 3]);
    for epoch in pupil.0.concat().chunks(5) {
        let mut shown = epoch.to_vec();
        shown.sort();
        assert_eq!(shown, ["0", "1", "2", "3", "4"]);
    }
    assert_eq!(
        (summary.demonstrations, summary.steps, summary.loss_first, summary.loss_last),
        (5, 4, 1.0, 0.25)
    );
    let kept = |step: &str| folder.path().join("run/checkpoints").join(step).exists();
    assert!(!kept("step-000001") && kept("step-000002") && kept("step-000004"));
    assert!(folder.path().join("run/summary.json").exists());
}

#[test]
fn resumed_sft_shows_remaining_demonstrations() {
    let folder = tempfile::tempdir().unwrap();
    let (straight, expected) = whole(&folder.path().join("straight"));
    let run = RunDir::create(&folder.path().join("run"), "", &RunManifest::default()).unwrap();
    let mut pupil = Pupil::default();
    let mut steps = 0;
    let mut once = |_: &_| {
        steps += 1;
        steps < 3
    };
    let stopped = sft(&mut pupil, &plan(), &run, 0, &mut once).unwrap_err();
    assert!(matches!(stopped, SftError::Stopped { step: 3 }), "{stopped}");
    assert!(run.checkpoints().join("step-000003").exists());
    let summary = sft(&mut pupil, &plan(), &run, 3, &mut |_| true).unwrap();
    assert_eq!(pupil.0, straight.0);
    assert_eq!((summary.steps, summary.loss_first), (expected.steps, expected.loss_first));
}
