//! The whole loop with plain stand-ins for the heavy parts: what `step` hands from stage to stage,
//! and what it does when one of them fails.

use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::Duration;

use corver_core::advantage::{GaeSettings, whiten};
use corver_core::{
    Ablation, AdvantageSettings, Advantages, Completion, CorpusSize, Count, Counter, Credit,
    Estimator, Extractor, Graders, Learner, Lookup, PartError, Query, Question, RewardSettings,
    Rollout, Sampler, Sampling, Scorers, Sentence, SentenceScorer, StepError, StepReport,
    StepSettings, Triplet, UpdateReport, Verdict, Verifiers, baselines, step, traced_returns,
};

/// Answers from a script; one character is one token.
struct ScriptedPolicy {
    completions: Vec<&'static str>,
    learned: Vec<Vec<f64>>,
}

impl Sampler for ScriptedPolicy {
    fn sample(
        &mut self,
        questions: &[Question],
        sampling: &Sampling,
        _: u64,
    ) -> Result<Vec<Rollout>, PartError> {
        assert_eq!(self.completions.len(), questions.len() * sampling.num_generations);
        let rollout = |(index, text): (usize, &&'static str)| {
            let length = text.chars().count();
            Rollout {
                question: index / sampling.num_generations,
                tokens: vec![7; length],
                log_probs: vec![-1.0; length],
                text: (*text).to_owned(),
                token_spans: (0..length).map(|at| Some(at..at + 1)).collect(),
                finished: true,
            }
        };
        Ok(self.completions.iter().enumerate().map(rollout).collect())
    }
}

impl Learner for ScriptedPolicy {
    fn update(
        &mut self,
        _: &[Rollout],
        advantages: &Advantages,
    ) -> Result<UpdateReport, PartError> {
        self.learned = advantages.values.clone();
        Ok(UpdateReport::default())
    }
}

/// “X is in Y.” is the triplet (X, is in, Y).
#[derive(Default)]
struct IsIn {
    seen: Vec<String>,
}

impl Extractor for IsIn {
    fn extract(&mut self, sentences: &[&str]) -> Result<Vec<Vec<Triplet>>, PartError> {
        self.seen.extend(sentences.iter().map(|sentence| (*sentence).to_owned()));
        let parse = |sentence: &&str| {
            let parts = sentence.trim_end_matches('.').split_once(" is in ");
            parts
                .map(|(head, tail)| Triplet {
                    head: head.into(),
                    relation: "is in".into(),
                    tail: tail.into(),
                })
                .into_iter()
                .collect()
        };
        Ok(sentences.iter().map(parse).collect())
    }
}

/// Knows that Paris is in France.
struct Atlas;

impl Counter for Atlas {
    fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, PartError> {
        let france = |query: &Query| if query.to_string() == "Paris AND France" { 50 } else { 0 };
        Ok(queries
            .iter()
            .map(|query| Count { occurrences: Some(france(query)), exact: true })
            .collect())
    }

    fn size(&self) -> CorpusSize {
        CorpusSize::default()
    }
}

/// +0.5 for a pair that the corpus holds, −0.5 for one that it does not; abstains without a
/// triplet.
struct Attested;

impl SentenceScorer for Attested {
    fn score(
        &mut self,
        completions: &[Completion<'_>],
        verifiers: &mut Verifiers<'_>,
    ) -> Result<Vec<Vec<Verdict>>, PartError> {
        let mut judge = |sentence: &Sentence| {
            let Some(triplet) = sentence.triplets.first() else { return Ok(Verdict::default()) };
            let query = Query::new([[&triplet.head], [&triplet.tail]]);
            let count = verifiers.count(std::slice::from_ref(&query))?[0];
            let reward = Some(if count.occurrences > Some(0) { 0.5 } else { -0.5 });
            let lookups = vec![Lookup { query, count }];
            Ok(Verdict {
                reward,
                count: count.occurrences,
                triplet: Some(0),
                lookups,
                ..Verdict::default()
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
        _: &mut Verifiers<'_>,
    ) -> Result<Vec<Vec<Verdict>>, PartError> {
        Err("the rule trapped".into())
    }
}

/// Has nothing to say about the last sentence.
struct Forgetful;

impl Extractor for Forgetful {
    fn extract(&mut self, sentences: &[&str]) -> Result<Vec<Vec<Triplet>>, PartError> {
        Ok(vec![Vec::new(); sentences.len() - 1])
    }
}

const RIGHT: &str =
    "<think>Paris is in France. That much is beyond any doubt.</think><answer>Paris</answer>";
const WRONG: &str =
    "<think>Rome is in France. That much is beyond any doubt.</think><answer>Rome</answer>";

fn policy() -> ScriptedPolicy {
    ScriptedPolicy { completions: vec![RIGHT, WRONG], learned: Vec::new() }
}

/// One step on one question with two completions, counted in the [`Atlas`].
fn run<P: Sampler + Learner>(
    policy: &mut P,
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

fn run_with<P: Sampler + Learner>(
    policy: &mut P,
    extractor: &mut dyn Extractor,
    sentence_scorer: &mut dyn SentenceScorer,
    settings: StepSettings,
) -> Result<StepReport, StepError> {
    let mut graders = Graders::default();
    let mut verifiers = Verifiers::counting(Atlas);
    let mut scorers =
        Scorers { extractor, verifiers: &mut verifiers, sentence_scorer, graders: &mut graders };
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
fn a_supported_sentence_is_worth_more_than_its_neighbours() {
    let mut policy = policy();
    let (mut extractor, mut scorer) = (IsIn::default(), Attested);
    let report = run(&mut policy, &mut extractor, &mut scorer, RewardSettings::default()).unwrap();

    let sentences: Vec<f64> =
        report.traces.iter().map(|trace| trace.sentences[0].reward()).collect();
    assert_eq!(sentences, [0.5, -0.5]);
    assert_eq!(report.traces[0].sentences[0].tokens, Some(7..26));
    assert_eq!(report.traces[0].sentences[0].verdict.as_ref().unwrap().count, Some(50));
    assert_eq!(report.traces[1].sentences[1].reward(), 0.0);

    // Token 0 is a tag; token 7 belongs to the first sentence.
    let right = &policy.learned[0];
    let wrong = &policy.learned[1];
    assert!(right[7] > right[0] && wrong[7] < wrong[0]);
    assert!(right[0] > wrong[0], "the judge separates the two answers");
    assert_eq!(extractor.seen.len(), 6, "all sentences of the step in one call");
}

#[test]
fn the_traces_of_a_step_tell_what_every_token_was_taught() {
    let ablations =
        [Ablation::None, Ablation::NoCooccurrence, Ablation::NoJudge, Ablation::ResponseLevel];
    for (ablation, min_alignment) in ablations.into_iter().flat_map(|one| [(one, 0.5), (one, 1.1)])
    {
        let rewards = RewardSettings {
            ablation,
            min_alignment,
            lambda_corver: 0.7,
            ..RewardSettings::default()
        };
        let mut policy = policy();
        let report = run(&mut policy, &mut IsIn::default(), &mut Attested, rewards).unwrap();
        let means: Vec<f64> = report.traces.iter().map(|trace| trace.mean_return).collect();
        let baseline = baselines(&means, 2, &AdvantageSettings::default())[0];
        for (trace, learned) in report.traces.iter().zip(&policy.learned) {
            let returns = traced_returns(trace, &rewards);
            let is_taught = |token: usize, value: f64| {
                (learned[token] - baseline.advantage(value)).abs() < 1e-9
            };
            assert!(is_taught(0, returns.outside), "{ablation:?}");
            for (sentence, value) in trace.sentences.iter().zip(returns.sentences) {
                assert!(
                    sentence.tokens.clone().unwrap().all(|token| is_taught(token, value)),
                    "{ablation:?}"
                );
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
        _: &mut Verifiers<'_>,
    ) -> Result<Vec<Vec<Verdict>>, PartError> {
        let label = |index: usize| Verdict {
            reward: Some(if index == 0 { -1.0 } else { 1.0 }),
            credit: Credit::Sign,
            ..Verdict::default()
        };
        Ok(completions.iter().map(|one| (0..one.sentences.len()).map(label).collect()).collect())
    }
}

#[test]
fn labels_decide_the_signs_that_the_policy_learns() {
    struct Unasked;
    impl Extractor for Unasked {
        fn extract(&mut self, sentences: &[&str]) -> Result<Vec<Vec<Triplet>>, PartError> {
            assert!(sentences.is_empty(), "the rule reads no triplets: {sentences:?}");
            Ok(Vec::new())
        }
    }
    let mut policy = policy();
    let report = run(&mut policy, &mut Unasked, &mut Labels, RewardSettings::default()).unwrap();
    let mut signs = [0, 0];
    for (trace, learned) in report.traces.iter().zip(&policy.learned) {
        for (index, sentence) in trace.sentences.iter().enumerate() {
            let tokens = &learned[sentence.tokens.clone().unwrap()];
            assert!(
                tokens.iter().all(|value| if index == 0 { *value < 0.0 } else { *value > 0.0 }),
                "{tokens:?}"
            );
            signs[index.min(1)] += 1;
        }
        // A tag belongs to no sentence and keeps the sign of its completion's return.
        assert_eq!(learned[0] > 0.0, trace.mean_return > report.advantages.reward);
    }
    assert!(signs.iter().all(|&number| number > 0), "{signs:?}");
}

#[test]
fn labels_and_preferences_do_not_go_together() {
    let mut policy = policy();
    let settings = StepSettings { estimator: Estimator::Pairs, ..StepSettings::default() };
    let Err(error) = run_with(&mut policy, &mut IsIn::default(), &mut Labels, settings) else {
        panic!("it is refused")
    };
    assert!(corver_core::with_causes(&error).contains("the rule labels sentences"), "{error:?}");
    assert!(policy.learned.is_empty());
}

/// Expects the same of every token.
struct Critical(ScriptedPolicy, f64);

impl Sampler for Critical {
    fn sample(
        &mut self,
        questions: &[Question],
        sampling: &Sampling,
        seed: u64,
    ) -> Result<Vec<Rollout>, PartError> {
        self.0.sample(questions, sampling, seed)
    }
}

impl Learner for Critical {
    fn prepare(&mut self, rollouts: &[Rollout]) -> Result<Option<Vec<Vec<f64>>>, PartError> {
        Ok(Some(rollouts.iter().map(|rollout| vec![self.1; rollout.tokens.len()]).collect()))
    }

    fn update(
        &mut self,
        rollouts: &[Rollout],
        advantages: &Advantages,
    ) -> Result<UpdateReport, PartError> {
        self.0.update(rollouts, advantages)
    }
}

#[test]
fn what_a_critic_expects_reaches_the_advantages() {
    let gae = StepSettings {
        estimator: Estimator::Gae(GaeSettings { gamma: 1.0, lambda: 1.0 }),
        ..StepSettings::default()
    };
    let (mut extractor, mut scorer) = (IsIn::default(), Attested);
    let mut critical = Critical(policy(), 0.5);
    let report = run_with(&mut critical, &mut extractor, &mut scorer, gae).unwrap();
    // With λ = 1 the targets are the returns; whitening takes off what was expected, since that is
    // the same everywhere.
    let mut expected = report.advantages.targets.unwrap();
    whiten(&mut expected);
    let apart = critical
        .0
        .learned
        .concat()
        .iter()
        .zip(expected.concat())
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f64::max);
    assert!(apart < 1e-9, "{apart}");

    let mut without = policy();
    let error = run_with(&mut without, &mut extractor, &mut scorer, gae).err().unwrap();
    assert!(matches!(error, StepError::Update(_)) && without.learned.is_empty(), "{error}");
}

#[test]
fn without_the_cooccurrence_term_nothing_is_extracted() {
    let mut policy = policy();
    let (mut extractor, mut scorer) = (IsIn::default(), Broken);
    let rewards =
        RewardSettings { ablation: Ablation::NoCooccurrence, ..RewardSettings::default() };
    let report = run(&mut policy, &mut extractor, &mut scorer, rewards).unwrap();
    assert!(extractor.seen.is_empty());
    assert!(report.traces.iter().all(|trace| !trace.fallback));
    assert_eq!(policy.learned[0][0], policy.learned[0][7]);
}

#[test]
fn a_completion_that_cannot_be_aligned_earns_its_response_alone() {
    let mut policy = policy();
    let (mut extractor, mut scorer) = (IsIn::default(), Attested);
    let rewards = RewardSettings { min_alignment: 1.1, ..RewardSettings::default() };
    let report = run(&mut policy, &mut extractor, &mut scorer, rewards).unwrap();
    assert!(
        report.traces.iter().all(|trace| trace.fallback && trace.sentences[0].verdict.is_none())
    );
    assert_eq!(policy.learned[0][0], policy.learned[0][7]);
}

#[test]
fn a_failing_part_stops_the_step_before_anything_is_learned() {
    let mut policy = policy();
    let (mut extractor, mut scorer) = (IsIn::default(), Broken);
    let error =
        run(&mut policy, &mut extractor, &mut scorer, RewardSettings::default()).err().unwrap();
    assert!(matches!(error, StepError::ScoreSentences(_)));
    assert!(policy.learned.is_empty());
}

#[test]
fn an_extractor_that_answers_too_little_is_an_error() {
    let mut policy = policy();
    let error =
        run(&mut policy, &mut Forgetful, &mut Attested, RewardSettings::default()).err().unwrap();
    let StepError::Extract(reason) = error else { panic!("{error}") };
    assert_eq!(reason.to_string(), "the extractor answered 5 of 6 sentences");
}

type Ended<'e> = dyn FnMut(Vec<(usize, Rollout)>) + 'e;

/// Does what a test wants when completions end, and when an update is prepared.
struct Directed<'c> {
    scripted: ScriptedPolicy,
    tell: &'c dyn Fn(&[Rollout], &mut Ended<'_>),
    prepare: &'c dyn Fn(&[Rollout]),
}

impl Sampler for Directed<'_> {
    fn sample(
        &mut self,
        questions: &[Question],
        sampling: &Sampling,
        seed: u64,
    ) -> Result<Vec<Rollout>, PartError> {
        self.scripted.sample(questions, sampling, seed)
    }

    fn sample_and_tell(
        &mut self,
        questions: &[Question],
        sampling: &Sampling,
        seed: u64,
        ended: &mut Ended<'_>,
    ) -> Result<Vec<Rollout>, PartError> {
        let rollouts = self.sample(questions, sampling, seed)?;
        (self.tell)(&rollouts, ended);
        Ok(rollouts)
    }
}

impl Learner for Directed<'_> {
    fn prepare(&mut self, rollouts: &[Rollout]) -> Result<Option<Vec<Vec<f64>>>, PartError> {
        (self.prepare)(rollouts);
        Ok(None)
    }

    fn update(
        &mut self,
        rollouts: &[Rollout],
        advantages: &Advantages,
    ) -> Result<UpdateReport, PartError> {
        self.scripted.update(rollouts, advantages)
    }
}

/// Waits for somebody whenever it is asked.
struct Meeting<'c, P>(&'c Barrier, P);

impl<P: Extractor> Extractor for Meeting<'_, P> {
    fn extract(&mut self, sentences: &[&str]) -> Result<Vec<Vec<Triplet>>, PartError> {
        self.0.wait();
        self.1.extract(sentences)
    }
}

impl<P: SentenceScorer> SentenceScorer for Meeting<'_, P> {
    fn score(
        &mut self,
        completions: &[Completion<'_>],
        verifiers: &mut Verifiers<'_>,
    ) -> Result<Vec<Vec<Verdict>>, PartError> {
        self.0.wait();
        self.1.score(completions, verifiers)
    }
}

/// What parts that wait for each other make of a step. One after the other, each would wait for
/// ever.
fn together(parts: fn(&Barrier) -> (Vec<Vec<f64>>, StepReport)) {
    let (sender, end) = mpsc::channel();
    thread::spawn(move || sender.send(parts(&Barrier::new(2))).expect("the test waits"));
    let (learned, report) = end.recv_timeout(Duration::from_secs(60)).expect("they met");
    let mut alone = policy();
    let expected =
        run(&mut alone, &mut IsIn::default(), &mut Attested, RewardSettings::default()).unwrap();
    assert_eq!((learned, report.traces), (alone.learned, expected.traces));
}

#[test]
fn triplets_are_extracted_while_others_are_sampled() {
    together(|meet| {
        let tell = |rollouts: &[Rollout], ended: &mut Ended<'_>| {
            for place in [1, 0] {
                ended(vec![(place, rollouts[place].clone())]);
                meet.wait();
            }
        };
        let mut policy = Directed { scripted: policy(), tell: &tell, prepare: &|_| () };
        let mut extractor = Meeting(meet, IsIn::default());
        let report = run(&mut policy, &mut extractor, &mut Attested, RewardSettings::default())
            .expect("a step");
        (policy.scripted.learned, report)
    });
}

#[test]
fn the_update_is_prepared_while_the_reward_is_computed() {
    together(|meet| {
        let tell = |rollouts: &[Rollout], ended: &mut Ended<'_>| {
            ended(rollouts.iter().cloned().enumerate().collect())
        };
        let prepare = |rollouts: &[Rollout]| {
            assert_eq!(rollouts.len(), 2);
            meet.wait();
        };
        let mut policy = Directed { scripted: policy(), tell: &tell, prepare: &prepare };
        let mut rule = Meeting(meet, Attested);
        let report = run(&mut policy, &mut IsIn::default(), &mut rule, RewardSettings::default())
            .expect("a step");
        (policy.scripted.learned, report)
    });
}

#[test]
fn a_policy_that_keeps_a_completion_to_itself_is_an_error() {
    let tell = |rollouts: &[Rollout], ended: &mut Ended<'_>| ended(vec![(0, rollouts[0].clone())]);
    let mut policy = Directed { scripted: policy(), tell: &tell, prepare: &|_| () };
    let error = run(&mut policy, &mut IsIn::default(), &mut Attested, RewardSettings::default())
        .err()
        .unwrap();
    let StepError::Rollout(reason) = error else { panic!("{error}") };
    assert_eq!(reason.to_string(), "the policy handed over 1 of 2 rollouts");
}

#[test]
fn an_extractor_that_fails_while_others_are_sampled_ends_the_step() {
    let tell = |rollouts: &[Rollout], ended: &mut Ended<'_>| {
        (0..2).for_each(|place| ended(vec![(place, rollouts[place].clone())]));
    };
    let mut policy = Directed { scripted: policy(), tell: &tell, prepare: &|_| () };
    let error =
        run(&mut policy, &mut Forgetful, &mut Attested, RewardSettings::default()).err().unwrap();
    assert!(matches!(error, StepError::Extract(_)), "{error}");
    assert!(policy.scripted.learned.is_empty());
}
