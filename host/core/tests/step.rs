//! The whole loop with plain stand-ins for the heavy parts: what `step` hands from stage to stage,
//! and what it does when one of them fails.

use std::path::Path;
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::Duration;

use corver_core::advantage::{GaeSettings, Pair, whiten};
use corver_core::{
    AdvantageSettings, Backends, BoxError, Completion, CorpusInfo, Count, Counter, Credit,
    Demonstration, Estimator, Extracted, ExtractionBatch, Extractor, ExtractorInput, Graders,
    Granularity, Learner, Lookup, Query, Question, RewardSettings, Rollout, Sampler, Sampling,
    Scorers, Sentence, SentenceScorer, SentenceVerdict, Signal, StepError, StepReport,
    StepSettings, TrainingBatch, Triplet, UpdateReport, baselines, step, traced_returns,
};

/// Answers from a script; one character is one token.
struct ScriptedPolicy<'c> {
    completions: Vec<&'static str>,
    /// Order in which rollouts finish; not all of them need to.
    finishes: Vec<usize>,
    /// Value of every token, of a policy with a critic.
    value: Option<f64>,
    /// Met by `prepare`.
    meeting: Option<&'c Barrier>,
    /// Signal of the last update.
    signal: Option<Signal>,
}

impl ScriptedPolicy<'_> {
    /// Returns the advantages that the policy learned from; none before an update.
    fn learned(&self) -> &[Vec<f64>] {
        match &self.signal {
            Some(Signal::Advantages(advantages)) => &advantages.values,
            Some(Signal::Pairs(pairs)) => panic!("{pairs:?}"),
            None => &[],
        }
    }
}

impl Sampler for ScriptedPolicy<'_> {
    fn sample(
        &mut self,
        questions: &[Question],
        sampling: &Sampling,
        _: u64,
        on_finished: &mut dyn FnMut(usize, &Rollout),
    ) -> Result<Vec<Rollout>, BoxError> {
        assert_eq!(self.completions.len(), questions.len() * sampling.num_generations);
        let mut rollouts = Vec::new();
        for (index, text) in self.completions.iter().enumerate() {
            let length = text.chars().count();
            rollouts.push(Rollout {
                question: index / sampling.num_generations,
                tokens: vec![7; length],
                log_probs: vec![-1.0; length],
                text: (*text).to_owned(),
                token_spans: (0..length).map(|at| Some(at..at + 1)).collect(),
                finished: true,
            });
        }
        for &index in &self.finishes {
            on_finished(index, &rollouts[index]);
        }
        Ok(rollouts)
    }
}

impl Learner for ScriptedPolicy<'_> {
    fn set_system_prompt(&mut self, _: &str) {}

    fn prepare(&mut self, batch: &TrainingBatch<'_>) -> Result<Option<Vec<Vec<f64>>>, BoxError> {
        assert_eq!((batch.questions.len(), batch.rollouts.len()), (1, 2));
        if let Some(barrier) = self.meeting {
            barrier.wait();
        }
        let Some(value) = self.value else { return Ok(None) };
        Ok(Some(batch.rollouts.iter().map(|rollout| vec![value; rollout.tokens.len()]).collect()))
    }

    fn update(&mut self, _: &TrainingBatch<'_>, signal: &Signal) -> Result<UpdateReport, BoxError> {
        self.signal = Some(signal.clone());
        Ok(UpdateReport::default())
    }

    fn imitate(&mut self, _: &[Demonstration]) -> Result<UpdateReport, BoxError> {
        unreachable!("a step has no demonstrations")
    }

    fn save(&mut self, _: &Path, _: usize) -> Result<(), BoxError> {
        unreachable!("a step saves nothing")
    }
}

/// “X is in Y.” is the triplet (X, is in, Y).
#[derive(Default)]
struct IsIn {
    seen: Vec<String>,
}

impl Extractor for IsIn {
    fn extract(&mut self, inputs: &[ExtractorInput<'_>]) -> Result<Vec<Vec<Triplet>>, BoxError> {
        self.seen.extend(inputs.iter().map(|input| input.sentence.to_owned()));
        let parse = |input: &ExtractorInput<'_>| {
            let parts = input.sentence.trim_end_matches('.').split_once(" is in ");
            parts
                .map(|(head, tail)| Triplet {
                    head: head.into(),
                    relation: "is in".into(),
                    tail: tail.into(),
                })
                .into_iter()
                .collect()
        };
        Ok(inputs.iter().map(parse).collect())
    }
}

/// Knows that Paris is in France.
struct Atlas;

impl Counter for Atlas {
    fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, BoxError> {
        let france = |query: &Query| if query.to_string() == "Paris AND France" { 50 } else { 0 };
        Ok(queries.iter().map(|query| Count::exact(Some(france(query)))).collect())
    }

    fn info(&self) -> CorpusInfo {
        CorpusInfo::default()
    }
}

/// +0.5 for a pair that the corpus holds, −0.5 for one that it does not; abstains without a
/// triplet.
struct Attested;

impl SentenceScorer for Attested {
    fn score(
        &mut self,
        completions: &[Completion<'_>],
        backends: &mut Backends<'_>,
    ) -> Result<Vec<Vec<SentenceVerdict>>, BoxError> {
        let mut judge = |sentence: &Sentence| {
            let Some(triplet) = sentence.triplets.first() else {
                return Ok(SentenceVerdict::default());
            };
            let query = Query::new([[&triplet.head], [&triplet.tail]]);
            let count = backends.count(std::slice::from_ref(&query))?[0];
            let reward = Some(if count.occurrences > Some(0) { 0.5 } else { -0.5 });
            let lookups = vec![Lookup { query, count }];
            Ok(SentenceVerdict {
                reward,
                count: count.occurrences,
                triplet: Some(0),
                lookups,
                ..SentenceVerdict::default()
            })
        };
        completions
            .iter()
            .map(|completion| completion.sentences.iter().map(&mut judge).collect())
            .collect()
    }
}

struct Broken;

impl SentenceScorer for Broken {
    fn score(
        &mut self,
        _: &[Completion<'_>],
        _: &mut Backends<'_>,
    ) -> Result<Vec<Vec<SentenceVerdict>>, BoxError> {
        Err("the rule trapped".into())
    }
}

/// Has nothing to say about the last sentence.
struct Forgetful;

impl Extractor for Forgetful {
    fn extract(&mut self, inputs: &[ExtractorInput<'_>]) -> Result<Vec<Vec<Triplet>>, BoxError> {
        Ok(vec![Vec::new(); inputs.len() - 1])
    }
}

const RIGHT: &str =
    "<think>Paris is in France. That much is beyond any doubt.</think><answer>Paris</answer>";
const WRONG: &str =
    "<think>Rome is in France. That much is beyond any doubt.</think><answer>Rome</answer>";

fn policy<'c>() -> ScriptedPolicy<'c> {
    ScriptedPolicy {
        completions: vec![RIGHT, WRONG],
        finishes: vec![1, 0],
        value: None,
        meeting: None,
        signal: None,
    }
}

/// One step on one question with two completions, counted in the [`Atlas`].
fn run(
    policy: &mut ScriptedPolicy<'_>,
    extractor: &mut dyn Extractor,
    sentence_scorer: &mut dyn SentenceScorer,
    rewards: RewardSettings,
) -> Result<StepReport, StepError> {
    run_with(
        policy,
        extractor,
        sentence_scorer,
        StepSettings { rewards, ..StepSettings::default() },
    )
}

fn run_with(
    policy: &mut ScriptedPolicy<'_>,
    extractor: &mut dyn Extractor,
    sentence_scorer: &mut dyn SentenceScorer,
    settings: StepSettings,
) -> Result<StepReport, StepError> {
    let mut graders = Graders::default();
    let mut backends = Backends::counting(Atlas);
    let mut scorers =
        Scorers { extractor, backends: &mut backends, sentence_scorer, graders: &mut graders };
    let sampling = Sampling { num_generations: 2, ..Sampling::default() };
    let settings = StepSettings { sampling, ..settings };
    let question = Question {
        question: "What is the capital?".into(),
        golds: vec!["Paris".into()],
        ..Question::default()
    };
    step(policy, &mut scorers, &[question], &settings, 1)
}

#[test]
fn supported_sentence_tokens_get_higher_advantage() {
    let mut policy = policy();
    let (mut extractor, mut scorer) = (IsIn::default(), Attested);
    let report = run(&mut policy, &mut extractor, &mut scorer, RewardSettings::default()).unwrap();

    let [right, wrong] = [0, 1].map(|index| &report.completions[index].trace.sentences);
    assert_eq!([right[0].reward(), wrong[0].reward()], [0.5, -0.5]);
    assert_eq!(right[0].tokens, Some(7..26));
    assert_eq!(right[0].verdict.as_ref().unwrap().count, Some(50));
    assert_eq!(wrong[1].reward(), 0.0);

    // Token 0 is a tag; token 7 belongs to the first sentence.
    let [right, wrong] = [0, 1].map(|index| &policy.learned()[index]);
    assert!(right[7] > right[0] && wrong[7] < wrong[0]);
    assert!(right[0] > wrong[0], "the judge separates the two answers");
    assert_eq!(extractor.seen.len(), 6, "all sentences of the step in one call");
}

#[test]
fn step_traces_reproduce_token_advantages() {
    for granularity in [Granularity::Token, Granularity::Response] {
        for (lambda_judge, lambda_corver) in [(1.0, 0.7), (0.0, 0.7), (1.0, 0.0)] {
            for min_alignment in [0.5, 1.1] {
                check_traces(RewardSettings {
                    granularity,
                    lambda_judge,
                    lambda_corver,
                    min_alignment,
                    ..RewardSettings::default()
                });
            }
        }
    }
}

fn check_traces(rewards: RewardSettings) {
    let mut policy = policy();
    let report = run(&mut policy, &mut IsIn::default(), &mut Attested, rewards).unwrap();
    let means: Vec<f64> = report.completions.iter().map(|one| one.trace.mean_return).collect();
    let baseline = baselines(&means, 2, &AdvantageSettings::default())[0];
    for (completion, learned) in report.completions.iter().zip(policy.learned()) {
        let returns = traced_returns(&completion.trace, &rewards);
        let expected = baseline.advantage(returns.outside);
        assert!((learned[0] - expected).abs() < 1e-9, "{rewards:?}");
        for (sentence, value) in completion.trace.sentences.iter().zip(returns.sentences) {
            for token in sentence.tokens.clone().unwrap() {
                let expected = baseline.advantage(value);
                assert!((learned[token] - expected).abs() < 1e-9, "{rewards:?}");
            }
        }
    }
}

/// Labels the first sentence of every completion wrong and the others right, without a look at
/// triplets.
struct Labels;

impl SentenceScorer for Labels {
    fn reads_triplets(&self) -> bool {
        false
    }

    fn score(
        &mut self,
        completions: &[Completion<'_>],
        _: &mut Backends<'_>,
    ) -> Result<Vec<Vec<SentenceVerdict>>, BoxError> {
        let label = |index: usize| SentenceVerdict {
            reward: Some(if index == 0 { -1.0 } else { 1.0 }),
            credit: Credit::AdvantageSign,
            ..SentenceVerdict::default()
        };
        Ok(completions.iter().map(|one| (0..one.sentences.len()).map(label).collect()).collect())
    }
}

#[test]
fn sign_labels_set_learned_advantage_signs() {
    struct Unasked;
    impl Extractor for Unasked {
        fn extract(
            &mut self,
            inputs: &[ExtractorInput<'_>],
        ) -> Result<Vec<Vec<Triplet>>, BoxError> {
            assert!(inputs.is_empty(), "the rule reads no triplets: {inputs:?}");
            Ok(Vec::new())
        }
    }
    let mut policy = policy();
    let report = run(&mut policy, &mut Unasked, &mut Labels, RewardSettings::default()).unwrap();
    let mut signs = [0, 0];
    for (completion, learned) in report.completions.iter().zip(policy.learned()) {
        for (index, sentence) in completion.trace.sentences.iter().enumerate() {
            let tokens = &learned[sentence.tokens.clone().unwrap()];
            assert!(
                tokens.iter().all(|value| if index == 0 { *value < 0.0 } else { *value > 0.0 }),
                "{tokens:?}"
            );
            signs[index.min(1)] += 1;
        }
        // A tag belongs to no sentence and keeps the sign of its completion's return.
        assert_eq!(learned[0] > 0.0, completion.trace.mean_return > report.returns.reward);
    }
    assert!(signs.iter().all(|&number| number > 0), "{signs:?}");
}

#[test]
fn sign_labels_are_rejected_with_preference_pairs() {
    let mut policy = policy();
    let settings = StepSettings { estimator: Estimator::Pairs, ..StepSettings::default() };
    let Err(error) = run_with(&mut policy, &mut IsIn::default(), &mut Labels, settings) else {
        panic!("it is refused")
    };
    assert!(
        corver_core::error_chain(&error).contains("the rule sets signs of advantages"),
        "{error:?}"
    );
    assert!(policy.signal.is_none());
}

#[test]
fn dpo_learns_from_the_pairs_of_a_group() {
    let mut policy = policy();
    let settings = StepSettings { estimator: Estimator::Pairs, ..StepSettings::default() };
    run_with(&mut policy, &mut IsIn::default(), &mut Attested, settings).unwrap();
    assert_eq!(policy.signal, Some(Signal::Pairs(vec![Pair { chosen: 0, rejected: 1 }])));
}

#[test]
fn critic_values_reach_gae_advantages() {
    let gae = StepSettings {
        estimator: Estimator::Gae(GaeSettings { gamma: 1.0, lambda: 1.0 }),
        ..StepSettings::default()
    };
    let (mut extractor, mut scorer) = (IsIn::default(), Attested);
    let mut critical = ScriptedPolicy { value: Some(0.5), ..policy() };
    run_with(&mut critical, &mut extractor, &mut scorer, gae).unwrap();
    let Some(Signal::Advantages(advantages)) = &critical.signal else { panic!("no advantages") };
    // With λ = 1 the targets are the returns; whitening takes off what was expected, since that is
    // the same everywhere.
    let mut expected = advantages.targets.clone().unwrap();
    whiten(&mut expected);
    for (got, expected) in advantages.values.concat().iter().zip(expected.concat()) {
        assert!((got - expected).abs() < 1e-9, "{got}, expected {expected}");
    }

    let mut without = policy();
    let error = run_with(&mut without, &mut extractor, &mut scorer, gae).err().unwrap();
    assert!(matches!(error, StepError::Prepare(_)) && without.signal.is_none(), "{error}");
}

#[test]
fn zero_corver_weight_skips_extraction() {
    let mut policy = policy();
    let (mut extractor, mut scorer) = (IsIn::default(), Broken);
    let rewards = RewardSettings { lambda_corver: 0.0, ..RewardSettings::default() };
    let report = run(&mut policy, &mut extractor, &mut scorer, rewards).unwrap();
    assert!(extractor.seen.is_empty());
    assert!(report.completions.iter().all(|completion| !completion.trace.fallback));
    assert_eq!(policy.learned()[0][0], policy.learned()[0][7]);
}

#[test]
fn unaligned_completion_falls_back_to_response_reward() {
    let mut policy = policy();
    let (mut extractor, mut scorer) = (IsIn::default(), Attested);
    let rewards = RewardSettings { min_alignment: 1.1, ..RewardSettings::default() };
    let report = run(&mut policy, &mut extractor, &mut scorer, rewards).unwrap();
    for completion in &report.completions {
        let trace = &completion.trace;
        assert!(trace.fallback && trace.sentences[0].verdict.is_none());
    }
    assert_eq!(policy.learned()[0][0], policy.learned()[0][7]);
}

#[test]
fn scoring_failure_stops_step_before_update() {
    let mut policy = policy();
    let (mut extractor, mut scorer) = (IsIn::default(), Broken);
    let error =
        run(&mut policy, &mut extractor, &mut scorer, RewardSettings::default()).err().unwrap();
    assert!(matches!(error, StepError::ScoreSentences(_)));
    assert!(policy.signal.is_none());
}

#[test]
fn incomplete_extractor_answer_is_rejected() {
    let mut policy = policy();
    let error =
        run(&mut policy, &mut Forgetful, &mut Attested, RewardSettings::default()).err().unwrap();
    let StepError::Extract(reason) = error else { panic!("{error}") };
    assert_eq!(reason.to_string(), "the extractor returned the triplets of 5 of 6 sentences");
}

/// Extracts a sentence as soon as it is pushed.
struct Eager {
    extracted: mpsc::Sender<String>,
}

struct EagerBatch<'a>(&'a mut Eager, Vec<Vec<Triplet>>);

impl Extractor for Eager {
    fn extract(&mut self, inputs: &[ExtractorInput<'_>]) -> Result<Vec<Vec<Triplet>>, BoxError> {
        for input in inputs {
            self.extracted.send(input.sentence.to_owned())?;
        }
        IsIn::default().extract(inputs)
    }

    fn start(&mut self) -> Box<dyn ExtractionBatch + '_> {
        Box::new(EagerBatch(self, Vec::new()))
    }
}

impl ExtractionBatch for EagerBatch<'_> {
    fn push(&mut self, input: ExtractorInput<'_>) {
        self.1.extend(self.0.extract(&[input]).unwrap());
    }

    fn finish(self: Box<Self>) -> Result<Extracted, BoxError> {
        Ok(Extracted { triplets: self.1, not_understood: 0 })
    }
}

#[test]
fn sentences_reach_the_extractor_as_rollouts_finish() {
    let (extracted, sentences) = mpsc::channel();
    let mut early = policy();
    let mut extractor = Eager { extracted };
    let rewards = RewardSettings::default();
    let report = run(&mut early, &mut extractor, &mut Attested, rewards).unwrap();
    assert_eq!(sentences.try_iter().next().as_deref(), Some("Rome is in France."));
    let mut late = policy();
    let expected = run(&mut late, &mut IsIn::default(), &mut Attested, rewards).unwrap();
    assert_eq!(early.signal, late.signal);
    assert_eq!(report.completions, expected.completions);
}

/// Scores once the policy prepares its update.
struct Meeting<'c>(&'c Barrier);

impl SentenceScorer for Meeting<'_> {
    fn score(
        &mut self,
        completions: &[Completion<'_>],
        backends: &mut Backends<'_>,
    ) -> Result<Vec<Vec<SentenceVerdict>>, BoxError> {
        self.0.wait();
        Attested.score(completions, backends)
    }
}

/// One after the other, each would wait for ever.
#[test]
fn update_preparation_overlaps_reward_computation() {
    let (sender, end) = mpsc::channel();
    thread::spawn(move || {
        let barrier = Barrier::new(2);
        let mut policy = ScriptedPolicy { meeting: Some(&barrier), ..policy() };
        let rewards = RewardSettings::default();
        let met = run(&mut policy, &mut IsIn::default(), &mut Meeting(&barrier), rewards).is_ok();
        sender.send(met)
    });
    assert_eq!(end.recv_timeout(Duration::from_secs(60)), Ok(true));
}

/// Extracts once the policy prepares its update.
struct MeetingExtractor<'c>(&'c Barrier);

impl Extractor for MeetingExtractor<'_> {
    fn extract(&mut self, inputs: &[ExtractorInput<'_>]) -> Result<Vec<Vec<Triplet>>, BoxError> {
        self.0.wait();
        IsIn::default().extract(inputs)
    }
}

/// One after the other, each would wait for ever.
#[test]
fn update_preparation_overlaps_extraction() {
    let (sender, end) = mpsc::channel();
    thread::spawn(move || {
        let barrier = Barrier::new(2);
        let mut policy = ScriptedPolicy { meeting: Some(&barrier), ..policy() };
        let rewards = RewardSettings::default();
        let mut extractor = MeetingExtractor(&barrier);
        sender.send(run(&mut policy, &mut extractor, &mut Attested, rewards).is_ok())
    });
    assert_eq!(end.recv_timeout(Duration::from_secs(60)), Ok(true));
}

#[test]
fn missing_rollout_is_rejected() {
    let mut policy = ScriptedPolicy { finishes: vec![0], ..policy() };
    let error = run(&mut policy, &mut IsIn::default(), &mut Attested, RewardSettings::default())
        .err()
        .unwrap();
    let StepError::Rollout(reason) = error else { panic!("{error}") };
    assert_eq!(reason.to_string(), "the policy reported 1 of 2 rollouts");
}
