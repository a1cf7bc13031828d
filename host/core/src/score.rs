//! Stages 3 to 7 together: rollouts → returns, without a policy.

use std::sync::mpsc::Receiver;

use tracing::info_span;

use crate::returns::{SentenceReward, response_return, token_returns};
use crate::sentence::{Split, align, split};
use crate::step::{StageSeconds, timed};
use crate::trace::SentenceTrace;
use crate::verdict::check_shape;
use crate::{
    Alignment, Completion, CorpusSize, Count, Counter, Extractor, Graders, PartError, Query, Question, ResponseGrades,
    RewardSettings, Rollout, Sentence, SentenceScorer, StepError, Trace, Verdict,
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

/// Scored completions.
pub struct Scored {
    /// `[B][T]`.
    pub returns: Vec<Vec<f64>>,
    /// One per completion.
    pub traces: Vec<Trace>,
    /// Extract, count, rule and reward are set.
    pub seconds: StageSeconds,
}

/// Scores completions: the whole reward.
///
/// # Errors
/// Where a part fails.
pub fn score(
    rollouts: &[Rollout],
    questions: &[Question],
    scorers: &mut Scorers<'_>,
    settings: &RewardSettings,
) -> Result<Scored, StepError> {
    let (scored, reward) = timed(info_span!("reward"), || {
        let readings = || rollouts.iter().map(|rollout| Reading::of(rollout, settings)).collect();
        let mut readings: Vec<Reading> = info_span!("split").in_scope(readings);
        let (extracted, extract) = timed(info_span!("extract"), || extract(&mut readings, scorers.extractor));
        extracted.map_err(StepError::Extract)?;
        let mut scored = pay(rollouts, readings, questions, scorers, settings)?;
        scored.seconds.extract = extract;
        Ok(scored)
    });
    scored.map(|scored: Scored| Scored { seconds: StageSeconds { reward, ..scored.seconds }, ..scored })
}

/// What a completion says, and which of its tokens say it.
pub(crate) struct Reading {
    split: Split,
    alignment: Alignment,
    /// Its sentences are extracted, judged and paid: the settings want it, and enough of its tokens were aligned.
    scores_sentences: bool,
}

impl Reading {
    fn of(rollout: &Rollout, settings: &RewardSettings) -> Self {
        let split = split(&rollout.text, settings.compatibility);
        let alignment = align(&split, &rollout.token_spans);
        let scores_sentences = settings.sentence_rewards_enabled()
            && !split.sentences.is_empty()
            && alignment.rate >= settings.min_alignment;
        Self { split, alignment, scores_sentences }
    }
}

/// Reads rollouts as they end, until nobody hands over any; returns the readings by the rollouts' places, and the extractor's
/// seconds. What ends during an extraction is extracted together.
///
/// # Errors
/// Where the extractor fails.
pub(crate) fn read_all(
    ended: &Receiver<Vec<(usize, Rollout)>>,
    extractor: &mut dyn Extractor,
    settings: &RewardSettings,
) -> Result<(Vec<Reading>, f64), StepError> {
    let mut all: Vec<(usize, Reading)> = Vec::new();
    let mut seconds = 0.0;
    while let Ok(first) = ended.recv() {
        let batch = first.into_iter().chain(ended.try_iter().flatten());
        let readings = || batch.map(|(place, rollout)| (place, Reading::of(&rollout, settings))).unzip();
        let (places, mut readings): (Vec<usize>, Vec<Reading>) = info_span!("split").in_scope(readings);
        let (extracted, took) = timed(info_span!("extract"), || extract(&mut readings, extractor));
        extracted.map_err(StepError::Extract)?;
        seconds += took;
        all.extend(places.into_iter().zip(readings));
    }
    all.sort_by_key(|(place, _)| *place);
    Ok((all.into_iter().map(|(_, reading)| reading).collect(), seconds))
}

/// Fills in the triplets of every sentence that is scored, in one call.
fn extract(readings: &mut [Reading], extractor: &mut dyn Extractor) -> Result<(), PartError> {
    let scored = readings.iter_mut().filter(|reading| reading.scores_sentences);
    let sentences: Vec<&mut Sentence> = scored.flat_map(|reading| &mut reading.split.sentences).collect();
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

/// What is left of the reward once the triplets are there: rules, judge, format, and the return of every token. Sets the seconds of
/// count and rule.
///
/// # Errors
/// Where a part fails.
pub(crate) fn pay(
    rollouts: &[Rollout],
    readings: Vec<Reading>,
    questions: &[Question],
    scorers: &mut Scorers<'_>,
    settings: &RewardSettings,
) -> Result<Scored, StepError> {
    if readings.len() != rollouts.len() {
        let told = format!("the policy handed over {} of {} rollouts", readings.len(), rollouts.len());
        return Err(StepError::Rollout(told.into()));
    }
    let completions: Vec<Completion<'_>> = rollouts
        .iter()
        .zip(&readings)
        .map(|(rollout, reading)| Completion::new(&questions[rollout.question], rollout, &reading.split.sentences))
        .collect();
    let scored: Vec<Completion<'_>> = completions
        .iter()
        .zip(&readings)
        .filter(|(_, reading)| reading.scores_sentences)
        .map(|(one, _)| *one)
        .collect();
    let mut counter = TimedCounter { inner: &mut *scorers.counter, seconds: 0.0 };
    let (verdicts, judge_seconds) =
        timed(info_span!("judge"), || judge(&scored, scorers.sentence_scorer, &mut counter));
    let count = counter.seconds;
    let mut verdicts = verdicts.map_err(StepError::ScoreSentences)?.into_iter();
    let (grades, _) = timed(info_span!("grade"), || scorers.graders.grade(&completions));
    let grades = grades.map_err(StepError::GradeResponses)?;

    let parts = rollouts.iter().zip(readings).zip(grades);
    let (returns, traces) = parts
        .map(|((rollout, reading), grades)| {
            let verdicts = if reading.scores_sentences { verdicts.next() } else { None };
            pay_completion(&questions[rollout.question], rollout, reading, verdicts, grades, settings)
        })
        .unzip();
    let seconds = StageSeconds { count, rule: judge_seconds - count, ..StageSeconds::default() };
    Ok(Scored { returns, traces, seconds })
}

/// The verdicts of completions whose sentences are scored.
fn judge(
    completions: &[Completion<'_>],
    scorer: &mut dyn SentenceScorer,
    counter: &mut dyn Counter,
) -> Result<Vec<Vec<Verdict>>, PartError> {
    if completions.is_empty() {
        return Ok(Vec::new());
    }
    let verdicts = scorer.score(completions, counter)?;
    check_shape("the rule", completions, &verdicts)?;
    Ok(verdicts)
}

fn pay_completion(
    question: &Question,
    rollout: &Rollout,
    reading: Reading,
    verdicts: Option<Vec<Verdict>>,
    grades: ResponseGrades,
    settings: &RewardSettings,
) -> (Vec<f64>, Trace) {
    let Reading { split, alignment, scores_sentences } = reading;
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
