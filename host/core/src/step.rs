//! The training step: every stage, in order.

use std::panic::resume_unwind;
use std::thread;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use tracing::{Span, info_span};

use crate::advantage::{self, AdvantageSettings};
use crate::returns::{SentenceReward, response_return, token_returns};
use crate::sentence::{Split, align, split};
use crate::trace::SentenceTrace;
use crate::verdict::check_shape;
use crate::{
    Advantages, Alignment, Completion, CorpusSize, Count, Counter, Extractor, Graders, Learner, PartError, Query,
    Question, ResponseGrades, RewardSettings, Rollout, Sampler, Sampling, Sentence, SentenceScorer, Trace,
    UpdateReport, Verdict,
};

/// The parts that a completion is scored with.
pub struct Scorers<'a> {
    /// Sentences to triplets.
    pub extractor: &'a mut dyn Extractor,
    /// Queries to counts.
    pub counter: &'a mut dyn Counter,
    /// Sentences and counts to verdicts.
    pub sentence_scorer: &'a mut dyn SentenceScorer,
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
    /// The rule broke its contract, or the corpus failed under it.
    #[error("scoring sentences")]
    ScoreSentences(#[source] PartError),
    /// The judge or the format check broke its contract.
    #[error("grading completions")]
    GradeResponses(#[source] PartError),
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
    /// Look-ups in the corpus.
    pub count: f64,
    /// The sentence rule itself.
    pub rule: f64,
    /// The whole reward: the three above, splitting, aligning, judge and format.
    pub reward: f64,
    /// What the update needs besides the reward, beside which it runs.
    pub prepare: f64,
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

/// One GRPO step on `questions`: sample, score while the update is prepared, normalise, update. `seed` decides every draw of the step.
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
    let (rollouts, rollout_seconds) =
        timed(info_span!("rollout"), || policy.sample(questions, &settings.sampling, seed));
    let rollouts = rollouts.map_err(StepError::Rollout)?;
    // The reward takes the processor, what the update needs besides it the policy's device.
    let reward = || score(&rollouts, questions, scorers, &settings.rewards);
    let prepare = || timed(info_span!("prepare"), || policy.prepare(&rollouts));
    let (scored, (prepared, prepare_seconds)) = at_once(reward, prepare);
    let Scored { returns, traces, mut seconds } = scored?;
    prepared.map_err(StepError::Update)?;
    let advantages = advantage::normalize(&returns, settings.sampling.num_generations, &settings.advantages);
    let (update, update_seconds) = timed(info_span!("update"), || policy.update(&rollouts, &advantages));
    let update = update.map_err(StepError::Update)?;
    (seconds.rollout, seconds.prepare, seconds.update) = (rollout_seconds, prepare_seconds, update_seconds);
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
    let _reward = info_span!("reward").entered();
    let mut drafts = split_and_align(rollouts, questions, settings);
    let (extracted, extract) = timed(info_span!("extract"), || extract(&mut drafts, scorers.extractor));
    extracted.map_err(StepError::Extract)?;
    let mut counter = TimedCounter { inner: &mut *scorers.counter, seconds: 0.0 };
    let (verdicts, judge) = timed(info_span!("judge"), || judge(&drafts, scorers.sentence_scorer, &mut counter));
    let verdicts = verdicts.map_err(StepError::ScoreSentences)?;
    let (count, rule) = (counter.seconds, judge - counter.seconds);
    let (grades, _) = timed(info_span!("grade"), || grade(&drafts, scorers.graders));
    let grades = grades.map_err(StepError::GradeResponses)?;
    let (returns, traces) = pay(drafts, verdicts, grades, settings);
    let seconds = StageSeconds { extract, count, rule, reward: start.elapsed().as_secs_f64(), ..Default::default() };
    Ok(Scored { returns, traces, seconds })
}

/// A completion on its way to a [`Trace`].
struct Draft<'a> {
    question: &'a Question,
    rollout: &'a Rollout,
    split: Split,
    alignment: Alignment,
    /// Its sentences are extracted, judged and paid: the settings want it, and enough of its tokens were aligned.
    scores_sentences: bool,
}

impl Draft<'_> {
    fn completion(&self) -> Completion<'_> {
        Completion::new(self.question, self.rollout, &self.split.sentences)
    }
}

fn split_and_align<'a>(
    rollouts: &'a [Rollout],
    questions: &'a [Question],
    settings: &RewardSettings,
) -> Vec<Draft<'a>> {
    let _span = info_span!("split").entered();
    let draft = |rollout: &'a Rollout| {
        let split = split(&rollout.text, settings.compatibility);
        let alignment = align(&split, &rollout.token_spans);
        let scores_sentences = settings.sentence_rewards_enabled()
            && !split.sentences.is_empty()
            && alignment.rate >= settings.min_alignment;
        Draft { question: &questions[rollout.question], rollout, split, alignment, scores_sentences }
    };
    rollouts.iter().map(draft).collect()
}

/// Fills in the triplets of every sentence that is scored, in one call.
fn extract(drafts: &mut [Draft<'_>], extractor: &mut dyn Extractor) -> Result<(), PartError> {
    let scored = drafts.iter_mut().filter(|draft| draft.scores_sentences);
    let sentences: Vec<&mut Sentence> = scored.flat_map(|draft| &mut draft.split.sentences).collect();
    if sentences.is_empty() {
        return Ok(());
    }
    let texts: Vec<&str> = sentences.iter().map(|sentence| sentence.text.as_str()).collect();
    let found = extractor.extract(&texts)?;
    if found.len() != sentences.len() {
        return Err(format!("the extractor answered {} of {} sentences", found.len(), sentences.len()).into());
    }
    for (sentence, triplets) in sentences.into_iter().zip(found) {
        sentence.triplets = triplets;
    }
    Ok(())
}

/// The verdicts of every completion whose sentences are scored; `None` for the others.
fn judge(
    drafts: &[Draft<'_>],
    scorer: &mut dyn SentenceScorer,
    counter: &mut dyn Counter,
) -> Result<Vec<Option<Vec<Verdict>>>, PartError> {
    let scored = drafts.iter().filter(|draft| draft.scores_sentences);
    let completions: Vec<Completion<'_>> = scored.map(Draft::completion).collect();
    if completions.is_empty() {
        return Ok(vec![None; drafts.len()]);
    }
    let verdicts = scorer.score(&completions, counter)?;
    check_shape("the rule", &completions, &verdicts)?;
    let mut verdicts = verdicts.into_iter();
    Ok(drafts.iter().map(|draft| if draft.scores_sentences { verdicts.next() } else { None }).collect())
}

fn grade(drafts: &[Draft<'_>], graders: &mut Graders) -> Result<Vec<ResponseGrades>, PartError> {
    let completions: Vec<Completion<'_>> = drafts.iter().map(Draft::completion).collect();
    graders.grade(&completions)
}

/// The return of every token, and why.
fn pay(
    drafts: Vec<Draft<'_>>,
    verdicts: Vec<Option<Vec<Verdict>>>,
    grades: Vec<ResponseGrades>,
    settings: &RewardSettings,
) -> (Vec<Vec<f64>>, Vec<Trace>) {
    let paid = drafts.into_iter().zip(verdicts).zip(grades);
    paid.map(|((draft, verdicts), grades)| pay_completion(draft, verdicts, grades, settings)).unzip()
}

fn pay_completion(
    draft: Draft<'_>,
    verdicts: Option<Vec<Verdict>>,
    grades: ResponseGrades,
    settings: &RewardSettings,
) -> (Vec<f64>, Trace) {
    let Draft { question, rollout, split, alignment, scores_sentences } = draft;
    let reward = |verdict: &Verdict| SentenceReward {
        reward: verdict.reward.map_or(0.0, f64::from),
        counted: verdict.count.is_some(),
    };
    let rewards: Vec<SentenceReward> = verdicts.iter().flatten().map(reward).collect();
    let returns = token_returns(&grades, &alignment, &rewards, settings);
    let mean_return = if returns.is_empty() {
        response_return(&grades, settings)
    } else {
        returns.iter().sum::<f64>() / returns.len() as f64
    };

    let mut verdicts = verdicts.into_iter().flatten();
    let sentences = split.sentences.into_iter().enumerate().map(|(index, sentence)| SentenceTrace {
        text: sentence.text,
        section: sentence.section,
        triplets: sentence.triplets,
        verdict: verdicts.next(),
        tokens: alignment.tokens_of(index),
    });
    let trace = Trace {
        question: question.question.clone(),
        completion: rollout.text.clone(),
        sentences: sentences.collect(),
        response: grades,
        alignment_rate: alignment.rate,
        fallback: settings.sentence_rewards_enabled() && !scores_sentences,
        mean_return,
    };
    (returns, trace)
}

/// Runs one stage within its span, and says how many seconds it took.
fn timed<T>(span: Span, stage: impl FnOnce() -> T) -> (T, f64) {
    let _entered = span.entered();
    let start = Instant::now();
    let done = stage();
    (done, start.elapsed().as_secs_f64())
}

/// Runs `here` in this thread and `there` in another, and waits for both.
fn at_once<A: Send, B>(there: impl FnOnce() -> A + Send, here: impl FnOnce() -> B) -> (A, B) {
    let span = Span::current();
    thread::scope(|scope| {
        let there = scope.spawn(|| span.in_scope(there));
        let here = here();
        (there.join().unwrap_or_else(|panic| resume_unwind(panic)), here)
    })
}

/// Tells the corpus's share of the time from the rule's.
struct TimedCounter<'a> {
    inner: &'a mut dyn Counter,
    seconds: f64,
}

impl Counter for TimedCounter<'_> {
    fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, PartError> {
        let (counts, seconds) = timed(info_span!("count", queries = queries.len()), || self.inner.count(queries));
        self.seconds += seconds;
        counts
    }

    fn size(&self) -> CorpusSize {
        self.inner.size()
    }
}
