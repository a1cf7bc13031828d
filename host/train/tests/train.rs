//! A whole run with plain stand-ins: what it leaves behind, and that an interrupted run ends where
//! it would have.

use std::cell::Cell;
use std::path::Path;
use std::sync::Mutex;

use corver_core::{
    Backends, BoxError, ChatModel, ChatPrompt, ChatReply, ChatRole, Completion, Demonstration,
    Entailment, Extractor, ExtractorInput, Graders, Learner, Message, NliModel, NliPair, Question,
    Rollout, Sampler, Sampling, Scorers, SentenceScorer, SentenceVerdict, Signal, StepError,
    StepSettings, TrainingBatch, Triplet, UpdateReport, Usage,
};
use corver_data::Curriculum;
use corver_eval::Evaluation;
use corver_runs::{RunDir, RunManifest};
use corver_settings::{ChatPrices, PriceSection};
use corver_train::{
    Observer, QueryCounts, RewardNames, RunSummary, SystemPrompts, TrainError, TrainPlan, train,
};
use serde_json::{Map, Value};

/// Answers right with a share of its samples that grows with every update.
#[derive(Default)]
struct Pupil {
    skill: u64,
    prompt: String,
    fail_at: Option<u64>,
    away_at: Option<u64>,
    unprepared_at: Option<u64>,
}

impl Sampler for Pupil {
    fn sample(
        &mut self,
        questions: &[Question],
        sampling: &Sampling,
        seed: u64,
        on_finished: &mut dyn FnMut(usize, &Rollout),
    ) -> Result<Vec<Rollout>, BoxError> {
        if self.away_at == Some(self.skill) {
            return Err("the server is away".into());
        }
        let rollout = |index: usize| {
            let right = (index as u64 * 7 + seed % 5) % 10 < self.skill + 2;
            let word = if right { "Paris" } else { "Rome" };
            let text = format!(
                "<think>{word} is the capital city of that country.</think><answer>{word}</answer>"
            );
            let length = text.chars().count();
            Rollout {
                question: index / sampling.num_generations,
                tokens: vec![1; length],
                log_probs: vec![0.0; length],
                token_spans: (0..length).map(|at| Some(at..at + 1)).collect(),
                text,
                finished: true,
            }
        };
        let rollouts: Vec<Rollout> =
            (0..questions.len() * sampling.num_generations).map(rollout).collect();
        for (index, rollout) in rollouts.iter().enumerate() {
            on_finished(index, rollout);
        }
        Ok(rollouts)
    }
}

impl Learner for Pupil {
    fn prepare(&mut self, _: &TrainingBatch<'_>) -> Result<Option<Vec<Vec<f64>>>, BoxError> {
        if self.unprepared_at == Some(self.skill) {
            return Err("the reference does not fit".into());
        }
        Ok(None)
    }

    fn update(&mut self, batch: &TrainingBatch<'_>, _: &Signal) -> Result<UpdateReport, BoxError> {
        if self.fail_at == Some(self.skill) {
            return Err("the power went out".into());
        }
        self.skill += 1;
        let right = batch.rollouts.iter().filter(|rollout| rollout.text.contains("Paris")).count();
        Ok(UpdateReport { loss: right as f64, ..UpdateReport::default() })
    }

    fn imitate(&mut self, _: &[Demonstration]) -> Result<UpdateReport, BoxError> {
        Err("a run has no demonstrations".into())
    }

    fn set_system_prompt(&mut self, prompt: &str) {
        prompt.clone_into(&mut self.prompt);
    }

    fn save(&mut self, folder: &Path, _: usize) -> Result<(), BoxError> {
        std::fs::create_dir_all(folder)?;
        Ok(std::fs::write(folder.join(self.skill.to_string()), "")?)
    }
}

struct Nothing;

impl Extractor for Nothing {
    fn extract(&mut self, inputs: &[ExtractorInput<'_>]) -> Result<Vec<Vec<Triplet>>, BoxError> {
        Ok(vec![Vec::new(); inputs.len()])
    }
}

impl NliModel for Nothing {
    fn entail(&mut self, pairs: &[NliPair]) -> Result<Vec<Entailment>, BoxError> {
        Ok(vec![Entailment { entail: 0.5, neutral: None, contradict: None }; pairs.len()])
    }
}

/// Asks about every completion, and pays all alike.
impl SentenceScorer for Nothing {
    fn score(
        &mut self,
        completions: &[Completion<'_>],
        backends: &mut Backends<'_>,
    ) -> Result<Vec<Vec<SentenceVerdict>>, BoxError> {
        let pair = |completion: &Completion<'_>| NliPair {
            premise: String::new(),
            hypothesis: completion.text.to_owned(),
        };
        backends.entail(&completions.iter().map(pair).collect::<Vec<_>>())?;
        let verdict =
            SentenceVerdict { reward: Some(0.1), count: Some(30), ..SentenceVerdict::default() };
        Ok(completions
            .iter()
            .map(|completion| vec![verdict.clone(); completion.sentences.len()])
            .collect())
    }
}

/// Sends a prompt for every completion, and pays all alike.
struct Asks;

impl SentenceScorer for Asks {
    fn score(
        &mut self,
        completions: &[Completion<'_>],
        backends: &mut Backends<'_>,
    ) -> Result<Vec<Vec<SentenceVerdict>>, BoxError> {
        let mut prompts = Vec::new();
        for completion in completions {
            let content = completion.text.to_owned();
            prompts.push(ChatPrompt {
                messages: vec![Message { role: ChatRole::User, content }],
                temperature: 0.0,
                top_p: 1.0,
                max_tokens: 1,
                seed: None,
            });
        }
        backends.reply(&prompts)?;
        Nothing.score(completions, backends)
    }
}

/// A chat model whose replies use ten and one tokens each.
struct Chat<'a> {
    /// Usage of earlier processes.
    prior: &'a Mutex<Usage>,
}

impl ChatModel for Chat<'_> {
    fn reply(&mut self, prompts: &[ChatPrompt]) -> Result<Vec<ChatReply>, BoxError> {
        let usage = Usage { prompt_tokens: 10, completion_tokens: 1 };
        Ok(vec![ChatReply { content: String::new(), usage }; prompts.len()])
    }

    fn add_prior_usage(&mut self, usage: Usage) {
        let mut prior = self.prior.lock().unwrap();
        *prior = prior.plus(usage);
    }
}

#[derive(Debug, Default)]
struct Listener {
    steps: Vec<f64>,
    evaluated: Vec<&'static str>,
    warnings: Vec<String>,
    stop_after: Option<usize>,
    /// Number of the call of `should_stop` that sees an interrupt.
    stop_at_call: Option<usize>,
    calls: Cell<usize>,
}

impl Observer for Listener {
    fn on_eval_progress(&mut self, done: usize, total: usize) {
        assert!(done <= total);
    }

    fn on_eval_end(&mut self, when: &'static str, _: &Evaluation) {
        self.evaluated.push(when);
    }

    fn on_warning(&mut self, warning: &str) {
        self.warnings.push(warning.to_owned());
    }

    fn should_stop(&self) -> bool {
        self.calls.set(self.calls.get() + 1);
        self.stop_after == Some(self.steps.len()) || self.stop_at_call == Some(self.calls.get())
    }

    fn on_step_end(&mut self, metrics: &Map<String, Value>, _: usize) {
        self.steps.push(metrics["step"].as_f64().unwrap());
    }
}

fn plan(steps: usize) -> TrainPlan {
    let question = |n: usize| Question {
        question: format!("q{n}"),
        golds: vec!["Paris".into()],
        ..Question::default()
    };
    TrainPlan {
        train: Curriculum::single_phase((0..5).map(question).collect()),
        eval: (0..4).map(question).collect(),
        steps,
        prompts_per_step: 2,
        seed: 42,
        step: StepSettings {
            sampling: Sampling { num_generations: 4, ..Sampling::default() },
            ..Default::default()
        },
        facts: None,
        evaluate: Default::default(),
        prompts: SystemPrompts {
            train: "t".into(),
            eval_before: "r".into(),
            eval_after: "e".into(),
        },
        checkpoint_every: 2,
        checkpoints_kept: 9,
        rewards: RewardNames { rule: "attested".into(), ..RewardNames::default() },
        prices: PriceSection { nli: 0.5, ..PriceSection::default() },
        chat_prices: ChatPrices::default(),
    }
}

fn go(
    pupil: &mut Pupil,
    run: &RunDir,
    from: usize,
    listener: &mut Listener,
) -> Result<RunSummary, TrainError> {
    let (mut extractor, mut backends, mut rules) =
        (Nothing, Backends::default().with_nli(Nothing), Nothing);
    let mut graders = Graders::default();
    let mut scorers = Scorers {
        extractor: &mut extractor,
        backends: &mut backends,
        sentence_scorer: &mut rules,
        graders: &mut graders,
    };
    train(pupil, &mut scorers, &plan(6), run, from, listener)
}

/// Does the same with prompts to a chat model, and returns the usage that it is told of.
fn go_with_chat(
    pupil: &mut Pupil,
    run: &RunDir,
    from: usize,
) -> (Result<RunSummary, TrainError>, Usage) {
    let prior = Mutex::default();
    let mut extractor = Nothing;
    let mut backends = Backends::default().with_nli(Nothing).with_chat(Chat { prior: &prior });
    let mut rules = Asks;
    let mut graders = Graders::default();
    let mut scorers = Scorers {
        extractor: &mut extractor,
        backends: &mut backends,
        sentence_scorer: &mut rules,
        graders: &mut graders,
    };
    let result = train(pupil, &mut scorers, &plan(6), run, from, &mut Listener::default());
    let usage = *prior.lock().unwrap();
    (result, usage)
}

fn without_times(path: &Path) -> Vec<Map<String, Value>> {
    let text = std::fs::read_to_string(path).unwrap();
    let parse = |line: &str| {
        let mut metrics: Map<String, Value> = serde_json::from_str(line).unwrap();
        metrics.retain(|name, _| !name.contains("seconds") && name != "step_time");
        metrics
    };
    text.lines().map(parse).collect()
}

#[test]
fn finished_run_writes_all_outputs() {
    let folder = tempfile::tempdir().unwrap();
    let run = RunDir::create(folder.path(), "", &RunManifest::default()).unwrap();
    let mut listener = Listener::default();
    let summary = go(&mut Pupil::default(), &run, 0, &mut listener).unwrap();

    assert_eq!(listener.steps, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!(listener.evaluated, ["before", "after"]);
    assert_eq!((summary.steps, summary.rewards.rule.as_str()), (6, "attested"));
    let [before, after] = [&summary.before, &summary.after].map(|one| one.as_ref().unwrap());
    assert!(after.accuracy > before.accuracy, "{summary:?}");
    assert_eq!(after.supported_rate, Some(1.0));
    // Two questions with four completions each; the questions of the evaluations are no step's.
    assert_eq!(summary.queries_per_step, QueryCounts { nli: 8.0, ..QueryCounts::default() });
    assert_eq!(summary.cost_per_step, 0.004);
    let kept: RunSummary = run.read_json("summary.json").unwrap().unwrap();
    assert_eq!(kept, summary);
    assert_eq!(run.read_lines::<Value>("traces.jsonl").unwrap().len(), 6 * 2 * 4);
    let metrics = run.read_lines::<Map<String, Value>>("metrics.jsonl").unwrap();
    for name in [
        "loss",
        "reward",
        "rewards/attested/mean",
        "completions/mean_length",
        "frac_reward_zero_std",
    ] {
        assert!(metrics[0].contains_key(name), "no {name}");
    }
    assert!(run.checkpoints().join("2").exists() && run.checkpoints().join("6").exists());
}

#[test]
fn resume_after_failure_matches_uninterrupted_run() {
    let straight = tempfile::tempdir().unwrap();
    let run = RunDir::create(straight.path(), "", &RunManifest::default()).unwrap();
    let expected = go(&mut Pupil::default(), &run, 0, &mut Listener::default()).unwrap();

    let broken = tempfile::tempdir().unwrap();
    let run = RunDir::create(broken.path(), "", &RunManifest::default()).unwrap();
    let mut pupil = Pupil { fail_at: Some(3), ..Pupil::default() };
    let error = go(&mut pupil, &run, 0, &mut Listener::default()).unwrap_err();
    assert!(matches!(error, TrainError::Step { step: 4, .. }), "{error}");
    assert!(!broken.path().join("summary.json").exists());
    drop(run); // a process that was killed holds no lock

    // The newest checkpoint is that of step 2; step 3 is logged, and taken again.
    let run = RunDir::resume(broken.path(), &RunManifest::default()).unwrap();
    let mut listener = Listener::default();
    let summary = go(&mut Pupil { skill: 2, ..Pupil::default() }, &run, 2, &mut listener).unwrap();
    assert_eq!(listener.steps, [3.0, 4.0, 5.0, 6.0]);
    assert_eq!(
        listener.evaluated,
        ["after"],
        "the evaluation before training was finished before the interruption"
    );
    assert_eq!(
        without_times(&broken.path().join("metrics.jsonl")),
        without_times(&straight.path().join("metrics.jsonl"))
    );
    assert_eq!((summary.before, summary.after), (expected.before, expected.after));
    assert_eq!(
        (summary.queries_per_step, summary.cost_per_step),
        (expected.queries_per_step, expected.cost_per_step)
    );
}

#[test]
fn steps_that_are_taken_again_are_no_prior_usage() {
    let folder = tempfile::tempdir().unwrap();
    let run = RunDir::create(folder.path(), "", &RunManifest::default()).unwrap();
    let mut pupil = Pupil { fail_at: Some(3), ..Pupil::default() };
    let (failed, before) = go_with_chat(&mut pupil, &run, 0);
    assert!(matches!(failed, Err(TrainError::Step { step: 4, .. })), "{failed:?}");
    assert_eq!(before, Usage::default());
    drop(run);

    // Step 3 is logged. The cached replies to its eight prompts are charged when it is repeated.
    let resumed = RunDir::resume(folder.path(), &RunManifest::default()).unwrap();
    let mut same_pupil = Pupil { skill: 2, ..Pupil::default() };
    let (finished, usage) = go_with_chat(&mut same_pupil, &resumed, 2);
    assert_eq!(finished.unwrap().queries_per_step.prompt_tokens, 80.0);
    assert_eq!(usage, Usage { prompt_tokens: 160, completion_tokens: 16 });
}

#[test]
fn unreachable_engine_checkpoints_last_step() {
    let folder = tempfile::tempdir().unwrap();
    let run = RunDir::create(folder.path(), "", &RunManifest::default()).unwrap();
    let mut pupil = Pupil { away_at: Some(3), ..Pupil::default() };
    let error = go(&mut pupil, &run, 0, &mut Listener::default()).unwrap_err();
    assert!(
        matches!(error, TrainError::Step { step: 4, source: StepError::Rollout(_) }),
        "{error}"
    );
    assert!(run.checkpoints().join("3").exists(), "step 3 is no multiple of `checkpoint_every`");
}

#[test]
fn failed_preparation_checkpoints_last_step() {
    let folder = tempfile::tempdir().unwrap();
    let run = RunDir::create(folder.path(), "", &RunManifest::default()).unwrap();
    let mut pupil = Pupil { unprepared_at: Some(3), ..Pupil::default() };
    let error = go(&mut pupil, &run, 0, &mut Listener::default()).unwrap_err();
    assert!(
        matches!(error, TrainError::Step { step: 4, source: StepError::Prepare(_) }),
        "{error}"
    );
    assert!(run.checkpoints().join("3").exists(), "step 3 is no multiple of `checkpoint_every`");
}

#[test]
fn interrupt_does_not_hide_failed_update() {
    let folder = tempfile::tempdir().unwrap();
    let run = RunDir::create(folder.path(), "", &RunManifest::default()).unwrap();
    let mut pupil = Pupil { fail_at: Some(3), ..Pupil::default() };
    // Each finished step is a call, so the interrupt comes during step 4.
    let mut listener = Listener { stop_at_call: Some(4), ..Listener::default() };
    let error = go(&mut pupil, &run, 0, &mut listener).unwrap_err();
    assert!(matches!(error, TrainError::Step { step: 4, source: StepError::Update(_) }), "{error}");
    assert!(!run.checkpoints().join("3").exists(), "the update may have changed the policy");
}

#[test]
fn stopped_run_checkpoints_last_step() {
    let folder = tempfile::tempdir().unwrap();
    let run = RunDir::create(folder.path(), "", &RunManifest::default()).unwrap();
    let mut listener = Listener { stop_after: Some(3), ..Listener::default() };
    let error = go(&mut Pupil::default(), &run, 0, &mut listener).unwrap_err();
    assert!(matches!(error, TrainError::Stopped { step: 3 }), "{error}");
    assert!(run.checkpoints().join("3").exists(), "step 3 is no multiple of `checkpoint_every`");
    assert!(!folder.path().join("summary.json").exists());
}

/// The line that a full disk or a kill left can end at any byte.
#[test]
fn log_cut_at_any_byte_resumes_identically() {
    let straight = tempfile::tempdir().unwrap();
    let run = RunDir::create(straight.path(), "", &RunManifest::default()).unwrap();
    let expected = go(&mut Pupil::default(), &run, 0, &mut Listener::default()).unwrap();
    drop(run);
    let path = straight.path().join("metrics.jsonl");
    let log = std::fs::read_to_string(&path).unwrap();
    let end_of_step_2 = log.match_indices('\n').nth(1).unwrap().0 + 1;
    let end_of_step_3 = log.match_indices('\n').nth(2).unwrap().0 + 1;
    for length in (end_of_step_2..=end_of_step_3).step_by(97) {
        std::fs::write(&path, &log[..length]).unwrap();
        std::fs::remove_file(straight.path().join("summary.json")).unwrap();
        let run = RunDir::resume(straight.path(), &RunManifest::default()).unwrap();
        let mut pupil = Pupil { skill: 2, ..Pupil::default() };
        let summary = go(&mut pupil, &run, 2, &mut Listener::default()).unwrap();
        assert_eq!((summary.steps, &summary.after), (6, &expected.after), "{length}");
    }
    std::fs::write(&path, &log[..end_of_step_2 - 1]).unwrap();
    let run = RunDir::resume(straight.path(), &RunManifest::default()).unwrap();
    let mut pupil = Pupil { skill: 2, ..Pupil::default() };
    let error = go(&mut pupil, &run, 2, &mut Listener::default()).unwrap_err().to_string();
    assert!(error.contains("ends with step 1, before the checkpoint of step 2"), "{error}");
}

#[test]
fn lost_evaluation_before_training_is_not_made_up() {
    let folder = tempfile::tempdir().unwrap();
    let run = RunDir::create(folder.path(), "", &RunManifest::default()).unwrap();
    let mut listener = Listener { stop_after: Some(2), ..Listener::default() };
    go(&mut Pupil::default(), &run, 0, &mut listener).unwrap_err();
    std::fs::remove_file(folder.path().join("evaluation_before.json")).unwrap();
    let mut resumed = Listener::default();
    let summary = go(&mut Pupil { skill: 2, ..Pupil::default() }, &run, 2, &mut resumed).unwrap();
    assert!(summary.before.is_none() && summary.after.is_some());
    assert!(resumed.warnings[0].contains("evaluation_before.json is missing"), "{resumed:?}");
}
