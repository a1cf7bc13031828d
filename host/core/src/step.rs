//! The training step: every stage, in order.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::advantage::{self, AdvantageSettings};
use crate::returns::{SentenceReward, response_return, token_returns};
use crate::sentence::{Split, align, split};
use crate::trace::SentenceTrace;
use crate::{
    Advantages, Alignment, Completion, Count, Counter, Extractor, Graders, Learner, PartError, Query, Question,
    Response, RewardSettings, Rollout, RuleSentence, Rules, Sampler, Sampling, Trace, UpdateReport, Verdict,
};

/// The parts that a completion is scored with.
pub struct Scorers<'a> {
    /// Sentences to triplets.
    pub extractor: &'a mut dyn Extractor,
    /// Queries to counts.
    pub counter: &'a mut dyn Counter,
    /// Sentences and counts to verdicts.
    pub rules: &'a mut dyn Rules,
    /// Completions to response-level rewards.
    pub graders: &'a mut Graders,
}

/// How a step samples, rewards and normalises.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StepSettings {
    /// Rollouts.
    pub sampling: Sampling,
    /// Returns.
    pub rewards: RewardSettings,
    /// Advantages.
    pub advantages: AdvantageSettings,
}

/// Where a step stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StepError {
    /// The policy could not be sampled.
    #[error("sampling completions")]
    Rollout(#[source] PartError),
    /// The triplet model could not run.
    #[error("extracting triplets")]
    Extract(#[source] PartError),
    /// The rule broke its contract, or the index failed under it.
    #[error("judging sentences")]
    Judge(#[source] PartError),
    /// The judge or the format check broke its contract.
    #[error("grading completions")]
    Grade(#[source] PartError),
    /// The optimiser step failed.
    #[error("updating the policy")]
    Update(#[source] PartError),
}

/// Wall-clock seconds by stage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct StageSeconds {
    /// Sampling.
    pub rollout: f64,
    /// Triplet extraction.
    pub extract: f64,
    /// Index look-ups.
    pub count: f64,
    /// The sentence rule itself.
    pub rule: f64,
    /// The whole reward: the three above, splitting, aligning, judge and format.
    pub reward: f64,
    /// Loss, gradients and optimiser.
    pub update: f64,
}

/// A step's scored completions.
pub struct Scored {
    /// `[B][T]`.
    pub returns: Vec<Vec<f64>>,
    /// One per completion.
    pub traces: Vec<Trace>,
    /// Extract, count, rule and reward are set.
    pub seconds: StageSeconds,
}

/// What one step did.
pub struct StepReport {
    /// What was sampled.
    pub rollouts: Vec<Rollout>,
    /// Why each earned what it earned.
    pub traces: Vec<Trace>,
    /// What each token was worth.
    pub advantages: Advantages,
    /// What the optimiser did.
    pub update: UpdateReport,
    /// Where the time went.
    pub seconds: StageSeconds,
}

/// One GRPO step on `questions`: sample, score, normalise, update. `seed` decides every draw of the step.
///
/// # Errors
/// Where a part fails; the policy is then unchanged.
pub fn step<P: Sampler + Learner>(
    policy: &mut P,
    scorers: &mut Scorers<'_>,
    questions: &[Question],
    settings: &StepSettings,
    seed: u64,
) -> Result<StepReport, StepError> {
    let start = Instant::now();
    let rollouts = policy.sample(questions, &settings.sampling, seed).map_err(StepError::Rollout)?;
    let rollout_seconds = start.elapsed().as_secs_f64();

    let Scored { returns, traces, mut seconds } = score(&rollouts, questions, scorers, &settings.rewards)?;
    let advantages = advantage::normalize(&returns, settings.sampling.num_generations, &settings.advantages);

    let start = Instant::now();
    let update = policy.update(&rollouts, &advantages).map_err(StepError::Update)?;
    seconds.rollout = rollout_seconds;
    seconds.update = start.elapsed().as_secs_f64();
    Ok(StepReport { rollouts, traces, advantages, update, seconds })
}

/// Scores completions: the whole reward path, without a policy.
///
/// # Errors
/// Where a part fails.
pub fn score(
    rollouts: &[Rollout],
    questions: &[Question],
    scorers: &mut Scorers<'_>,
    settings: &RewardSettings,
) -> Result<Scored, StepError> {
    let start = Instant::now();
    let mut seconds = StageSeconds::default();
    let mut drafts: Vec<Draft> = rollouts.iter().map(|rollout| Draft::new(rollout, settings)).collect();

    let mut sentences = rule_sentences(&drafts);
    let texts: Vec<&str> = sentences.iter().map(|sentence| sentence.text.as_str()).collect();
    let extract_start = Instant::now();
    let triplets =
        if texts.is_empty() { Vec::new() } else { scorers.extractor.extract(&texts).map_err(StepError::Extract)? };
    seconds.extract = extract_start.elapsed().as_secs_f64();
    for (sentence, triplets) in sentences.iter_mut().zip(triplets) {
        sentence.triplets = triplets;
    }

    let judge_start = Instant::now();
    let mut counter = Timed { inner: &mut *scorers.counter, seconds: 0.0 };
    let verdicts = if sentences.is_empty() {
        Vec::new()
    } else {
        scorers.rules.judge(&sentences, &mut counter).map_err(StepError::Judge)?
    };
    seconds.count = counter.seconds;
    seconds.rule = judge_start.elapsed().as_secs_f64() - counter.seconds;
    for (sentence, verdict) in sentences.into_iter().zip(verdicts) {
        drafts[sentence.completion as usize].judged.push((sentence, verdict));
    }

    let completions: Vec<Completion<'_>> = drafts
        .iter()
        .zip(rollouts)
        .map(|(draft, rollout)| Completion::new(&questions[rollout.question], rollout, &draft.split))
        .collect();
    let responses = scorers.graders.grade(&completions).map_err(StepError::Grade)?;
    let finished = drafts.into_iter().zip(rollouts).zip(responses);
    let (returns, traces) = finished
        .map(|((draft, rollout), response)| draft.finish(rollout, &questions[rollout.question], response, settings))
        .unzip();
    seconds.reward = start.elapsed().as_secs_f64();
    Ok(Scored { returns, traces, seconds })
}

/// The sentences of every completion that is heard, whole completions next to each other; triplets still empty.
fn rule_sentences(drafts: &[Draft]) -> Vec<RuleSentence> {
    let heard = drafts.iter().enumerate().filter(|(_, draft)| draft.heard);
    heard
        .flat_map(|(completion, draft)| {
            draft.split.sentences.iter().enumerate().map(move |(index, sentence)| RuleSentence {
                completion: u32::try_from(completion).expect("a batch has fewer than 2³² completions"),
                index: u32::try_from(index).expect("a completion has fewer than 2³² sentences"),
                text: sentence.text.clone(),
                section: sentence.section,
                triplets: Vec::new(),
            })
        })
        .collect()
}

/// A completion on its way to a [`Trace`].
struct Draft {
    split: Split,
    alignment: Alignment,
    /// Enough of it could be aligned for its sentences to be paid.
    heard: bool,
    judged: Vec<(RuleSentence, Verdict)>,
}

impl Draft {
    fn new(rollout: &Rollout, settings: &RewardSettings) -> Self {
        let split = split(&rollout.text, settings.reading);
        let alignment = align(&split, &rollout.token_spans);
        let heard =
            settings.rewards_sentences() && !split.sentences.is_empty() && alignment.rate >= settings.min_alignment;
        Self { split, alignment, heard, judged: Vec::new() }
    }

    fn finish(
        self,
        rollout: &Rollout,
        question: &Question,
        response: Response,
        settings: &RewardSettings,
    ) -> (Vec<f64>, Trace) {
        let paid = |(_, verdict): &(RuleSentence, Verdict)| SentenceReward {
            reward: verdict.reward.map_or(0.0, f64::from),
            counted: verdict.count.is_some(),
        };
        let rewards: Vec<SentenceReward> = self.judged.iter().map(paid).collect();
        let returns = token_returns(&response, &self.alignment, &rewards, settings);
        let mean_return = if returns.is_empty() {
            response_return(&response, settings)
        } else {
            returns.iter().sum::<f64>() / returns.len() as f64
        };

        let mut judged = self.judged.into_iter();
        let sentences = self.split.sentences.into_iter().enumerate().map(|(index, sentence)| {
            let aligned = || self.alignment.sentence_of.iter().enumerate().filter(|(_, of)| **of == Some(index));
            let first = aligned().next().map(|(token, _)| token);
            let last = aligned().next_back().map(|(token, _)| token);
            let (triplets, verdict) = match judged.next() {
                Some((sentence, verdict)) => (sentence.triplets, Some(verdict)),
                None => (Vec::new(), None),
            };
            SentenceTrace {
                text: sentence.text,
                section: sentence.section,
                triplets,
                verdict,
                tokens: first.zip(last).map(|(first, last)| first..last + 1),
            }
        });
        let trace = Trace {
            question: question.question.clone(),
            completion: rollout.text.clone(),
            response,
            alignment_rate: self.alignment.rate,
            fallback: settings.rewards_sentences() && !self.heard,
            sentences: sentences.collect(),
            mean_return,
        };
        (returns, trace)
    }
}

/// Tells the index's share of the time from the rule's.
struct Timed<'a> {
    inner: &'a mut dyn Counter,
    seconds: f64,
}

impl Counter for Timed<'_> {
    fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, PartError> {
        let start = Instant::now();
        let counts = self.inner.count(queries);
        self.seconds += start.elapsed().as_secs_f64();
        counts
    }
}
