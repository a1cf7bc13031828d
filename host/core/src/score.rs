//! Stages 3 to 7 together: rollouts → returns, without a policy.

use tracing::{Span, info_span};

use crate::returns::{
    response_return, sentence_rewards, token_labels, token_points, token_returns,
};
use crate::sentence::{Split, align, split};
use crate::stage::{StageSeconds, StepError, timed};
use crate::trace::SentenceTrace;
use crate::verdict::check_shape;
use crate::{
    Alignment, Completion, Extractor, Graders, PartError, Question, ResponseGrades, RewardSettings,
    Rollout, Sentence, SentenceScorer, Tallies, Trace, Verdict, Verifiers,
};

/// The parts that a completion is scored with.
pub struct Scorers<'a, 'b> {
    /// Sentences to triplets.
    pub extractor: &'a mut dyn Extractor,
    /// Answers what rules ask.
    pub verifiers: &'a mut Verifiers<'b>,
    /// Sentences to verdicts.
    pub sentence_scorer: &'a mut dyn SentenceScorer,
    /// Completions to response-level rewards.
    pub graders: &'a mut Graders,
}

/// Scored completions.
pub struct Scored {
    /// `[B][T]`.
    pub returns: Vec<Vec<f64>>,
    /// `[B][T]` what of it each token earned by itself: see [`token_points`].
    pub points: Vec<Vec<f64>>,
    /// `[B][T]` the signs that advantages are to take: see [`token_labels`].
    pub labels: Vec<Vec<i8>>,
    /// One per completion.
    pub traces: Vec<Trace>,
    /// What the rules asked.
    pub asked: Tallies,
    /// Extract, verify, rule and reward are set.
    pub seconds: StageSeconds,
}

/// Scores completions: the whole reward.
///
/// # Errors
/// Where a part fails.
pub fn score(
    rollouts: &[Rollout],
    questions: &[Question],
    scorers: &mut Scorers<'_, '_>,
    settings: &RewardSettings,
) -> Result<Scored, StepError> {
    let (scored, reward) = timed(info_span!("reward"), || {
        let mut all = std::iter::once(rollouts.iter().cloned().enumerate().collect());
        let reads_triplets = scorers.sentence_scorer.reads_triplets();
        let (readings, extract) = read_all(&mut all, scorers.extractor, settings, reads_triplets)?;
        let mut scored = pay(rollouts, readings, questions, scorers, settings)?;
        scored.seconds.extract = extract;
        Ok(scored)
    });
    scored.map(|scored: Scored| Scored {
        seconds: StageSeconds { reward, ..scored.seconds },
        ..scored
    })
}

/// What a completion says, and which of its tokens say it.
pub(crate) struct Reading {
    split: Split,
    alignment: Alignment,
    /// Its sentences are judged and paid: the settings want it, and enough of its tokens were
    /// aligned.
    scores_sentences: bool,
    /// Its sentences need triplets.
    is_extracted: bool,
}

impl Reading {
    fn of(rollout: &Rollout, settings: &RewardSettings, reads_triplets: bool) -> Self {
        let split = split(&rollout.text, settings.compatibility);
        let alignment = align(&split, &rollout.token_spans);
        let scores_sentences = settings.sentence_rewards_enabled()
            && !split.sentences.is_empty()
            && alignment.rate >= settings.min_alignment;
        Self {
            split,
            alignment,
            scores_sentences,
            is_extracted: scores_sentences && reads_triplets,
        }
    }

    /// The sentences that need triplets.
    fn to_extract(&self) -> &[Sentence] {
        if self.is_extracted { &self.split.sentences } else { &[] }
    }
}

/// Reads rollouts as they end, until none is left, and extracts triplets where the rule reads them.
/// Returns the readings in the order of the rollouts, and the seconds that extraction took beyond
/// the waiting for rollouts.
///
/// # Errors
/// Where the extractor fails.
pub(crate) fn read_all(
    ended: &mut dyn Iterator<Item = Vec<(usize, Rollout)>>,
    extractor: &mut dyn Extractor,
    settings: &RewardSettings,
    reads_triplets: bool,
) -> Result<(Vec<Reading>, f64), StepError> {
    let mut all: Vec<(usize, Reading)> = Vec::new();
    let mut waited = 0.0;
    let mut sentences = std::iter::from_fn(|| {
        let (together, seconds) = timed(Span::none(), || ended.next());
        waited += seconds;
        let read = |(place, rollout): (usize, Rollout)| {
            (place, Reading::of(&rollout, settings, reads_triplets))
        };
        let readings: Vec<_> = info_span!("split")
            .in_scope(|| together.map(|all| all.into_iter().map(read).collect()))?;
        let texts = readings
            .iter()
            .flat_map(|(_, reading)| reading.to_extract())
            .map(|sentence| sentence.text.clone());
        let texts = texts.collect();
        all.extend(readings);
        Some(texts)
    });
    let (found, took) =
        timed(info_span!("extract"), || extractor.extract_as_they_come(&mut sentences));
    let mut found = found.map_err(StepError::Extract)?.into_iter();
    let asked = all.iter().map(|(_, reading)| reading.to_extract().len()).sum::<usize>();
    if found.len() != asked {
        return Err(StepError::Extract(
            format!("the extractor answered {} of {asked} sentences", found.len()).into(),
        ));
    }
    for (_, reading) in &mut all {
        let sentences = reading.split.sentences.iter_mut().filter(|_| reading.is_extracted);
        sentences.zip(&mut found).for_each(|(sentence, triplets)| sentence.triplets = triplets);
    }
    all.sort_by_key(|(place, _)| *place);
    Ok((all.into_iter().map(|(_, reading)| reading).collect(), took - waited))
}

/// What is left of the reward once the triplets are there: rules, judge, format, and the return of
/// every token. Sets the seconds of verify and rule.
///
/// # Errors
/// Where a part fails.
pub(crate) fn pay(
    rollouts: &[Rollout],
    readings: Vec<Reading>,
    questions: &[Question],
    scorers: &mut Scorers<'_, '_>,
    settings: &RewardSettings,
) -> Result<Scored, StepError> {
    if readings.len() != rollouts.len() {
        let told =
            format!("the policy handed over {} of {} rollouts", readings.len(), rollouts.len());
        return Err(StepError::Rollout(told.into()));
    }
    let completions: Vec<Completion<'_>> = rollouts
        .iter()
        .zip(&readings)
        .map(|(rollout, reading)| {
            Completion::new(&questions[rollout.question], rollout, &reading.split.sentences)
        })
        .collect();
    let scored: Vec<Completion<'_>> = completions
        .iter()
        .zip(&readings)
        .filter(|(_, reading)| reading.scores_sentences)
        .map(|(one, _)| *one)
        .collect();
    scorers.verifiers.take_tallies();
    let (verdicts, judge_seconds) =
        timed(info_span!("judge"), || judge(&scored, scorers.sentence_scorer, scorers.verifiers));
    let mut verdicts = verdicts.map_err(StepError::ScoreSentences)?.into_iter();
    let (grades, grade_seconds) =
        timed(info_span!("grade"), || scorers.graders.grade(&completions, scorers.verifiers));
    let grades = grades.map_err(StepError::GradeResponses)?;
    let asked = scorers.verifiers.take_tallies();

    let parts = rollouts.iter().zip(readings).zip(grades);
    let verify = asked.seconds();
    let seconds = StageSeconds {
        verify,
        rule: judge_seconds + grade_seconds - verify,
        ..StageSeconds::default()
    };
    let mut scored = Scored {
        returns: Vec::new(),
        points: Vec::new(),
        labels: Vec::new(),
        traces: Vec::new(),
        asked,
        seconds,
    };
    for ((rollout, reading), grades) in parts {
        let verdicts = if reading.scores_sentences { verdicts.next() } else { None };
        let (returns, points, labels, trace) = pay_completion(
            &questions[rollout.question],
            rollout,
            reading,
            verdicts,
            grades,
            settings,
        );
        scored.returns.push(returns);
        scored.points.push(points);
        scored.labels.push(labels);
        scored.traces.push(trace);
    }
    Ok(scored)
}

/// The verdicts of completions whose sentences are scored.
fn judge(
    completions: &[Completion<'_>],
    scorer: &mut dyn SentenceScorer,
    verifiers: &mut Verifiers<'_>,
) -> Result<Vec<Vec<Verdict>>, PartError> {
    if completions.is_empty() {
        return Ok(Vec::new());
    }
    let verdicts = scorer.score(completions, verifiers)?;
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
) -> (Vec<f64>, Vec<f64>, Vec<i8>, Trace) {
    let Reading { split, alignment, scores_sentences, .. } = reading;
    let judged = verdicts.as_deref().unwrap_or_default();
    let rewards = sentence_rewards(judged, &split.sentences, &alignment, rollout);
    let labels = token_labels(judged, &alignment);
    let points = token_points(&alignment, &rewards, settings);
    let returns = token_returns(&grades, &alignment, &rewards, settings);
    let mean_return = if returns.is_empty() {
        response_return(&grades, settings)
    } else {
        returns.iter().sum::<f64>() / returns.len() as f64
    };

    let mut verdicts = verdicts.into_iter().flatten();
    let sentences =
        split.sentences.into_iter().enumerate().map(|(index, sentence)| SentenceTrace {
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
    (returns, points, labels, trace)
}
